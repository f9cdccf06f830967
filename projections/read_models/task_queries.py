"""Finding tasks: one by its id, many by task group and state.

A task has a row of its own only when it ran for a while or ended; otherwise it is a number in a
range. So a listing works in two steps: find candidates, which are ids in order after the cursor,
cheaply and perhaps too many; then look them all up, in one statement that sees one moment, and keep
those in the wanted state. Each step is a few index probes for each id on the page, however many
tasks there are.
"""

from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from penstock.errors import Invalid
from penstock.events.tasks import TASK_STATES, TaskState
from penstock.projections.read_models.states import (
    ASSIGNED,
    CANCELLED,
    CODES,
    FAILED,
    READY,
    RUNNING,
    WAITING,
)
from penstock.projections.read_models.views import AttemptView, TaskView

_ENDED = (
    "state, attempt, cause, message, exit_code, signal, manager_id, worker, started_at, ended_at, "
    "result, stdout, stderr, output_truncated, cpu_seconds, max_rss_bytes"
)

LOOK_UP = f"""
SELECT wanted.id, held.task_group_id, held.priority, held.submitted_at,
    wanted.id < held.first + held.taken AS taken, held.rest_cancelled_at, held.rest_cancel_reason,
    assignment.manager_id AS assigned_to,
    active.id AS active_id, active.state AS active_state, active.attempt AS active_attempt,
    active.manager_id AS active_manager_id, active.started_at AS active_started_at,
    active.worker AS active_worker, active.not_before, active.cancel_requested,
    ended.*
FROM unnest($1::bigint[]) AS wanted (id)
JOIN LATERAL (
    SELECT * FROM task_ranges WHERE first <= wanted.id ORDER BY first DESC LIMIT 1
) AS held ON wanted.id < held.first + held.count
LEFT JOIN LATERAL (
    SELECT {_ENDED} FROM archived_tasks WHERE state = 4 AND id = wanted.id
    UNION ALL
    SELECT {_ENDED} FROM archived_tasks
    WHERE state > 4 AND state IN (5, 6) AND task_group_id = held.task_group_id AND id = wanted.id
    LIMIT 1
) AS ended ON true
LEFT JOIN active_tasks AS active ON active.id = wanted.id
LEFT JOIN LATERAL (
    SELECT first, count, manager_id FROM assignments
    WHERE first <= wanted.id ORDER BY first DESC LIMIT 1
) AS assignment ON wanted.id < assignment.first + assignment.count
ORDER BY wanted.id
"""

SPEC_PLACE = """
SELECT sequence, event_index AS event FROM (
    SELECT * FROM task_ranges WHERE first <= $1 ORDER BY first DESC LIMIT 1
) AS held
WHERE $1 < first + count
"""

ATTEMPTS = f"""
SELECT {", ".join(AttemptView.__struct_fields__)} FROM attempts WHERE task_id = $1 ORDER BY attempt
"""

# The candidates. $1 is the task group, null for all; $2 the cursor; $3 how many.
_ONE_TASK_GROUP = "task_group_id = $1"
_ALL_TASK_GROUPS = "$1::bigint IS NULL"

_RANGES_FROM_CURSOR = """
    {task_group} AND first + count - 1 > $2 AND first >= coalesce(
        (SELECT max(first) FROM task_ranges WHERE {task_group} AND first <= $2), 0)
"""

_ALL = f"""
SELECT id FROM (
    SELECT greatest(first, $2 + 1) AS start, first + count - 1 AS stop FROM task_ranges
    WHERE {_RANGES_FROM_CURSOR}
    ORDER BY first LIMIT $3
) AS held
CROSS JOIN LATERAL generate_series(start, least(stop, start + $3 - 1)) AS id
ORDER BY id LIMIT $3
"""

_REST = f"""
SELECT id FROM (
    SELECT greatest(first + taken, $2 + 1) AS start, first + count - 1 AS stop FROM task_ranges
    WHERE {_RANGES_FROM_CURSOR} AND taken < count AND (rest_cancelled_at IS NOT NULL) = $4
    ORDER BY first LIMIT $3
) AS held
CROSS JOIN LATERAL generate_series(start, least(stop, start + $3 - 1)) AS id
ORDER BY id LIMIT $3
"""

_ASSIGNED = """
SELECT id FROM (
    SELECT greatest(first, $2 + 1) AS start, first + count - 1 AS stop FROM assignments
    WHERE {task_group} AND first + count - 1 > $2
    ORDER BY first LIMIT $3
) AS held
CROSS JOIN LATERAL generate_series(start, least(stop, start + $3 - 1)) AS id
ORDER BY id LIMIT $3
"""

_ACTIVE = """
SELECT id FROM active_tasks
WHERE {task_group} AND id > $2 AND state = ANY($4::smallint[])
ORDER BY id LIMIT $3
"""

