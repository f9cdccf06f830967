"""The log in memory: its faults are real ones, and what the contract promises survives them."""

import asyncio

import pytest
from tests.log.commits import NOW, append, body, names, next_of, read_to
from tests.log.conftest import DISTURBED

from penstock.errors import Conflict, Corrupt, Deposed
from penstock.events import START
from penstock.events.memory import Faults, MemoryLog

pytestmark = pytest.mark.anyio


class Crashed(Exception):
    pass


async def test_a_lost_answer_costs_a_second_look_and_no_second_commit() -> None:
    log = MemoryLog(faults=Faults(lost_answer=1.0))
    writer = await log.elect("a", "", START, NOW)
    await append(writer, "m1", "m2")
    assert names(await read_to(log, 3, START)) == ["[a]", "m1", "m2"]
    assert log.appends == 3


async def test_a_lost_offer_is_made_again() -> None:
    log = MemoryLog(faults=Faults(lost_offer=0.5), seed=1)
    writer = await log.elect("a", "", START, NOW)
    await append(writer, *(f"m{i}" for i in range(20)))
    assert await log.end() == 21
    assert log.appends > 21


async def _lead(log: MemoryLog, node: str, acknowledged: dict[str, int]) -> None:
    """Be elected again and again, and append a little in each term."""
    for term in range(4):
        entries = await read_to(log, await log.end(), START)
        try:
            after = entries[-1].position if entries else START
            writer = await log.elect(node, "", after, NOW)
            for number in range(4):
                name = f"{node}.{term}.{number}"
                [position] = await append(writer, name)
                acknowledged[name] = position.sequence
        except (Conflict, Deposed):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(60))
async def test_rivals_on_a_bad_line_lose_nothing_that_was_acknowledged(seed: int) -> None:
    first = MemoryLog(faults=DISTURBED, seed=seed)
    acknowledged: dict[str, int] = {}
    await asyncio.gather(
        _lead(first, "a", acknowledged),
        _lead(first.reopen(faults=DISTURBED, seed=seed + 1000), "b", acknowledged),
        _lead(first.reopen(faults=DISTURBED, seed=seed + 2000), "c", acknowledged),
    )
    entries = await read_to(first, await first.end(), START)
    stored = {name: entry.position.sequence for entry in entries for name in names([entry])}
    commits = [name for name in names(entries) if not name.startswith("[")]
    assert len(set(commits)) == len(commits)
    # A commit that was not acknowledged may be there as well.
    assert {name: stored.get(name) for name in acknowledged} == acknowledged


@pytest.mark.parametrize(("when", "expected"), [("before", ["[a]"]), ("after", ["[a]", "m1"])])
async def test_a_crash_point_lies_before_or_after_the_commit_is_stored(
    when: str, expected: list[str]
) -> None:
    log = MemoryLog()
    writer = await log.elect("a", "", START, NOW)
    log.crash("before" if when == "before" else "after", Crashed())
    with pytest.raises(Crashed):
        await append(writer, "m1")
    restarted = log.reopen()
    assert names(await read_to(restarted, await restarted.end(), START)) == expected


async def test_after_a_crash_in_an_append_the_writer_cannot_be_used_further() -> None:
    log = MemoryLog()
    writer = await log.elect("a", "", START, NOW)
    log.crash("after", Crashed(), appends=2)
    await append(writer, "m1")
    with pytest.raises(Crashed):
        await append(writer, "m2")
    with pytest.raises(Deposed):
        await append(writer, "m3")


async def test_damage_and_loss_are_noticed_by_readers() -> None:
    log = MemoryLog()
    writer = await log.elect("a", "", START, NOW)
    positions = await append(writer, "m1", "m2", "m3")
    log.storage.damage(3, body(writer, "other", after=positions[0]))
    with pytest.raises(Corrupt):
        await read_to(log, 4, START)
    with pytest.raises(Corrupt):
        await log.read(3)
    log.storage.cut_off(2)
    with pytest.raises(Corrupt):
        await next_of(log.follow(positions[-1]))
    with pytest.raises(Corrupt):
        await append(writer, "m4")
