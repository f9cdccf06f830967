"""Rebuilding beside the read model in use, and proving it."""

import asyncio

import pytest
from tests.read_models.running import LIMIT_SECONDS, projecting
from tests.read_models.story import Story, dump, fill
from tests.read_models.world import World

from penstock.errors import Conflict
from penstock.projections.read_models import (
    Projection,
    Projector,
    ReadModel,
    rebuild,
    status,
    verify,
)
from penstock.projections.read_models.database import Connection, connect
from penstock.projections.read_models.rebuild import BUILD_SCHEMA
from penstock.projections.read_models.tables import SCHEMA, VERSION

pytestmark = pytest.mark.anyio


async def schemas(connection: Connection) -> set[str]:
    rows = await connection.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'penstock%'")
    return {row["nspname"] for row in rows}


async def test_a_rebuild_equals_the_live_read_model(
    projection: Projection, connection: Connection, database_url: str
) -> None:
    world = World()
    world.play([(kind, 7 * kind + 3 * turn, turn % 9) for turn in range(8) for kind in range(11)])
    story = world.story
    for entry in story.entries:
        await projection.apply([entry])
    live = await dump(connection)
    seen: list[tuple[int, int]] = []
    built = await rebuild(story.log, database_url, lambda reached, aim: seen.append((reached, aim)))
    assert await dump(connection) == live
    assert built.position == story.entries[-1].position
    assert built.build != projection.build
    assert seen[0][0] == 0
    assert seen[-1] == (len(story.entries), len(story.entries))
    assert await schemas(connection) == {SCHEMA}
    assert await verify(story.log, database_url) == []


async def test_an_active_projector_and_readers_go_on_over_a_rebuild(
    story: Story, database_url: str
) -> None:
    fill(story)
    async with (
        projecting(Projector(story.log, database_url)) as running,
        ReadModel(database_url) as reader,
    ):
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        for round_number in range(3):
            await rebuild(story.log, database_url)
            task = await reader.task(1)
            assert task is not None
            assert task.state == "succeeded"
            story.commit(story.ended("succeeded", 10 * (round_number + 1)))
            await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        group = await reader.task_group(1)
        assert group is not None
        assert group.counts.succeeded == 183
        assert not running.done()
        assert await verify(story.log, database_url) == []


async def test_a_rebuild_under_load_loses_nothing(story: Story, database_url: str) -> None:
    fill(story)

    async def go_on() -> None:
        for _ in range(200):
            first = story.next_task_id
            story.commit(story.submitted(3))
            story.commit(story.cancelled() if first % 7 == 0 else story.created(first))
            await asyncio.sleep(0.002)

    async with projecting(Projector(story.log, database_url)), ReadModel(database_url) as reader:
        await reader.wait_for(1, LIMIT_SECONDS)
        loading = asyncio.create_task(go_on())
        await rebuild(story.log, database_url)
        await loading
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        assert await verify(story.log, database_url) == []


async def test_verify_notices_a_manipulated_row(
    story: Story, projection: Projection, connection: Connection, database_url: str
) -> None:
    fill(story, 3)
    await projection.apply(story.entries)
    assert await verify(story.log, database_url) == []
    await connection.execute("UPDATE archived_tasks SET state = 5 WHERE id = 4")
    await connection.execute("DELETE FROM archived_tasks WHERE id = 5")
    await connection.execute("INSERT INTO archived_tasks SELECT * FROM archived_tasks WHERE id = 6")
    await connection.execute("UPDATE task_groups SET succeeded = succeeded + 1")
    found = await verify(story.log, database_url)
    kinds = sorted((difference.table, difference.kind) for difference in found)
    assert kinds == [
        ("archived_tasks", "missing"),
        ("archived_tasks", "missing"),
        ("archived_tasks", "unexpected"),
        ("archived_tasks", "unexpected"),
        ("task_groups", "missing"),
        ("task_groups", "unexpected"),
    ]
    assert await schemas(connection) == {SCHEMA}


async def test_a_rebuild_repairs_a_read_model(
    story: Story, projection: Projection, connection: Connection, database_url: str
) -> None:
    fill(story, 3)
    await projection.apply(story.entries)
    await connection.execute("DELETE FROM archived_tasks")
    await rebuild(story.log, database_url)
    assert await verify(story.log, database_url) == []


async def test_only_one_rebuild_runs_at_a_time(
    story: Story, connection: Connection, database_url: str
) -> None:
    fill(story, 1)
    holder = await connect(database_url, SCHEMA)
    await holder.execute(
        "SELECT pg_advisory_lock(hashtextextended('penstock scratch ' || $1, 0))", BUILD_SCHEMA
    )
    with pytest.raises(Conflict):
        await rebuild(story.log, database_url)
    await holder.close()
    await rebuild(story.log, database_url)


async def test_an_older_version_is_replaced_by_the_projector(
    story: Story, projection: Projection, connection: Connection, database_url: str
) -> None:
    fill(story, 2)
    await projection.apply(story.entries)
    await connection.execute("UPDATE position SET version = 0")
    await connection.execute("DELETE FROM archived_tasks")
    before = await status(story.log, database_url)
    assert (before.version, before.wanted_version, before.behind) == (0, VERSION, 0)
    async with projecting(Projector(story.log, database_url)), ReadModel(database_url) as reader:
        story.commit(story.submitted(1))
        await reader.wait_for(len(story.entries), LIMIT_SECONDS)
        after = await status(story.log, database_url)
        assert (after.version, after.projectors, after.building) == (VERSION, 2, False)
        assert await verify(story.log, database_url) == []
