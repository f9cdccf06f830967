"""What every log promises, whatever it is kept in."""

import asyncio

import pytest
from tests.log.commits import NOW, append, body, names, next_of, read_to
from tests.log.conftest import MemoryPlace, Place

from penstock.errors import Conflict, Corrupt, Deposed, Invalid, LogFull, NotFound
from penstock.events import MAX_COMMIT_BYTES, START, LogWriter, Position, decode

pytestmark = pytest.mark.anyio


async def test_an_empty_log_ends_at_zero_and_holds_nothing(place: Place) -> None:
    log = await place.open()
    assert await log.end() == 0
    for sequence in (0, 1):
        with pytest.raises(NotFound):
            await log.read(sequence)


async def test_an_election_is_a_commit_and_its_sequence_is_the_epoch(place: Place) -> None:
    log = await place.open()
    first = await log.elect("a", "http://a", START, NOW)
    await append(first, "m1")
    second = await (await place.open()).elect("b", "http://b", first.position, NOW)
    assert (first.epoch, second.epoch) == (1, 3)
    assert names(await read_to(log, 3, START)) == ["[a]", "m1", "[b]"]


async def test_what_was_appended_is_read_in_order_with_the_same_positions(place: Place) -> None:
    writer = await (await place.open()).elect("a", "", START, NOW)
    positions = await append(writer, "m1", "m2", "m3")
    reader = await place.open()
    entries = await read_to(reader, 4, START)
    assert names(entries) == ["[a]", "m1", "m2", "m3"]
    assert [entry.position for entry in entries[1:]] == positions
    assert await reader.end() == 4
    stored = await reader.read(3)
    assert decode(stored, 3) == entries[2].commit
    assert len(stored) == entries[2].size


async def test_a_follower_may_begin_in_the_middle(place: Place) -> None:
    writer = await (await place.open()).elect("a", "", START, NOW)
    positions = await append(writer, "m1", "m2", "m3")
    assert names(await read_to(await place.open(), 4, positions[0])) == ["m2", "m3"]


async def test_a_follower_gets_what_is_appended_while_it_waits(place: Place) -> None:
    writer = await (await place.open()).elect("a", "", START, NOW)
    following = (await place.open()).follow(writer.position)
    for name in ("m1", "m2", "m3"):
        waiting = asyncio.ensure_future(next_of(following))
        await append(writer, name)
        async with asyncio.timeout(10):
            assert names([await waiting]) == [name]
    await following.aclose()  # type: ignore[attr-defined]


async def test_a_candidate_that_has_not_read_to_the_end_is_refused(place: Place) -> None:
    writer = await (await place.open()).elect("a", "", START, NOW)
    positions = await append(writer, "m1", "m2")
    with pytest.raises(Conflict):
        await (await place.open()).elect("b", "", positions[0], NOW)
    await append(writer, "m3")
    assert await (await place.open()).end() == 4


