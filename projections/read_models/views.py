"""What readers of the read models get: the values that HTTP answers with.

Their JSON has RFC 3339 times, because the times are datetimes in UTC.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from penstock.events import (
    AttemptResult,
    ManagerId,
    TaskGroupId,
    TaskId,
    TasksFinished,
    Timestamp,
)
from penstock.events.tasks import TaskState
from penstock.projections.read_models.partitions import plausible

T = TypeVar("T")


_START_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def moment(at: Timestamp) -> datetime:
    return _START_OF_TIME + at * _MICROSECOND


def timestamp(at: datetime) -> Timestamp:
    return (at - _START_OF_TIME) // _MICROSECOND


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A value read from the read models."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list, in order. Ask again with `next` as the cursor, until it is None."""

    items: list[T]
    next: str | None = None


class AttemptView(View, frozen=True, kw_only=True):
    """An attempt that did not decide its task. `counts` is false when the task is not to blame."""

    attempt: int
    cause: str | None
    message: str | None
    exit_code: int | None
    signal: int | None
    manager_id: ManagerId | None
    worker: int | None
    started_at: datetime | None
    ended_at: datetime
    stdout: str | None
    stderr: str | None
    output_truncated: bool
    counts: bool


class TaskView(View, frozen=True, kw_only=True):
    """`attempt` is the present or the last one, 0 before the first. `result` is JSON as it came.

    `spec` is not part of the read models: `SpecPlace` says where it is in the log.
    """

    id: TaskId
    task_group_id: TaskGroupId
    state: TaskState
    attempt: int
    cause: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    manager_id: ManagerId | None = None
    worker: int | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    not_before: datetime | None = None
    result: Any = None
    stdout: str | None = None
    stderr: str | None = None
    output_truncated: bool = False
    cpu_seconds: float | None = None
    max_rss_bytes: int | None = None
    cancel_requested: bool = False
    priority: int = 0
    spec: Any = None
    attempts: list[AttemptView] = []


def finished_view(event: TasksFinished, result: AttemptResult) -> TaskView:
    """A task that has just ended, before the read models know of it."""
    return TaskView(
        id=result.task_id,
        task_group_id=event.task_group_id,
        state=result.outcome,
        attempt=result.attempt,
        cause=result.cause,
        message=result.message or None,
        exit_code=result.exit_code,
        signal=result.signal,
        manager_id=event.manager_id or None,
        worker=result.worker,
        started_at=moment(plausible(result.started_at, event.at)) if result.started_at else None,
        ended_at=moment(plausible(result.ended_at, event.at)),
        result=result.result,
        stdout=result.stdout or None,
        stderr=result.stderr or None,
        output_truncated=result.output_truncated,
        cpu_seconds=result.cpu_seconds or None,
        max_rss_bytes=result.max_rss_bytes or None,
    )


class SpecPlace(View, frozen=True, kw_only=True):
    """Where a task's spec is: event number `event` of the commit at `sequence`."""

    sequence: int
    event: int


class Counts(View, frozen=True, kw_only=True):
    total: int = 0
    waiting: int = 0
    ready: int = 0
    assigned: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed + self.cancelled


class TaskGroupView(View, frozen=True, kw_only=True):
    id: TaskGroupId
    name: str
    group: str
    description: str
    state: str
    result: str | None
    priority: int
    tags: list[str]
    labels: list[str]
    max_managers: int | None
    task_prefetch_count: int | None
    created_at: datetime
    created_by: str
    closed_at: datetime | None
    completed_at: datetime | None
    cancelled_at: datetime | None
    first_started_at: datetime | None
    last_finished_at: datetime | None
    counts: Counts
    managers: list[ManagerId]


class ProgressView(View, frozen=True, kw_only=True):
    """`eta_seconds` is None while nothing moves."""

    task_group_id: TaskGroupId
    state: str
    counts: Counts
    finished: int
    total: int
    per_second: float
    eta_seconds: float | None
    at: datetime


class ManagerView(View, frozen=True, kw_only=True):
    id: ManagerId
    state: str
    groups: list[str]
    tags: list[str]
    labels: list[str]
    worker_count: int
    device: Any
    task_group_id: TaskGroupId | None
    registered_at: datetime
    online_at: datetime | None
    offline_at: datetime | None


class SystemCounts(View, frozen=True, kw_only=True):
    """How many there are, by state."""

    task_groups: dict[str, int]
    tasks: dict[str, int]
    managers: dict[str, int]
