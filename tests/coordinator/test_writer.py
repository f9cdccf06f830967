"""The writer: group commit, answers after the commit, nothing after the role is lost."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.clock import ManualClock
from penstock.coordinator.commands import CreateTaskGroup, Initialise
from penstock.coordinator.writer import Callbacks, Committed, Writer
from penstock.errors import Conflict, Deposed, LogFull, NotLeader
from penstock.events import START, AnyEvent, decode
from penstock.events.memory import MemoryLog, MemoryStorage
from penstock.projections import State, apply

pytestmark = pytest.mark.anyio


class Desk:
    """Records what the writer tells after a commit."""

    def __init__(self) -> None:
        self.told: list[list[AnyEvent]] = []
        self.lease_holds = True

    def callbacks(self) -> Callbacks:
        async def committed(events: list[AnyEvent]) -> None:
            self.told.append(events)

        return Callbacks(
            capacities=dict,
            decided=lambda event, sequence, index: None,
            committed=committed,
            rested=lambda: None,
            may_lead=lambda: self.lease_holds,
        )


async def lead(log: MemoryLog, desk: Desk) -> Writer:
    log_writer = await log.elect("one", "", START, 1)
    state = State()
    apply(state, decode(await log.read(1), 1), 1)
    writer = Writer(log_writer, state, ManualClock(10), desk.callbacks())
    writer.submit(Initialise(actor="test"), lambda outcome: None)
    await writer.step()
    desk.told.clear()
    return writer


async def grown(log: MemoryLog, sequence: int) -> None:
    """Wait until the log has come so far."""
    async with asyncio.timeout(5):
        async for entry in log.follow(START):
            if entry.position.sequence >= sequence:
                return


def create(name: str) -> CreateTaskGroup:
    return CreateTaskGroup(actor="test", name=name)


async def test_commands_that_wait_together_are_one_commit() -> None:
    log, desk = MemoryLog(), Desk()
    writer = await lead(log, desk)
    outcomes: list[Any] = []
    for name in ("a", "b", "a"):
        writer.submit(create(name), outcomes.append)
    assert outcomes == []
    await writer.step()
    assert await log.end() == 3
    assert [outcome.sequence for outcome in outcomes[:2]] == [3, 3]
    assert isinstance(outcomes[2], Conflict)
    assert len(desk.told) == 1


async def test_a_round_without_events_commits_nothing() -> None:
    log, desk = MemoryLog(), Desk()
    writer = await lead(log, desk)
    await writer.step()
    assert await log.end() == 2
    assert desk.told == []


async def test_a_deposed_writer_answers_nobody_with_success_and_tells_nobody() -> None:
    log, desk = MemoryLog(), Desk()
    writer = await lead(log, desk)
    other = log.reopen()
    position = START
    async for entry in other.follow(START):
        position = entry.position
        if position.sequence == 2:
            break
    await other.elect("two", "", position, 2)
    outcomes: list[Any] = []
    writer.submit(create("a"), outcomes.append)
    with pytest.raises(Deposed):
        await asyncio.wait_for(writer.run(), 5)
    writer.submit(create("b"), outcomes.append)
    assert [type(outcome) for outcome in outcomes] == [NotLeader, NotLeader]
    assert desk.told == []


async def test_a_full_log_is_told_and_the_commit_is_made_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.coordinator.writer.FULL_RETRY_SECONDS", 0.001)
    storage = MemoryStorage()
    log, desk = MemoryLog(storage), Desk()
    writer = await lead(log, desk)
    storage.capacity_bytes = 1
    refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    writer.submit(create("a"), refused.set_result)
    running = asyncio.create_task(writer.run())
    assert isinstance(await asyncio.wait_for(refused, 5), LogFull)
    with pytest.raises(LogFull):
        await writer.ask(create("b"))
    storage.capacity_bytes = None
    await grown(log, 3)
    writer.stop()
    await asyncio.wait_for(running, 5)
    assert "default/a" in writer.state.names
    assert len(desk.told) == 1


async def test_those_who_wait_when_the_log_becomes_full_are_told_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.coordinator.writer.FULL_RETRY_SECONDS", 0.001)
    storage = MemoryStorage()
    log, desk = MemoryLog(storage), Desk()
    writer = await lead(log, desk)
    storage.capacity_bytes = 1
    outcomes: list[Any] = []
    late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def first(outcome: Any) -> None:
        # Before anyone can know: the commit has just been refused.
        outcomes.append(outcome)
        writer.submit(create("b"), late.set_result)

    writer.submit(create("a"), first)
    running = asyncio.create_task(writer.run())
    assert isinstance(await asyncio.wait_for(late, 5), LogFull)
    storage.capacity_bytes = None
    await grown(log, 4)
    writer.stop()
    await asyncio.wait_for(running, 5)
    assert {"default/a", "default/b"} <= set(writer.state.names)
    assert [type(outcome) for outcome in outcomes] == [LogFull]


async def test_stopping_lets_the_commit_under_way_end() -> None:
    log, desk = MemoryLog(), Desk()
    writer = await lead(log, desk)
    outcomes: list[Any] = []
    writer.submit(create("a"), outcomes.append)
    running = asyncio.create_task(writer.run())
    await asyncio.sleep(0)
    writer.stop()
    await asyncio.wait_for(running, 5)
    assert outcomes == [Committed(2, 3)]


async def test_a_writer_whose_lease_has_lapsed_decides_nothing() -> None:
    log, desk = MemoryLog(), Desk()
    writer = await lead(log, desk)
    outcomes: list[Any] = []
    writer.submit(create("a"), outcomes.append)
    desk.lease_holds = False
    with pytest.raises(Deposed):
        await asyncio.wait_for(writer.run(), 5)
    assert [type(outcome) for outcome in outcomes] == [NotLeader]
    assert await log.end() == 2


async def test_callers_are_answered_when_the_role_is_lost_after_the_commit() -> None:
    log, desk = MemoryLog(), Desk()
    writer = await lead(log, desk)
    delivering = asyncio.Event()

    async def never(events: list[AnyEvent]) -> None:
        delivering.set()
        await asyncio.Event().wait()

    writer._callbacks = msgspec.structs.replace(desk.callbacks(), committed=never)
    outcomes: list[Any] = []
    writer.submit(create("a"), outcomes.append)
    running = asyncio.create_task(writer.run())
    await asyncio.wait_for(delivering.wait(), 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotLeader]