async def test_of_many_candidates_one_wins(place: Place) -> None:
    logs = [await place.open() for _ in range(4)]
    elections = await asyncio.gather(
        *(log.elect(f"c{i}", "", START, NOW) for i, log in enumerate(logs)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in elections)[:3] == ["Conflict"] * 3
    [writer] = [outcome for outcome in elections if not isinstance(outcome, BaseException)]
    await append(writer, "m1")
    assert await logs[0].end() == 2


async def test_a_replaced_writer_can_never_append_again(place: Place) -> None:
    old = await (await place.open()).elect("old", "", START, NOW)
    await append(old, "m1")
    new = await (await place.open()).elect("new", "", old.position, NOW)
    for _ in range(2):
        with pytest.raises(Deposed):
            await append(old, "zombie")
    await append(new, "m2")
    with pytest.raises(Deposed):
        await append(old, "zombie")
    assert names(await read_to(await place.open(), 4, START)) == ["[old]", "m1", "[new]", "m2"]


async def test_a_writer_and_its_replacement_never_both_append_at_one_place(place: Place) -> None:
    old = await (await place.open()).elect("old", "", START, NOW)
    await append(old, "m1")
    last = old.position
    usurper = await place.open()
    election = usurper.elect("new", "", last, NOW)
    outcomes = await asyncio.gather(append(old, "m2"), election, return_exceptions=True)
    failed = [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
    assert failed in ([Deposed], [Conflict])
    expected = ["[old]", "m1", "[new]" if failed == [Deposed] else "m2"]
    assert names(await read_to(await place.open(), 3, START)) == expected


async def test_a_reader_that_has_seen_more_than_the_log_holds_stops(place: Place) -> None:
    log = await place.open()
    await log.elect("a", "", START, NOW)
    with pytest.raises(Corrupt):
        await next_of(log.follow(Position(sequence=9, counter=9, hash="0" * 32)))


async def test_a_reader_that_has_seen_another_commit_there_stops(place: Place) -> None:
    log = await place.open()
    writer = await log.elect("a", "", START, NOW)
    await append(writer, "m1")
    elsewhere = Position(sequence=1, counter=1, hash="0" * 32)
    with pytest.raises(Corrupt):
        await next_of(log.follow(elsewhere))
    with pytest.raises(Corrupt):
        await log.elect("b", "", elsewhere, NOW)


async def test_a_commit_that_does_not_name_the_one_before_it_stops_the_reader(
    place: Place,
) -> None:
    log = await place.open()
    writer = await log.elect("a", "", START, NOW)
    await append(writer, "m1")
    await writer.append(body(writer, "m2", after=Position(sequence=2, counter=2, hash="0" * 32)))
    following = log.follow(START)
    assert names([await next_of(following), await next_of(following)]) == ["[a]", "m1"]
    with pytest.raises(Corrupt):
        await next_of(following)


async def test_a_commit_that_is_too_large_is_refused_and_the_writer_goes_on(place: Place) -> None:
    writer = await (await place.open()).elect("a", "", START, NOW)
    with pytest.raises(Invalid):
        await writer.append(body(writer, "x" * MAX_COMMIT_BYTES))
    [position] = await append(writer, "x" * (MAX_COMMIT_BYTES - 1000))
    assert len(await (await place.open()).read(position.sequence)) > MAX_COMMIT_BYTES - 1000


async def _refused_for_want_of_room(writer: LogWriter, commit: bytes) -> None:
    before = writer.position
    with pytest.raises(LogFull):
        await writer.append(commit)
    assert writer.position == before


async def test_a_full_log_refuses_and_goes_on_when_there_is_room(place: Place) -> None:
    log = await place.open()
    writer = await log.elect("a", "", START, NOW)
    await append(writer, "m1")
    await place.fill()
    refused = body(writer, "m2")
    await _refused_for_want_of_room(writer, refused)
    await _refused_for_want_of_room(writer, refused)
    assert await log.end() == 2
    await place.make_room()
    await writer.append(refused)
    await append(writer, "m3")
    assert names(await read_to(log, 4, START)) == ["[a]", "m1", "m2", "m3"]


async def test_what_a_full_log_refused_can_be_given_up_for_something_else(place: Place) -> None:
    log = await place.open()
    writer = await log.elect("a", "", START, NOW)
    await place.fill()
    await _refused_for_want_of_room(writer, body(writer, "given up"))
    await place.make_room()
    try:
        await append(writer, "m1")
        expected = ["[a]", "m1"]
    except Deposed:
        # Only a line that delivers late does this.
        assert isinstance(place, MemoryPlace)
        expected = ["[a]", "given up"]
    assert names(await read_to(log, 2, START)) == expected


async def test_nobody_is_elected_on_a_full_log(place: Place) -> None:
    log = await place.open()
    writer = await log.elect("a", "", START, NOW)
    await place.fill()
    with pytest.raises(LogFull):
        await log.elect("b", "", writer.position, NOW)
    await place.make_room()
    assert (await log.elect("b", "", writer.position, NOW)).epoch == 2
