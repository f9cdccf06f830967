"""What `penstock up` and `penstock down` do."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock import exit_codes
from penstock.errors import Unavailable
from penstock.up import command, leftovers
from penstock.up.data_directory import Address, DataDirectory
from penstock.up.nats import NatsServer
from penstock.up.postgres import PostgresServer
from penstock.up.signals import until_stopped
from penstock.up.supervisor import Settings, System

MESSAGE = "penstock: "
"""What the last words of the background process begin with, after its log."""

_POLL_SECONDS = 0.02
_STOP_SECONDS = 60.0


async def run(settings: Settings, when_ready: Callable[[System], None] | None = None) -> None:
    """Run a system until SIGINT, SIGTERM or SIGHUP, then stop it cleanly.

    Raises `Corrupt` when a process finds that the log is damaged; the system is stopped then too.
    """

    async def supervise() -> None:
        async with System(settings) as system:
            if when_ready is not None:
                when_ready(system)
            await system.until_damaged()

    await until_stopped(supervise())


def start_detached(settings: Settings) -> Address:
    """Start a system in the background, in a session of its own, and wait until it is ready."""
    data = DataDirectory(settings.data)
    data.create()
    settings = msgspec.structs.replace(settings, data=data.root)
    log = data.log("up")
    with log.open("ab") as output:
        before = output.tell()
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.up",
                msgspec.json.encode(settings, enc_hook=str).decode(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while child.poll() is None:
        address = data.address()
        if address is not None and address.pid == child.pid:
            # It outlives us on purpose: Popen must not warn that it was left running.
            child.returncode = 0
            return address
        time.sleep(_POLL_SECONDS)
    said = log.read_bytes()[before:].decode(errors="replace")
    said = f"\n{said}".partition(f"\n{MESSAGE}")[2].strip() or said.strip()
    code = child.returncode
    kind = exit_codes.family_of(code) or Unavailable
    raise kind(said or f"The system ended with code {code}; see {log}.")


async def down(directory: Path) -> bool:
    """Stop the system of this data directory and wait until it is gone; False if none ran.

    Whatever a supervisor that was killed left running is ended too.
    """
    data = DataDirectory(directory)
    owner = data.owner()
    if owner is not None:
        supervisor = leftovers.find(lambda candidate: candidate.pid == owner.pid)
        await leftovers.end(supervisor, signal.SIGTERM, _STOP_SECONDS)
    if data.root.exists():
        with data.locked():
            await command.end_leftovers(data.root)
            await NatsServer(data.nats).end_leftovers()
            await PostgresServer(data.postgres).end_leftovers()
    return owner is not None
