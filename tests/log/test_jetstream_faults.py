"""The real log when the line is cut, the server is killed or a process stops half way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.log.commits import NOW, append, body, names, next_of, read_to
from tests.log.proxy import Proxy

from penstock.errors import Conflict, Deposed, LogFull
from penstock.events import START, Entry, LogWriter, Position, Subjects, jetstream
from penstock.events.append import Offer
from penstock.events.commit import digest
from penstock.events.connection import Connection, connect
from penstock.events.jetstream import JetStreamLog, JetStreamStorage
from penstock.events.jetstream_api import Answer, ask
from penstock.events.streams import ensure_streams
from penstock.up.nats import NatsServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def proxy(nats_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(nats_url) as proxy:
        yield proxy


@pytest.fixture
async def distant(
    proxy: Proxy, connection: Connection, subjects: Subjects
) -> AsyncIterator[JetStreamLog]:
    """A log behind the proxy."""
    distant = await connect(proxy.url, "distant")
    yield JetStreamLog(distant, subjects)
    await distant.close()


async def test_an_append_whose_answer_was_lost_succeeds_and_is_stored_once(
    proxy: Proxy, distant: JetStreamLog, connection: Connection, subjects: Subjects
) -> None:
    writer = await distant.elect("a", "", START, NOW)
    proxy.hold_answers()
    appending = asyncio.create_task(append(writer, "m1"))
    await proxy.answered.wait()
    await proxy.cut()
    proxy.release()
    [position] = await appending
    await append(writer, "m2")
    near = JetStreamLog(connection, subjects)
    assert position.sequence == 2
    assert names(await read_to(near, await near.end(), START)) == ["[a]", "m1", "m2"]


async def test_an_append_that_never_arrived_is_sent_again(
    proxy: Proxy, distant: JetStreamLog, connection: Connection, subjects: Subjects
) -> None:
    writer = await distant.elect("a", "", START, NOW)
    proxy.hold_requests()
    appending = asyncio.create_task(append(writer, "m1"))
    await proxy.asked.wait()
    await proxy.cut()
    proxy.release()
    await appending
    near = JetStreamLog(connection, subjects)
    assert names(await read_to(near, await near.end(), START)) == ["[a]", "m1"]


async def test_an_append_that_takes_too_long_is_looked_up_and_stored_once(
    proxy: Proxy,
    distant: JetStreamLog,
    connection: Connection,
    subjects: Subjects,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = await distant.elect("a", "", START, NOW)
    monkeypatch.setattr(jetstream, "APPEND_TIMEOUT_SECONDS", 0.05)
    proxy.hold_requests()
    appending = asyncio.create_task(append(writer, "m1"))
    await proxy.asked.wait()
    asyncio.get_running_loop().call_later(0.3, proxy.release)
    await appending
    await append(writer, "m2")
    near = JetStreamLog(connection, subjects)
    assert names(await read_to(near, await near.end(), START)) == ["[a]", "m1", "m2"]


async def test_a_writer_that_was_replaced_while_cut_off_finds_out(
    proxy: Proxy, distant: JetStreamLog, connection: Connection, subjects: Subjects
) -> None:
    writer = await distant.elect("old", "", START, NOW)
    proxy.hold_requests()
    appending = asyncio.create_task(append(writer, "zombie"))
    await proxy.asked.wait()
    near = JetStreamLog(connection, subjects)
    usurper = await near.elect("new", "", writer.position, NOW)
    proxy.release()
    with pytest.raises(Deposed):
        await appending
    await append(usurper, "m1")
    assert names(await read_to(near, await near.end(), START)) == ["[old]", "[new]", "m1"]


async def test_the_right_place_does_not_help_a_writer_of_an_older_epoch(
    connection: Connection, subjects: Subjects
) -> None:
    log = JetStreamLog(connection, subjects)
    old = await log.elect("old", "", START, NOW)
    new = await log.elect("new", "", old.position, NOW)
    commit = body(old, "zombie", after=new.position)
    offer = Offer(body=commit, hash=digest(commit), place=3, epoch=old.epoch)
    storage = JetStreamStorage(connection, subjects)
    refusal = await storage.offer(offer)
    assert refusal is not None
    assert refusal.why == "does not follow"
    assert await log.end() == 2
    assert await storage.offer(msgspec.structs.replace(offer, epoch=new.epoch)) is None


async def test_an_append_that_was_broken_off_ends_the_writer_but_not_the_log(
    proxy: Proxy, distant: JetStreamLog, connection: Connection, subjects: Subjects
) -> None:
    writer = await distant.elect("a", "", START, NOW)
    proxy.hold_requests()
    appending = asyncio.create_task(append(writer, "m1"))
    await proxy.asked.wait()
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    with pytest.raises(Deposed):
        await append(writer, "m2")
    proxy.release()
    near = JetStreamLog(connection, subjects)
    again = await _elected(near, writer.position)
    await append(again, "m3")
    # What was broken off may still have arrived, but only before the election.
    found = names(await read_to(near, await near.end(), START))
    assert found in (["[a]", "[b]", "m3"], ["[a]", "m1", "[b]", "m3"])


async def _elected(log: JetStreamLog, after: Position) -> LogWriter:
    while True:
        try:
            return await log.elect("b", "", after, NOW)
        except Conflict:
            after = (await read_to(log, await log.end(), after))[-1].position


async def test_a_follower_goes_on_after_its_consumer_was_deleted(
    connection: Connection, subjects: Subjects
) -> None:
    log = JetStreamLog(connection, subjects)
    writer = await log.elect("a", "", START, NOW)
    following = log.follow(START)
    await next_of(following)
    waiting = asyncio.ensure_future(next_of(following))
    listed = await connection.call(f"$JS.API.CONSUMER.NAMES.{subjects.log_stream}")
    for name in _consumers(listed.data):
        await ask(connection, f"CONSUMER.DELETE.{subjects.log_stream}.{name}", None, Answer)
    await append(writer, "m1")
    async with asyncio.timeout(10):
        assert names([await waiting]) == ["m1"]
    await following.aclose()  # type: ignore[attr-defined]


def _consumers(data: bytes) -> list[str]:
    return list(msgspec.json.decode(data)["consumers"])


async def _append_for_ever(writer: LogWriter, done: list[str]) -> None:
    while True:
        name = f"m{len(done)}"
        await append(writer, name)
        done.append(name)


async def _collect(log: JetStreamLog, entries: list[Entry]) -> None:
    async for entry in log.follow(START):
        entries += [entry]


async def test_killing_the_server_again_and_again_loses_and_repeats_nothing(
    own_nats: NatsServer,
) -> None:
    subjects = Subjects()
    writing, reading = await connect(own_nats.url, "w"), await connect(own_nats.url, "r")
    await ensure_streams(writing, subjects)
    log = JetStreamLog(writing, subjects)
    writer = await log.elect("a", "", START, NOW)
    done: list[str] = []
    entries: list[Entry] = []
    appending = asyncio.create_task(_append_for_ever(writer, done))
    following = asyncio.create_task(_collect(JetStreamLog(reading, subjects), entries))
    for _ in range(4):
        reached = len(done) + 50
        async with asyncio.timeout(20):
            while len(done) < reached or len(entries) < reached:
                await asyncio.wait({appending, following}, timeout=0.005)
        await own_nats.kill()
        await own_nats.start()
    reached = len(done) + 50
    async with asyncio.timeout(20):
        while len(done) < reached:
            await asyncio.wait({appending, following}, timeout=0.005)
    appending.cancel()
    await asyncio.gather(appending, return_exceptions=True)
    end = await log.end()
    async with asyncio.timeout(20):
        while len(entries) < end:
            await asyncio.wait({following}, timeout=0.005)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    # The append that was broken off at the end may be there or not.
    assert names(entries)[: len(done) + 1] == ["[a]", *done]
    assert len(entries) <= len(done) + 2
    await writing.close()
    await reading.close()


async def _append_until_refused(writer: LogWriter) -> bytes:
    while True:
        commit = body(writer, "x" * 100_000)
        try:
            await writer.append(commit)
        except LogFull:
            return commit


async def test_a_full_disk_refuses_and_the_log_goes_on_when_there_is_room(scratch: Path) -> None:
    subjects = Subjects()
    server = NatsServer(scratch / "nats", max_store_bytes=2 * 1024 * 1024)
    await server.start()
    connection = await connect(server.url, "w")
    await ensure_streams(connection, subjects)
    log = JetStreamLog(connection, subjects)
    writer = await log.elect("a", "", START, NOW)
    refused = await _append_until_refused(writer)
    stored = await log.end()
    assert stored == writer.position.sequence
    await server.stop()
    larger = NatsServer(scratch / "nats", max_store_bytes=64 * 1024 * 1024)
    await larger.start()
    await connection.ready()
    await writer.append(refused)
    await append(writer, "m")
    assert len(await read_to(log, stored + 2, START)) == stored + 2
    await connection.close()
    await larger.stop()
