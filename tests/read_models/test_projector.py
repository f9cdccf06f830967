"""The projector: follows, one at a time, survives Postgres, stops when the log does not fit."""

import asyncio
from collections.abc import Callable

import pytest
from tests.read_models.running import LIMIT_SECONDS, projecting
from tests.read_models.story import Story, dump, fill

from penstock.errors import Conflict, Corrupt, Unavailable
from penstock.events import encode
from penstock.events.append import Offer
from penstock.projections.read_models import Projection, Projector, ReadModel, prepare
from penstock.projections.read_models.database import Connection, connect
from penstock.projections.read_models.tables import SCHEMA
from penstock.up.postgres import PostgresServer

pytestmark = pytest.mark.anyio


async def test_a_projector_follows_the_log_and_readers_can_wait_for_a_sequence(
    story: Story, database_url: str
) -> None:
    fill(story)
    async with projecting(Projector(story.log, database_url)), ReadModel(database_url) as reader:
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        later = asyncio.create_task(reader.wait_for(len(story.entries) + 1, LIMIT_SECONDS))
        story.commit(story.ended("failed", 10))
        await later
        task = await reader.task(10)
        assert task is not None
        assert task.state == "failed"
        assert reader.position_seen == await reader.position() == len(story.entries)
        with pytest.raises(Unavailable):
            await reader.wait_for(len(story.entries) + 1, 0.01)


async def test_a_projector_that_ended_is_continued_where_it_was(
    story: Story, database_url: str
) -> None:
    fill(story, 3)
    for _ in range(3):
        async with (
            projecting(Projector(story.log, database_url)),
            ReadModel(database_url) as reader,
        ):
            await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        story.commit(story.submitted(1))
    connection = await connect(database_url, SCHEMA)
    projection = await Projection.load(connection)
    assert projection.position == story.entries[-2].position
    rows = await dump(connection)
    assert len(rows["archived_tasks"]) == 27
    await connection.close()


async def test_of_two_projectors_one_is_active_and_the_other_takes_over(
    story: Story, database_url: str
) -> None:
    fill(story, 2)
    first, second = Projector(story.log, database_url), Projector(story.log, database_url)
    async with ReadModel(database_url) as reader, asyncio.timeout(LIMIT_SECONDS):
        async with projecting(first):
            await first.active.wait()
            standing_by = asyncio.create_task(second.run())
            await reader.wait_for(len(story.entries), LIMIT_SECONDS)
            story.commit(story.submitted(1))
            await reader.wait_for(len(story.entries), LIMIT_SECONDS)
            assert not second.active.is_set()
        await second.active.wait()
        story.commit(story.submitted(1))
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        assert not standing_by.done()
        standing_by.cancel()
        await asyncio.gather(standing_by, return_exceptions=True)


async def test_a_second_writer_changes_nothing_and_is_told(
    story: Story, projection: Projection, connection: Connection
) -> None:
    fill(story, 1)
    other = await Projection.load(connection)
    await projection.apply(story.entries)
    rows = await dump(connection)
    with pytest.raises(Conflict):
        await other.apply(story.entries[:1])
    assert await dump(connection) == rows


async def test_a_batch_that_fails_leaves_nothing_behind(
    story: Story, projection: Projection, connection: Connection
) -> None:
    fill(story, 1)
    await projection.apply(story.entries[:2])
    rows = await dump(connection)
    await connection.execute("ALTER TABLE archived_tasks ADD CONSTRAINT none CHECK (id < 0)")
    with pytest.raises(Exception, match="violates check constraint"):
        await projection.apply(story.entries[2:])
    await connection.execute("ALTER TABLE archived_tasks DROP CONSTRAINT none")
    assert await dump(connection) == rows
    again = await Projection.load(connection)
    await again.apply(story.entries[2:])
    assert len((await dump(connection))["archived_tasks"]) == 9


def cut_off(story: Story) -> None:
    story.log.storage.cut_off(2)


def change(story: Story) -> None:
    story.log.storage.damage(len(story.entries), b"{}")


def replace(story: Story) -> None:
    """Another log with as many commits."""
    other = Story()
    other.now += 1
    fill(other, 2)
    story.log = other.log


def leave_out(story: Story) -> None:
    """The next commit is gone, and the one behind it stands in its place."""
    other = Story()
    fill(other, 2)
    other.commit(other.submitted(1))
    missed = other.commit(other.submitted(1))
    body = encode(missed.commit)
    place = len(story.entries) + 1
    offer = Offer(body=body, hash=missed.position.hash, place=place, epoch=0)
    assert story.log.storage.take(offer) is None


@pytest.mark.parametrize("harm", [cut_off, change, replace, leave_out])
async def test_a_log_that_does_not_fit_the_position_stops_the_projector(
    story: Story, database_url: str, harm: Callable[[Story], None]
) -> None:
    fill(story, 2)
    async with projecting(Projector(story.log, database_url)), ReadModel(database_url) as reader:
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
    if harm is change:
        story.commit(story.submitted(1))
    harm(story)
    with pytest.raises(Corrupt):
        async with asyncio.timeout(LIMIT_SECONDS):
            await Projector(story.log, database_url).run()


async def test_a_projector_outlives_a_crash_of_postgres(
    story: Story, own_postgres: PostgresServer
) -> None:
    fill(story, 5)
    url = own_postgres.dsn
    async with projecting(Projector(story.log, url)) as running, ReadModel(url) as reader:
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        await own_postgres.kill()
        story.commit(story.submitted(5))
        with pytest.raises(Unavailable):
            await reader.task(1)
        await own_postgres.start()
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        group = await reader.task_group(1)
        assert group is not None
        assert (group.counts.succeeded, group.counts.ready) == (45, 5)
        assert not running.done()


async def test_a_projector_that_starts_before_postgres_waits_for_it(
    story: Story, own_postgres: PostgresServer
) -> None:
    fill(story, 1)
    await own_postgres.stop()
    url = own_postgres.dsn
    async with projecting(Projector(story.log, url)), ReadModel(url) as reader:
        with pytest.raises(Unavailable):
            await reader.position()
        await own_postgres.start()
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)


async def test_a_newer_read_model_is_not_written_by_an_older_program(
    story: Story, database_url: str
) -> None:
    await prepare(database_url, SCHEMA)
    connection = await connect(database_url, SCHEMA)
    await connection.execute("UPDATE position SET version = version + 1")
    with pytest.raises(Exception, match="version"):
        await Projection.load(connection)
    await connection.close()
