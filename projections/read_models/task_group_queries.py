"""Finding task groups, and how far one has come."""

from datetime import datetime
from typing import Any

import asyncpg

from penstock.events import SECOND
from penstock.projections.read_models.task_group_change import RATE_WINDOW
from penstock.projections.read_models.views import (
    Counts,
    ProgressView,
    TaskGroupView,
    timestamp,
)

_COUNTERS = Counts.__struct_fields__

_TASK_GROUPS = """
SELECT *,
    ARRAY(
        SELECT manager_id FROM task_group_managers
        WHERE task_group_id = found.id ORDER BY manager_id
    ) AS managers,
    CASE WHEN waiting = 0 THEN 0 ELSE (
        SELECT count(*) FROM active_tasks
        WHERE task_group_id = found.id AND state = 0 AND not_before <= $1
    ) END AS due
FROM task_groups AS found
"""

BY_ID = f"{_TASK_GROUPS} WHERE id = $2"
BY_NAME = f"{_TASK_GROUPS} WHERE group_name = $2 AND name = $3"
ALL = f"{_TASK_GROUPS} WHERE id > $2 ORDER BY id LIMIT $3"
BY_STATE = f"{_TASK_GROUPS} WHERE state = $4 AND id > $2 ORDER BY id LIMIT $3"

STATES = "SELECT state, count(*) FROM task_groups GROUP BY state"
TASK_STATES = f"""
SELECT {", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in _COUNTERS)},
    (SELECT count(*) FROM active_tasks WHERE state = 0 AND not_before <= $1) AS due
FROM task_groups
"""


def counts(row: asyncpg.Record) -> Counts:
    """Time alone makes waiting tasks ready: `due` says how many of the stored ones it has."""
    values = {name: row[name] for name in _COUNTERS}
    values["waiting"] -= row["due"]
    values["ready"] += row["due"]
    return Counts(**values)


def task_group_view(row: asyncpg.Record) -> TaskGroupView:
    values: dict[str, Any] = {
        name: row[name]
        for name in TaskGroupView.__struct_fields__
        if name not in ("group", "counts")
    }
    return TaskGroupView(**values, group=row["group_name"], counts=counts(row))


def progress_view(row: asyncpg.Record, now: datetime) -> ProgressView:
    found = counts(row)
    left = found.total - found.finished
    rate = _overall_rate(row) if left == 0 else _recent_rate(row, now)
    eta: float | None = 0.0
    if left:
        eta = left / rate if rate > 0 else None
    return ProgressView(
        task_group_id=row["id"],
        state=row["state"],
        counts=found,
        finished=found.finished,
        total=found.total,
        per_second=round(rate, 3),
        eta_seconds=None if eta is None else round(eta, 3),
        at=now,
    )


def _overall_rate(row: asyncpg.Record) -> float:
    first, last = row["first_started_at"], row["last_finished_at"]
    if first is None or last is None or last <= first:
        return 0.0
    return float((row["succeeded"] + row["failed"]) / (last - first).total_seconds())


def _recent_rate(row: asyncpg.Record, now: datetime) -> float:
    """Tasks a second over the present and the previous window, or since the group began."""
    present = timestamp(now)
    # A clock that is behind the leader's must not make the newest window look like the future.
    window = max(present // RATE_WINDOW, row["rate_window"])
    if row["rate_window"] == window:
        ended = row["rate_current"] + row["rate_previous"]
    elif row["rate_window"] == window - 1:
        ended = row["rate_current"]
    else:
        return 0.0
    start = (window - 1) * RATE_WINDOW
    if row["first_started_at"] is not None:
        start = max(start, timestamp(row["first_started_at"]))
    return float(ended / max((present - start) / SECOND, 0.1))
