"""What the coordinator answers with, as values.

Fields that a newer coordinator adds are ignored; fields that an older one leaves out are empty.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from penstock.events.tasks import ENDED, TaskState

TaskGroupState = Literal["open", "closed", "complete", "cancelled"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A value that came from the coordinator."""


class Counts(Answer, frozen=True, kw_only=True):
    """Tasks of a task group, by state."""

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

    @property
    def unfinished(self) -> int:
        return self.total - self.finished


class TaskGroup(Answer, frozen=True, kw_only=True):
    """A campaign of tasks."""

    id: int
    name: str
    state: TaskGroupState
    group: str = "default"
    description: str = ""
    result: str | None = None
    priority: int = 0
    tags: list[str] = []
    labels: list[str] = []
    max_managers: int | None = None
    task_prefetch_count: int | None = None
    created_at: datetime | None = None
    closed_at: datetime | None = None
    completed_at: datetime | None = None
    counts: Counts = Counts()
    managers: list[str] = []


class Progress(Answer, frozen=True, kw_only=True):
    """How far a task group has come."""

    task_group_id: int
    state: TaskGroupState
    counts: Counts = Counts()
    finished: int = 0
    total: int = 0
    per_second: float = 0.0
    eta_seconds: float | None = None
    at: datetime | None = None


class CancelledTasks(Answer, frozen=True, kw_only=True):
    """What cancelling a task group did to its tasks."""

    ready_cancelled: int = 0
    running_cancelled: int = 0
    running_not_cancellable: int = 0


class Task(Answer, frozen=True, kw_only=True):
    """One task. `spec` and `attempts` are filled in when it was asked for by its id."""

    id: int
    task_group_id: int
    state: TaskState
    attempt: int = 0
    cause: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    manager_id: str | None = None
    worker: int | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    stdout: str | None = None
    stderr: str | None = None
    output_truncated: bool = False
    cpu_seconds: float | None = None
    max_rss_bytes: int | None = None
    spec: dict[str, Any] | None = None
    attempts: list[dict[str, Any]] = []
    cancel_requested: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"


class Output(Answer, frozen=True, kw_only=True):
    """What a task wrote."""

    stdout: str = ""
    stderr: str = ""
    truncated: bool = False


class Submission(Answer, frozen=True, kw_only=True):
    """Accepted tasks: on disk in the log. `ranges` are pairs of first id and count."""

    task_group_id: int
    ranges: list[tuple[int, int]]
    count: int
    duplicate: bool = False
    """The same submission had arrived before; these are its tasks."""
    results: list[Task] = []
    """The task itself, when it was waited for and ended in time."""
    sequence: int = 0
    """Where the submission stands in the log."""

    @property
    def task_ids(self) -> list[int]:
        return [task for first, count in self.ranges for task in range(first, first + count)]

    def __contains__(self, task_id: object) -> bool:
        return isinstance(task_id, int) and any(
            first <= task_id < first + count for first, count in self.ranges
        )


class Manager(Answer, frozen=True, kw_only=True):
    """The daemon of one device."""

    id: str
    state: str
    groups: list[str] = []
    tags: list[str] = []
    labels: list[str] = []
    worker_count: int = 0
    device: dict[str, Any] = {}
    task_group_id: int | None = None
    registered_at: datetime | None = None
    online_at: datetime | None = None
    offline_at: datetime | None = None


class Status(Answer, frozen=True, kw_only=True):
    """The whole system in numbers."""

    version: str = ""
    node: str = ""
    leader: str | None = None
    epoch: int = 0
    sequence: int = 0
    read_model_sequence: int = 0
    task_groups: dict[str, int] = {}
    tasks: dict[str, int] = {}
    managers: dict[str, int] = {}


class LogLine(Answer, frozen=True, kw_only=True):
    """One commit of the log. `commit` holds the very bytes that `hash` was computed over."""

    sequence: int
    hash: str
    commit: msgspec.Raw


class Health(Answer, frozen=True, kw_only=True):
    status: str = ""
