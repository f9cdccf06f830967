"""Given events, then rows."""

import msgspec
import pytest
from tests.read_models.story import BEGIN, MANAGER, Story, dump

from penstock.clock import ManualClock
from penstock.errors import Unavailable
from penstock.events import (
    SECOND,
    Attempt,
    Retry,
    Span,
    SpecRun,
    TaskCancellationRequested,
    TaskGroupCancelled,
    TaskGroupClosed,
    TaskGroupCompleted,
    TaskGroupReleased,
    TaskGroupReopened,
)
from penstock.projections.read_models import Projection, ReadModel
from penstock.projections.read_models.database import Connection

pytestmark = pytest.mark.anyio


async def test_a_short_task_costs_one_row(
    story: Story, projection: Projection, connection: Connection
) -> None:
    story.begin()
    await projection.apply(story.entries)
    before = await dump(connection)
    story.commit(story.submitted(1), story.assigned(Span(1, 1)))
    story.commit(story.ended("succeeded", 1))
    await projection.apply(story.entries[1:])
    after = await dump(connection)
    new = {table: len(rows) - len(before[table]) for table, rows in after.items()}
    assert {table: n for table, n in new.items() if n} == {"archived_tasks": 1, "task_ranges": 1}


async def test_a_million_queued_tasks_are_one_row(
    story: Story, projection: Projection, connection: Connection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(story.submitted(1_000_000))
    await projection.apply(story.entries)
    assert len((await dump(connection))["task_ranges"]) == 1
    task = await read_model.task(1_000_000)
    assert task is not None
    assert (task.state, task.attempt) == ("ready", 0)
    assert await read_model.task(1_000_001) is None


async def test_each_priority_of_a_submission_is_a_range(
    story: Story, projection: Projection, connection: Connection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(story.submitted(10, runs=[SpecRun(4, 0), SpecRun(6, 5)]))
    story.commit(story.assigned(Span(5, 3)))
    await projection.apply(story.entries)
    ranges = await connection.fetch(
        "SELECT first, count, priority, taken FROM task_ranges ORDER BY first"
    )
    assert [tuple(row) for row in ranges] == [(1, 4, 0, 0), (5, 6, 5, 3)]
    task = await read_model.task(7)
    assert task is not None
    assert (task.state, task.manager_id, task.priority) == ("assigned", MANAGER, 5)
    source = await read_model.task_source(7)
    assert source is not None
    assert (source.sequence, source.event) == (2, 0)


async def test_a_finished_task_is_shown_with_all_that_was_reported(
    story: Story, projection: Projection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(story.submitted(1), story.assigned(Span(1, 1)))
    result = story.result(
        1,
        outcome="failed",
        cause="exit_code",
        message="no\0good",
        exit_code=3,
        result={"a": [1, "\0"]},
        stdout="out\0put",
        stderr="err",
        output_truncated=True,
        cpu_seconds=1.5,
        max_rss_bytes=4096,
    )
    story.commit(story.finished(result))
    await projection.apply(story.entries)
    task = await read_model.task(1)
    assert task is not None
    shown = msgspec.json.decode(msgspec.json.encode(task))
    assert shown["submitted_at"].startswith("2026-02-02T")
    assert shown["submitted_at"].endswith("Z")
    assert {name: shown[name] for name in ("state", "cause", "exit_code", "attempt")} == {
        "state": "failed",
        "cause": "exit_code",
        "exit_code": 3,
        "attempt": 1,
    }
    assert shown["result"] == {"a": [1, "\0"]}
    # Postgres keeps no NUL in a text; it must not stop the projector either.
    assert (shown["message"], shown["stdout"]) == ("no\ufffdgood", "out\ufffdput")
    assert (shown["cpu_seconds"], shown["max_rss_bytes"]) == (1.5, 4096)


async def test_a_retried_task_waits_runs_again_and_lists_its_attempts(
    story: Story, projection: Projection, database_url: str
) -> None:
    story.begin()
    story.commit(story.submitted(2), story.assigned(Span(1, 2)))
    story.commit(story.started((1, 1)))
    failure = story.result(1, outcome="failed", cause="exit_code", exit_code=1)
    story.commit(story.requeued(Retry(result=failure, not_before=story.now + 60 * SECOND)))
    await projection.apply(story.entries)
    clock = ManualClock(story.now)
    async with ReadModel(database_url, clock=clock) as read_model:
        task = await read_model.task(1)
        group = await read_model.task_group(1)
        assert task is not None
        assert group is not None
        assert (task.state, task.attempt, task.manager_id) == ("waiting", 1, None)
        assert (group.counts.waiting, group.counts.ready, group.counts.assigned) == (1, 0, 1)
        assert [t.id for t in (await read_model.tasks(1, "waiting")).items] == [1]

        clock.advance(60 * SECOND)
        task = await read_model.task(1)
        group = await read_model.task_group(1)
        assert task is not None
        assert group is not None
        assert task.state == "ready"
        assert (group.counts.waiting, group.counts.ready, group.counts.assigned) == (0, 1, 1)
        assert [t.id for t in (await read_model.tasks(1, "ready")).items] == [1]
        assert (await read_model.tasks(1, "waiting")).items == []

        story.commit(story.assigned(Span(1, 1, 2)))
        story.commit(story.finished(story.result(1, attempt=2)))
        await projection.apply(story.entries[-2:])
        task = await read_model.task(1)
        assert task is not None
        assert (task.state, task.attempt) == ("succeeded", 2)
        assert [(a.attempt, a.cause, a.exit_code) for a in task.attempts] == [(1, "exit_code", 1)]


async def test_cancelling_the_rest_ends_what_no_executor_holds(
    story: Story, projection: Projection, connection: Connection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(story.submitted(10), story.assigned(Span(1, 3)))
    story.commit(story.requeued(Retry(result=story.result(2, outcome="failed", cause="signal"))))
    story.commit(story.cancelled(Span(7, 2)))
    story.commit(story.cancelled())
    await projection.apply(story.entries)
    group = await read_model.task_group(1)
    assert group is not None
    assert (group.counts.assigned, group.counts.cancelled, group.counts.ready) == (2, 8, 0)
    tasks = (await read_model.tasks(1)).items
    assert [task.state for task in tasks] == ["assigned", "cancelled", "assigned"] + [
        "cancelled"
    ] * 7
    assert {(t.cause, t.message) for t in tasks if t.state == "cancelled"} == {
        ("cancelled", "enough")
    }
    # Only those that had left the range, or left it one by one, have rows.
    assert len((await dump(connection))["archived_tasks"]) == 3


async def test_a_cancelled_task_stays_cancelled_when_its_range_is_taken_past_it(
    story: Story, projection: Projection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(story.submitted(5), story.cancelled(Span(2, 1)))
    story.commit(story.assigned(Span(1, 1), Span(3, 3)))
    await projection.apply(story.entries)
    tasks = (await read_model.tasks(1)).items
    assert [task.state for task in tasks] == ["assigned", "cancelled"] + ["assigned"] * 3
    assert [t.id for t in (await read_model.tasks(1, "assigned")).items] == [1, 3, 4, 5]


async def test_a_request_to_cancel_is_shown_also_for_a_task_without_a_row(
    story: Story, projection: Projection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(story.submitted(3), story.assigned(Span(1, 3)), story.started((1, 1)))
    asked = [Attempt(1, 1), Attempt(2, 1)]
    story.commit(TaskCancellationRequested(**story.facts, task_group_id=1, tasks=asked))
    await projection.apply(story.entries)
    tasks = (await read_model.tasks(1)).items
    assert [(t.state, t.cancel_requested, t.manager_id) for t in tasks] == [
        ("running", True, MANAGER),
        ("assigned", True, MANAGER),
        ("assigned", False, MANAGER),
    ]


async def test_a_task_group_shows_its_life(
    story: Story, projection: Projection, read_model: ReadModel
) -> None:
    story.begin()
    about = {**story.facts, "task_group_id": 1}
    story.commit(TaskGroupClosed(**about))
    story.commit(TaskGroupReopened(**about), TaskGroupClosed(**about))
    await projection.apply(story.entries)
    group = await read_model.task_group("campaign-1")
    assert group is not None
    assert (group.state, group.managers) == ("closed", [MANAGER])
    story.commit(TaskGroupCompleted(**about, result="success"))
    story.commit(TaskGroupReleased(**about, manager_id=MANAGER))
    await projection.apply(story.entries[-2:])
    group = await read_model.task_group("default/campaign-1")
    assert group is not None
    assert (group.state, group.result, group.managers) == ("complete", "success", [])
    assert group.completed_at is not None
    assert (await read_model.task_group("other/campaign-1")) is None


async def test_a_cancelled_task_group_says_so(
    story: Story, projection: Projection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(TaskGroupCancelled(**story.facts, task_group_id=1))
    await projection.apply(story.entries)
    group = await read_model.task_group(1)
    assert group is not None
    assert (group.state, group.result) == ("cancelled", "cancelled")


async def test_rows_go_to_the_month_in_which_the_task_ended(
    story: Story, projection: Projection, connection: Connection
) -> None:
    story.begin()
    story.commit(story.submitted(3), story.assigned(Span(1, 3)))
    last_month = BEGIN - 20 * 86_400 * SECOND
    impossible = 10 * BEGIN
    story.commit(
        story.finished(
            story.result(1),
            story.result(2, ended_at=last_month),
            story.result(3, ended_at=impossible),
        )
    )
    await projection.apply(story.entries)
    rows = await connection.fetch(
        "SELECT id, tableoid::regclass::text AS part FROM archived_tasks ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        (1, "archived_tasks_2026_02"),
        (2, "archived_tasks_2026_01"),
        (3, "archived_tasks_2026_02"),
    ]


async def test_progress_tells_the_rate_and_when_it_will_be_done(
    story: Story, projection: Projection, database_url: str
) -> None:
    story.begin()
    story.commit(story.submitted(400), story.assigned(Span(1, 400)))
    for first in range(1, 201, 20):
        story.commit(story.ended("succeeded", *range(first, first + 20)))
    await projection.apply(story.entries)
    async with ReadModel(database_url, clock=ManualClock(story.now)) as read_model:
        progress = await read_model.progress(1)
        assert (progress.finished, progress.total) == (200, 400)
        assert progress.per_second == pytest.approx(20, rel=0.3)
        assert progress.eta_seconds == pytest.approx(10, rel=0.3)
    async with ReadModel(database_url, clock=ManualClock(story.now + 60 * SECOND)) as read_model:
        progress = await read_model.progress(1)
        assert (progress.per_second, progress.eta_seconds) == (0.0, None)


async def test_managers_and_numbers(
    story: Story, projection: Projection, read_model: ReadModel
) -> None:
    story.begin()
    story.commit(story.submitted(3), story.assigned(Span(1, 1)))
    await projection.apply(story.entries)
    (manager,) = await read_model.managers()
    assert (manager.id, manager.state, manager.task_group_id) == (MANAGER, "executing", 1)
    assert await read_model.manager("nobody") is None
    numbers = await read_model.counts()
    assert numbers.task_groups == {"open": 1}
    assert numbers.managers == {"executing": 1}
    assert (numbers.tasks["ready"], numbers.tasks["assigned"]) == (2, 1)


async def test_a_reader_without_a_read_model_is_told_so(database_url: str) -> None:
    async with ReadModel(database_url) as read_model:
        with pytest.raises(Unavailable):
            await read_model.task(1)