_SUCCEEDED_OF_TASK_GROUP = f"""
SELECT ended.id FROM (
    SELECT first, count FROM task_ranges
    WHERE {_RANGES_FROM_CURSOR} AND taken > 0
    ORDER BY first
) AS held
CROSS JOIN LATERAL (
    SELECT id FROM archived_tasks
    WHERE state = 4 AND id >= greatest(held.first, $2 + 1) AND id < held.first + held.count
    ORDER BY id LIMIT $3
) AS ended
ORDER BY held.first, ended.id LIMIT $3
"""

_SUCCEEDED = """
SELECT id FROM archived_tasks WHERE {task_group} AND state = 4 AND id > $2 ORDER BY id LIMIT $3
"""

_NOT_SUCCEEDED_OF_TASK_GROUP = """
SELECT id FROM archived_tasks
WHERE state > 4 AND {task_group} AND state = $4 AND id > $2
ORDER BY id LIMIT $3
"""

_NOT_SUCCEEDED = """
SELECT ended.id FROM task_groups
CROSS JOIN LATERAL (
    SELECT id FROM archived_tasks
    WHERE state > 4 AND task_group_id = task_groups.id AND state = $4 AND id > $2
    ORDER BY id LIMIT $3
) AS ended
WHERE {task_group} AND task_groups.failed + task_groups.cancelled > 0
ORDER BY id LIMIT $3
"""

Query = tuple[str, tuple[Any, ...]]


def candidates(state: TaskState | None, *, of_one_task_group: bool) -> list[Query]:
    """Queries for (task group, cursor, limit) and their further arguments; together they name at
    least every task in that state."""
    task_group = _ONE_TASK_GROUP if of_one_task_group else _ALL_TASK_GROUPS
    succeeded = _SUCCEEDED_OF_TASK_GROUP if of_one_task_group else _SUCCEEDED
    not_succeeded = _NOT_SUCCEEDED_OF_TASK_GROUP if of_one_task_group else _NOT_SUCCEEDED
    queries: dict[TaskState | None, list[Query]] = {
        None: [(_ALL, ())],
        "ready": [(_REST, (False,)), (_ACTIVE, ([READY, WAITING],))],
        "waiting": [(_ACTIVE, ([WAITING],))],
        "assigned": [(_ASSIGNED, ()), (_ACTIVE, ([ASSIGNED],))],
        "running": [(_ACTIVE, ([RUNNING],))],
        "succeeded": [(succeeded, ())],
        "failed": [(not_succeeded, (FAILED,))],
        "cancelled": [(not_succeeded, (CANCELLED,)), (_REST, (True,))],
    }
    if state not in queries:
        names = ", ".join(CODES)
        raise Invalid(f"{state!r} is not a state of a task. There are: {names}.", field="state")
    return [(query.format(task_group=task_group), further) for query, further in queries[state]]


def task_view(row: asyncpg.Record, now: datetime) -> TaskView:
    """What a looked-up row says: an archived row first, then an active one, then the range."""
    if row["state"] is not None:
        return _ended(row)
    if row["active_id"] is not None:
        return _active(row, now)
    state: TaskState = "ready"
    if row["taken"]:
        state = "assigned"
    elif row["rest_cancelled_at"] is not None:
        return TaskView(
            **_identity(row),
            state="cancelled",
            attempt=0,
            cause="cancelled",
            message=row["rest_cancel_reason"] or None,
            ended_at=row["rest_cancelled_at"],
        )
    return TaskView(
        **_identity(row),
        state=state,
        attempt=int(row["taken"]),
        manager_id=row["assigned_to"] if row["taken"] else None,
    )


def _identity(row: asyncpg.Record) -> dict[str, Any]:
    return {
        "id": row["id"],
        "task_group_id": row["task_group_id"],
        "priority": row["priority"],
        "submitted_at": row["submitted_at"],
    }


def _ended(row: asyncpg.Record) -> TaskView:
    result = row["result"]
    return TaskView(
        **_identity(row),
        state=TASK_STATES[row["state"]],
        attempt=row["attempt"],
        cause=row["cause"],
        message=row["message"],
        exit_code=row["exit_code"],
        signal=row["signal"],
        manager_id=row["manager_id"],
        worker=row["worker"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        result=None if result is None else msgspec.Raw(result.encode()),
        stdout=row["stdout"],
        stderr=row["stderr"],
        output_truncated=row["output_truncated"],
        cpu_seconds=row["cpu_seconds"],
        max_rss_bytes=row["max_rss_bytes"],
    )


def _active(row: asyncpg.Record, now: datetime) -> TaskView:
    state = row["active_state"]
    not_before = row["not_before"]
    if state == WAITING and (not_before is None or not_before <= now):
        state = READY
    return TaskView(
        **_identity(row),
        state=TASK_STATES[state],
        attempt=row["active_attempt"],
        manager_id=row["active_manager_id"],
        worker=row["active_worker"],
        started_at=row["active_started_at"],
        not_before=not_before,
        cancel_requested=row["cancel_requested"],
    )
