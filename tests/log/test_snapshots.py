"""Snapshots: whole ones are found, damaged ones are passed over, old ones go."""

import os

import pytest
from tests.log.commits import NOW

from penstock.errors import LogFull
from penstock.events import SECOND, Position, Subjects
from penstock.events.connection import Connection
from penstock.events.jetstream_api import Answer, StreamAnswer, ask, publish, stream_info
from penstock.events.snapshots import CHUNK_BYTES, KEPT, Manifest, SnapshotStore

pytestmark = pytest.mark.anyio

BIG = os.urandom(2 * CHUNK_BYTES + 17)


def _position(sequence: int) -> Position:
    return Position(sequence=sequence, counter=sequence, hash=f"{sequence:032x}")


@pytest.fixture
def store(connection: Connection, subjects: Subjects) -> SnapshotStore:
    return SnapshotStore(connection, subjects)


async def _chunks(connection: Connection, subjects: Subjects) -> set[str]:
    """The ids of snapshots that have chunks."""
    info = await stream_info(connection, subjects.snapshots_stream, subjects.snapshots)
    return {name.split(".")[-2] for name in info.state.subjects if ".chunk." in name}


async def test_there_may_be_no_snapshot(store: SnapshotStore) -> None:
    assert await store.newest(1) is None


@pytest.mark.parametrize("body", [b"", b"small", BIG])
async def test_a_snapshot_is_read_as_it_was_written(store: SnapshotStore, body: bytes) -> None:
    await store.write(body, _position(7), 3, NOW)
    snapshot = await store.newest(3)
    assert snapshot is not None
    assert snapshot.body == body
    assert snapshot.manifest.position == _position(7)
    assert snapshot.manifest.at == NOW


async def test_the_newest_of_the_wanted_fold_version_is_read(store: SnapshotStore) -> None:
    await store.write(b"at 9", _position(9), 1, NOW + 1)
    await store.write(b"at 5", _position(5), 1, NOW + 2)
    await store.write(b"other", _position(20), 2, NOW + 3)
    snapshot = await store.newest(1)
    assert snapshot is not None
    assert snapshot.body == b"at 9"
    assert await store.newest(3) is None


async def _lose_a_chunk(connection: Connection, subjects: Subjects, damaged: Manifest) -> None:
    subject = subjects.snapshot_chunk(damaged.id, 1)
    stream = subjects.snapshots_stream
    await ask(connection, f"STREAM.PURGE.{stream}", {"filter": subject}, Answer)


async def _change_a_chunk(connection: Connection, subjects: Subjects, damaged: Manifest) -> None:
    await _lose_a_chunk(connection, subjects, damaged)
    subject = subjects.snapshot_chunk(damaged.id, 1)
    await publish(connection, subject, os.urandom(CHUNK_BYTES), {})


@pytest.mark.parametrize("damage", [_lose_a_chunk, _change_a_chunk])
async def test_a_damaged_snapshot_is_passed_over_for_an_older_one(
    store: SnapshotStore, connection: Connection, subjects: Subjects, damage: object
) -> None:
    await store.write(b"older", _position(5), 1, NOW)
    newer = await store.write(BIG, _position(9), 1, NOW + 1)
    assert callable(damage)
    await damage(connection, subjects, newer)
    snapshot = await store.newest(1)
    assert snapshot is not None
    assert snapshot.body == b"older"


async def test_a_snapshot_without_its_manifest_does_not_count_and_goes_in_the_end(
    store: SnapshotStore, connection: Connection, subjects: Subjects
) -> None:
    await publish(connection, subjects.snapshot_chunk(f"{NOW}-dead", 0), b"partial", {})
    assert await store.newest(1) is None
    soon = await store.write(b"soon", _position(1), 1, NOW + SECOND)
    assert f"{NOW}-dead" not in await _chunks(connection, subjects)
    fresh = f"{NOW + 2 * SECOND}-busy"
    await publish(connection, subjects.snapshot_chunk(fresh, 0), b"under way", {})
    later = await store.write(b"later", _position(2), 1, NOW + 3 * SECOND)
    assert await _chunks(connection, subjects) == {soon.id, fresh, later.id}
    last = await store.write(b"last", _position(3), 1, NOW + 7200 * SECOND)
    assert await _chunks(connection, subjects) == {soon.id, later.id, last.id}


async def test_only_the_last_few_are_kept(
    store: SnapshotStore, connection: Connection, subjects: Subjects
) -> None:
    written = [
        await store.write(b"%d" % number, _position(number), 1, NOW + number)
        for number in range(KEPT + 3)
    ]
    kept = [manifest.id for manifest in written[-KEPT:]]
    assert [manifest.id for manifest in await store.manifests()] == kept
    assert await _chunks(connection, subjects) == set(kept)


async def test_a_snapshot_that_finds_no_room_leaves_the_others_alone(
    store: SnapshotStore, connection: Connection, subjects: Subjects
) -> None:
    await store.write(b"older", _position(5), 1, NOW)
    stream = subjects.snapshots_stream
    config = (await stream_info(connection, stream)).config
    await ask(
        connection, f"STREAM.UPDATE.{stream}", config | {"max_bytes": CHUNK_BYTES * 2}, StreamAnswer
    )
    with pytest.raises(LogFull):
        await store.write(BIG, _position(9), 1, NOW + 1)
    snapshot = await store.newest(1)
    assert snapshot is not None
    assert snapshot.body == b"older"
    assert len(await _chunks(connection, subjects)) == 1
