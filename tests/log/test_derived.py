"""Events for integrators: each one once, in order, whoever publishes and however it dies."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from tests.log.commits import NOW

from penstock.errors import Corrupt, PenstockError
from penstock.events import (
    START,
    AnyEvent,
    GroupCreated,
    LogWriter,
    ManagerOffline,
    Subjects,
    TaskGroupClosed,
)
from penstock.events import derived as derived_module
from penstock.events.append import backoff
from penstock.events.commit import assemble, encode_event
from penstock.events.connection import Connection, connect
from penstock.events.derivation import Derived, safe
from penstock.events.derived import EventsPublisher
from penstock.events.jetstream import JetStreamLog
from penstock.events.jetstream_api import publish, stream_info
from penstock.events.pull import Pull
from penstock.events.streams import ensure_streams

pytestmark = pytest.mark.anyio

PUBLISHER = """
import asyncio, sys
from penstock.events import Subjects
from penstock.events.connection import connect
from penstock.events.derived import EventsPublisher
from penstock.events.jetstream import JetStreamLog

async def main():
    subjects = Subjects(prefix=sys.argv[2])
    connection = await connect(sys.argv[1], "publisher")
    await EventsPublisher(connection, subjects, JetStreamLog(connection, subjects)).run()

asyncio.run(main())
"""


class Published(msgspec.Struct, frozen=True):
    subject: str
    id: str
    event: dict[str, object]


async def _append(writer: LogWriter, *events: AnyEvent) -> None:
    await writer.append(
        assemble(
            writer.position,
            commit_id=random.randbytes(8).hex(),
            epoch=writer.epoch,
            at=NOW,
            events=[encode_event(event) for event in events],
        )
    )


def _closed(number: int) -> TaskGroupClosed:
    return TaskGroupClosed(at=NOW, actor="test", task_group_id=number)


async def _published(connection: Connection, subjects: Subjects, count: int) -> list[Published]:
    """The first messages of the stream, once there are so many."""
    pull = await Pull.open(connection, subjects.events_stream, 1)
    found: list[Published] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            for message in await pull.take():
                headers = message.headers or {}
                event = msgspec.json.decode(message.data)
                found.append(Published(message.subject, headers["Nats-Msg-Id"], event))
    await pull.close()
    return found


@asynccontextmanager
async def _publishing(connection: Connection, subjects: Subjects) -> AsyncIterator[None]:
    log = JetStreamLog(connection, subjects)
    running = asyncio.create_task(EventsPublisher(connection, subjects, log).run())
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.fixture
async def writer(connection: Connection, subjects: Subjects) -> LogWriter:
    return await JetStreamLog(connection, subjects).elect("north.1", "", START, NOW)


async def test_each_event_has_a_subject_an_id_and_its_json(
    connection: Connection, subjects: Subjects, writer: LogWriter
) -> None:
    offline = ManagerOffline(at=NOW, actor="test", manager_id="m-1", reason="silent")
    await _append(writer, GroupCreated(at=NOW, actor="test", group="ünits"), offline)
    await _append(writer, _closed(5))
    async with _publishing(connection, subjects):
        found = await _published(connection, subjects, 4)
    first = f"{subjects.prefix}.events"
    assert [(message.subject, message.id) for message in found] == [
        (f"{first}.coordinator.north=2E=1.leader_elected", "1.0"),
        (f"{first}.group.=FC=nits.group_created", "2.0"),
        (f"{first}.manager.m-1.manager_offline", "2.1"),
        (f"{first}.task_group.5.task_group_closed", "3.0"),
    ]
    assert found[2].event == msgspec.json.decode(encode_event(offline))


async def test_events_are_published_as_they_are_committed(
    connection: Connection, subjects: Subjects, writer: LogWriter
) -> None:
    async with _publishing(connection, subjects):
        for number in range(5):
            await _append(writer, _closed(number))
            assert len(await _published(connection, subjects, number + 2)) == number + 2


async def test_a_commit_of_very_many_events_takes_several_batches(
    connection: Connection, subjects: Subjects, writer: LogWriter
) -> None:
    await _append(writer, *(_closed(number) for number in range(2500)))
    await _append(writer, _closed(2500))
    async with _publishing(connection, subjects):
        found = await _published(connection, subjects, 2502)
    assert [message.event.get("task_group_id") for message in found[1:]] == list(range(2501))


async def test_a_publisher_resumes_in_the_middle_of_a_commit(
    connection: Connection,
    subjects: Subjects,
    writer: LogWriter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await _append(writer, *(_closed(number) for number in range(10)))
    monkeypatch.setattr(derived_module, "MAX_BATCH_MESSAGES", 3)
    real, batches = EventsPublisher._publish, 0

    async def publish_twice(self: EventsPublisher, *arguments: object) -> None:
        nonlocal batches
        batches += 1
        if batches > 2:
            raise ConnectionAbortedError
        await real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(EventsPublisher, "_publish", publish_twice)
    with pytest.raises(ConnectionAbortedError):
        await EventsPublisher(connection, subjects, JetStreamLog(connection, subjects)).run()
    monkeypatch.undo()
    assert [message.id for message in await _published(connection, subjects, 6)][-1] == "2.4"
    async with _publishing(connection, subjects):
        found = await _published(connection, subjects, 11)
    assert [message.id for message in found] == ["1.0", *(f"2.{index}" for index in range(10))]


async def test_two_publishers_at_once_publish_each_event_once(
    connection: Connection, subjects: Subjects, writer: LogWriter, nats_url: str
) -> None:
    other = await connect(nats_url, "other")
    async with _publishing(connection, subjects), _publishing(other, subjects):
        for number in range(300):
            await _append(writer, _closed(number))
        await _published(connection, subjects, 301)
    found = await _published(connection, subjects, 301)
    assert [message.id for message in found] == [f"{number}.0" for number in range(1, 302)]
    await other.close()


@pytest.mark.parametrize("size", [1, 2])
async def test_a_batch_that_comes_too_late_is_refused_as_a_whole(
    connection: Connection, subjects: Subjects, writer: LogWriter, size: int
) -> None:
    async with _publishing(connection, subjects):
        await _published(connection, subjects, 1)
    late = [
        Derived(
            subject=subjects.event("task_group", str(number), "task_group_closed"),
            body=b"{}",
            headers={"Nats-Msg-Id": f"9.{number}"},
        )
        for number in range(size)
    ]
    publisher = EventsPublisher(connection, subjects, JetStreamLog(connection, subjects))
    with pytest.raises(PenstockError):
        await publisher._publish(late, 0)
    assert (await stream_info(connection, subjects.events_stream)).state.last_seq == 1


async def test_killing_publishers_loses_and_repeats_nothing(
    connection: Connection, subjects: Subjects, writer: LogWriter, nats_url: str
) -> None:
    chance = random.Random(7)
    command = [sys.executable, "-c", PUBLISHER, nats_url, subjects.prefix]
    number = 0
    for _ in range(4):
        publishers = [await asyncio.create_subprocess_exec(*command) for _ in range(2)]
        try:
            before = (await stream_info(connection, subjects.events_stream)).state.last_seq
            await _append(writer, *(_closed(number + i) for i in range(400)))
            number += 400
            # Let them begin, then strike at some moment of their work.
            await _published(connection, subjects, before + 1)
            for _ in range(chance.randint(1, 40)):
                await _append(writer, *(_closed(number + i) for i in range(20)))
                number += 20
        finally:
            for publisher in publishers:
                publisher.kill()
                await publisher.wait()
    async with _publishing(connection, subjects):
        found = await _published(connection, subjects, number + 1)
    assert [message.event.get("task_group_id") for message in found[1:]] == list(range(number))
    info = await stream_info(connection, subjects.events_stream)
    assert info.state.last_seq == number + 1


async def _all_forgotten(connection: Connection, subjects: Subjects) -> None:
    for pause in backoff(0.05, 0.05):
        if not (await stream_info(connection, subjects.events_stream)).state.messages:
            return
        await asyncio.sleep(pause)


async def test_when_all_was_forgotten_only_what_is_younger_is_published(
    nats_url: str, subjects: Subjects
) -> None:
    connection = await connect(nats_url, "test")
    await ensure_streams(connection, subjects, events_max_age_seconds=1)
    writer = await JetStreamLog(connection, subjects).elect("a", "", START, NOW)
    async with _publishing(connection, subjects):
        for number in range(5):
            await _append(writer, _closed(number))
        await _published(connection, subjects, 6)
    async with asyncio.timeout(10):
        await _all_forgotten(connection, subjects)
    async with _publishing(connection, subjects):
        await _append(writer, _closed(5))
        [found] = await _published(connection, subjects, 1)
    assert found.id == "7.0"
    await connection.close()


async def test_events_of_another_history_stop_the_publisher(
    connection: Connection, subjects: Subjects, writer: LogWriter
) -> None:
    await _append(writer, _closed(1))
    foreign = {"Penstock-Log-Sequence": "2", "Penstock-Log-Index": "0", "Penstock-Hash": "0" * 32}
    subject = subjects.event("task_group", "1", "task_group_closed")
    await publish(connection, subject, b"{}", foreign)
    publisher = EventsPublisher(connection, subjects, JetStreamLog(connection, subjects))
    with pytest.raises(Corrupt):
        await publisher.run()


def test_names_stay_apart_in_subjects() -> None:
    names = ["a.b", "a_b", "a b", "a*", "a>", "=", "", "a=2E=b", "ä"]
    safe_names = [safe(name) for name in names]
    assert len(set(safe_names)) == len(names)
    assert all(name and not set(name) & set(". *>\t") for name in safe_names)
