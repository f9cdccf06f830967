"""Random legal logs: every way to cut them into batches gives the same rows, and the right ones."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.read_models.story import dump
from tests.read_models.world import GROUPS, World

from penstock.clock import ManualClock
from penstock.events import Entry
from penstock.events.tasks import TASK_STATES, TaskState
from penstock.projections.read_models import Projection, ReadModel, prepare
from penstock.projections.read_models.database import Connection, connect
from penstock.projections.read_models.tables import SCHEMA, metadata

Moves = st.lists(
    st.tuples(st.integers(0, 10), st.integers(0, 119), st.integers(0, 12)),
    min_size=30,
    max_size=90,
)
Cuts = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=20)


class Bench:
    """A database that is emptied for each example."""

    def __init__(self, runner: asyncio.Runner, database_url: str) -> None:
        self.run = runner.run
        self.database_url = database_url
        self.run(prepare(database_url, SCHEMA))
        self.connection: Connection = self.run(connect(database_url, SCHEMA))

    async def project(
        self, entries: list[Entry], cuts: list[tuple[int, bool]]
    ) -> dict[str, list[str]]:
        """Apply a log from the start in batches, and begin anew after some of them."""
        names = ", ".join(
            table.name for table in metadata.sorted_tables if table.name != "position"
        )
        await self.connection.execute(f"TRUNCATE {names}")
        await self.connection.execute("UPDATE position SET sequence = 0, counter = 0, hash = ''")
        projection = await Projection.load(self.connection)
        done = turn = 0
        while done < len(entries):
            size, restart = cuts[turn % len(cuts)]
            await projection.apply(entries[done : done + size])
            if restart:
                projection = await Projection.load(self.connection)
            done += size
            turn += 1
        return await dump(self.connection)


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        bench = Bench(runner, database_url)
        yield bench
        runner.run(bench.connection.close())


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moves=Moves, cuts=Cuts)
def test_any_batches_of_a_log_give_the_same_rows_and_the_right_answers(
    bench: Bench, moves: list[tuple[int, int, int]], cuts: list[tuple[int, bool]]
) -> None:
    world = World()
    world.play(moves)
    entries = world.story.entries
    one_by_one = bench.run(bench.project(entries, [(1, True)]))
    at_once = bench.run(bench.project(entries, [(len(entries), False)]))
    assert at_once == one_by_one
    cut = bench.run(bench.project(entries, cuts))
    assert cut == one_by_one
    bench.run(_counters_equal_a_recount(bench.connection))
    bench.run(_answers_are_right(bench.database_url, world))


async def _counters_equal_a_recount(connection: Connection) -> None:
    """Each counter of a group is the number of tasks that the rows say are in that state."""
    recount = """
        SELECT id, total, waiting, ready, assigned, running, succeeded, failed, cancelled,
            (SELECT coalesce(sum(count), 0) FROM task_ranges WHERE task_group_id = g.id),
            (SELECT count(*) FROM active_tasks WHERE task_group_id = g.id AND state = 0),
            (SELECT count(*) FROM active_tasks WHERE task_group_id = g.id AND state = 1)
            + (SELECT coalesce(sum(count - taken), 0) FROM task_ranges
                WHERE task_group_id = g.id AND rest_cancelled_at IS NULL)
            - (SELECT count(*) FROM archived_tasks a JOIN task_ranges r ON a.id >= r.first + r.taken
                AND a.id < r.first + r.count AND r.rest_cancelled_at IS NULL
                WHERE a.task_group_id = g.id),
            (SELECT count(*) FROM active_tasks WHERE task_group_id = g.id AND state = 2)
            + (SELECT coalesce(sum(remaining), 0) FROM assignments WHERE task_group_id = g.id),
            (SELECT count(*) FROM active_tasks WHERE task_group_id = g.id AND state = 3),
            (SELECT count(*) FROM archived_tasks WHERE task_group_id = g.id AND state = 4),
            (SELECT count(*) FROM archived_tasks WHERE task_group_id = g.id AND state = 5)
        FROM task_groups g
    """
    for row in await connection.fetch(recount):
        stored, counted = tuple(row)[1:8], tuple(row)[9:]
        assert stored == counted
        assert row["cancelled"] == row["total"] - sum(stored[1:])


async def _answers_are_right(database_url: str, world: World) -> None:
    clock = ManualClock(world.story.now)
    async with ReadModel(database_url, clock=clock, pool_size=1) as read_model:
        for group in GROUPS:
            found = await read_model.task_group(group)
            assert found is not None
            expected = world.counts(group)
            assert found.counts.total == expected.total()
            assert {state: getattr(found.counts, state) for state in TASK_STATES} == {
                state: expected[state] for state in TASK_STATES
            }
        for wanted in (None, *GROUPS):
            for state in (None, *TASK_STATES):
                await _listing_is_right(read_model, world, wanted, state)


async def _listing_is_right(
    read_model: ReadModel, world: World, group: int | None, state: TaskState | None
) -> None:
    expected = [
        (task.id, world.state_of(task), task.attempt)
        for task in world.tasks.values()
        if group in (None, task.group) and state in (None, world.state_of(task))
    ]
    found = []
    cursor = None
    while True:
        page = await read_model.tasks(group, state, cursor, limit=7)
        assert len(page.items) <= 7
        found += [(task.id, task.state, task.attempt) for task in page.items]
        for task in page.items:
            known = world.tasks[task.id]
            assert task.task_group_id == known.group
            if task.state in ("assigned", "running", "waiting"):
                assert task.manager_id == known.manager
                assert task.cancel_requested == known.cancel_requested
        cursor = page.next
        if cursor is None:
            break
    assert found == expected
