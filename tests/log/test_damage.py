"""Damaged files: the server says nothing, so the log's readers have to notice."""

import asyncio
from pathlib import Path

import pytest
from tests.log.commits import NOW, append, next_of, read_to

from penstock.errors import Corrupt
from penstock.events import START, Position, Subjects
from penstock.events.connection import Connection, connect
from penstock.events.jetstream import JetStreamLog
from penstock.events.streams import ensure_streams
from penstock.up.nats import NatsServer

pytestmark = pytest.mark.anyio

COMMITS = 300


async def _filled_and_stopped(server: NatsServer) -> Position:
    """Fill the log, then stop the server; returns the end of the log."""
    connection = await connect(server.url, "w")
    await ensure_streams(connection, Subjects())
    writer = await JetStreamLog(connection, Subjects()).elect("a", "", START, NOW)
    # Long and never the same, so that compression leaves something to damage everywhere.
    await append(writer, *(f"{number:06d}" * 20 for number in range(COMMITS - 1)))
    await connection.close()
    await server.stop()
    return writer.position


def _message_files(server: NatsServer) -> tuple[Path, Path]:
    """The newest block of the log and its index."""
    [directory] = server.directory.glob("jetstream/**/streams/LOG/msgs")
    return max(directory.glob("*.blk")), directory / "index.db"


async def _restarted(server: NatsServer) -> Connection:
    await server.start()
    return await connect(server.url, "r")


@pytest.mark.parametrize("index", ["kept", "deleted"])
async def test_a_flipped_bit_stops_the_reader(own_nats: NatsServer, index: str) -> None:
    end = await _filled_and_stopped(own_nats)
    block, index_file = _message_files(own_nats)
    content = bytearray(block.read_bytes())
    content[len(content) // 2] ^= 1
    block.write_bytes(content)
    if index == "deleted":
        index_file.unlink(missing_ok=True)
    connection = await _restarted(own_nats)
    log = JetStreamLog(connection, Subjects())
    # Where the server skips the commit, one who reads it all meets the gap; where it cut the log
    # off instead, one who had read it before meets the missing end.
    meets_it = read_to(log, end.sequence, START) if index == "kept" else next_of(log.follow(end))
    with pytest.raises(Corrupt):
        async with asyncio.timeout(30):
            await meets_it
    await connection.close()


@pytest.mark.parametrize("index", ["kept", "deleted"])
async def test_a_log_that_was_cut_off_stops_reader_and_candidate(
    own_nats: NatsServer, index: str
) -> None:
    end = await _filled_and_stopped(own_nats)
    block, index_file = _message_files(own_nats)
    content = block.read_bytes()
    block.write_bytes(content[: len(content) // 2])
    if index == "deleted":
        index_file.unlink(missing_ok=True)
    connection = await _restarted(own_nats)
    log = JetStreamLog(connection, Subjects())
    with pytest.raises(Corrupt):
        async with asyncio.timeout(30):
            await next_of(log.follow(end))
    with pytest.raises(Corrupt):
        async with asyncio.timeout(30):
            await log.elect("b", "", end, NOW)
    await connection.close()


async def test_damage_to_the_last_commit_does_not_leave_the_reader_waiting(
    own_nats: NatsServer,
) -> None:
    end = await _filled_and_stopped(own_nats)
    block, _ = _message_files(own_nats)
    content = bytearray(block.read_bytes())
    content[-40] ^= 1
    block.write_bytes(content)
    connection = await _restarted(own_nats)
    with pytest.raises(Corrupt):
        async with asyncio.timeout(30):
            await read_to(JetStreamLog(connection, Subjects()), end.sequence, START)
    await connection.close()


async def test_a_running_writer_and_follower_notice_that_the_log_was_cut_off(
    own_nats: NatsServer,
) -> None:
    connection = await connect(own_nats.url, "w")
    await ensure_streams(connection, Subjects())
    log = JetStreamLog(connection, Subjects())
    writer = await log.elect("a", "", START, NOW)
    await append(writer, *(f"{number:06d}" * 20 for number in range(50)))
    waiting = asyncio.ensure_future(next_of(log.follow(writer.position)))
    await own_nats.stop()
    block, index_file = _message_files(own_nats)
    content = block.read_bytes()
    block.write_bytes(content[: len(content) // 2])
    index_file.unlink(missing_ok=True)
    await own_nats.start()
    async with asyncio.timeout(30):
        with pytest.raises(Corrupt):
            await append(writer, "m")
        with pytest.raises(Corrupt):
            await waiting
    await connection.close()
