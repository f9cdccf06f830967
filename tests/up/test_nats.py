"""The embedded NATS starts, keeps what it acknowledged, and lets in only who knows the password."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import nats
import psutil
import pytest
from nats.aio.client import Client

from penstock.errors import Unavailable
from penstock.up.nats import NatsServer

pytestmark = pytest.mark.anyio


async def connect(url: str) -> Client:
    return await nats.connect(url, allow_reconnect=False, connect_timeout=5)


async def test_what_was_acknowledged_survives_a_kill_at_the_same_address(
    own_nats: NatsServer,
) -> None:
    url = own_nats.url
    client = await connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="LOG", subjects=["log"])
    await jetstream.publish("log", b"kept")
    await own_nats.kill()
    await client.close()

    await own_nats.start()

    assert own_nats.url == url
    client = await connect(own_nats.url)
    assert (await client.jetstream().get_msg("LOG", 1)).data == b"kept"
    await client.close()


async def test_another_life_on_the_same_directory_keeps_port_and_password(
    own_nats: NatsServer,
) -> None:
    url = own_nats.url
    await own_nats.stop()
    later = NatsServer(own_nats.directory)
    await later.start()
    try:
        assert later.url == url
    finally:
        await later.stop()


async def test_a_port_that_was_taken_meanwhile_is_replaced(own_nats: NatsServer) -> None:
    port = int(own_nats.url.rpartition(":")[2])
    await own_nats.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        await own_nats.start()
    assert int(own_nats.url.rpartition(":")[2]) != port
    client = await connect(own_nats.url)
    await client.close()


async def test_a_wrong_password_is_refused(own_nats: NatsServer) -> None:
    port = int(own_nats.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    writer.write(b'CONNECT {"user":"penstock","pass":"guess","verbose":false}\r\nPING\r\n')
    assert await reader.read() == b"-ERR 'Authorization Violation'\r\n"
    writer.close()
    await writer.wait_closed()


async def test_it_listens_on_loopback_only(own_nats: NatsServer) -> None:
    assert own_nats.process is not None
    listening = psutil.Process(own_nats.process.pid).net_connections("tcp")
    assert {one.laddr.ip for one in listening if one.status == "LISTEN"} == {"127.0.0.1"}


async def test_only_the_owner_can_read_the_password(own_nats: NatsServer) -> None:
    password = own_nats.url.split(":")[2].split("@")[0].encode()
    holding = files_with(password, own_nats.directory)
    assert own_nats.credentials_file in holding
    assert {stat.S_IMODE(file.stat().st_mode) for file in holding} == {0o600}


def files_with(text: bytes, directory: Path) -> list[Path]:
    files = (Path(parent, name) for parent, _, names in os.walk(directory) for name in names)
    return [file for file in files if text in file.read_bytes()]


async def test_every_message_is_synced_to_disk(own_nats: NatsServer) -> None:
    configuration = (own_nats.directory / "nats-server.conf").read_text()
    assert "sync_interval: always" in configuration


async def test_a_server_left_by_an_earlier_life_is_ended_first(own_nats: NatsServer) -> None:
    first = own_nats.process
    assert first is not None
    later = NatsServer(own_nats.directory)
    await later.start()
    try:
        assert await asyncio.wait_for(first.wait(), 5) is not None
    finally:
        await later.stop()


async def test_a_server_that_cannot_start_says_why(scratch: Path) -> None:
    (scratch / "nats").mkdir()
    (scratch / "nats" / "jetstream").write_text("not a directory")
    with pytest.raises(Unavailable, match=r"(?s)ended with code 1.*JetStream"):
        await NatsServer(scratch / "nats").start()


def test_it_ends_with_the_process_that_started_it(scratch: Path) -> None:
    program = (
        "import asyncio, os, pathlib, sys\n"
        "from penstock.up.nats import NatsServer\n"
        "server = NatsServer(pathlib.Path(sys.argv[1]))\n"
        "asyncio.run(server.start())\n"
        "print(server.process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", program, str(scratch / "nats")]
    done = subprocess.run(command, check=False, capture_output=True, timeout=30)
    assert done.returncode == -9
    assert _until_gone(int(done.stdout))


def _until_gone(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return True
    gone, _ = psutil.wait_procs([process], timeout=10)
    return bool(gone) or process.status() == psutil.STATUS_ZOMBIE
