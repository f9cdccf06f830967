"""Events of tasks. Each speaks of one task group and of one or of thousands of its tasks.

A task id is a dense 64-bit number that the leader hands out, so that `first` and `count` name a
whole submission. An attempt is numbered from 1; only the current attempt can change an outcome.
"""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from penstock.events.event import Event, ManagerId, Small, TaskGroupId, TaskId, Timestamp
from penstock.events.spec import Cause, Priority, RetryPolicy

Outcome = Literal["succeeded", "failed", "cancelled"]
TaskState = Literal["waiting", "ready", "assigned", "running", "succeeded", "failed", "cancelled"]
TASK_STATES: tuple[TaskState, ...] = get_args(TaskState)
ENDED: tuple[TaskState, ...] = get_args(Outcome)
"""States that a task never leaves."""
AttemptNumber = Annotated[int, Meta(ge=1, lt=2**31)]


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an event or of a message."""


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One try at one task."""

    task_id: TaskId
    attempt: AttemptNumber


class Span(msgspec.Struct, frozen=True, array_like=True):
    """`count` consecutive tasks, all at the same attempt."""

    first: TaskId
    count: int
    attempt: AttemptNumber = 1


class SpecRun(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """`count` consecutive tasks of a submission that share what the coordinator needs to know."""

    count: int
    priority: Priority = 0
    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None


class TaskStart(Value, frozen=True, kw_only=True):
    """An attempt that runs. Reported only when it outlives a batch of reports."""

    task_id: TaskId
    attempt: AttemptNumber = 1
    started_at: Timestamp
    worker: Small = 0
    pid: Small = 0


class AttemptResult(Value, frozen=True, kw_only=True):
    """How an attempt ended, as the executor saw it."""

    task_id: TaskId
    attempt: AttemptNumber = 1
    outcome: Outcome = "succeeded"
    cause: Cause | None = None
    message: str = ""
    exit_code: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    signal: Annotated[int, Meta(ge=0, le=255)] | None = None
    started_at: Timestamp = 0
    ended_at: Timestamp = 0
    worker: Small = 0
    result: Any = None
    stdout: str = ""
    stderr: str = ""
    output_truncated: bool = False
    cpu_seconds: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    max_rss_bytes: Annotated[int, Meta(ge=0, lt=2**62)] = 0


class Retry(Value, frozen=True, kw_only=True):
    """An attempt that ended without deciding the task, and when the next may begin.

    `counts` is false when the task is not to blame, so that it has used up nothing.
    """

    result: AttemptResult
    not_before: Timestamp = 0
    counts: bool = True


NO_JSON = msgspec.Raw()
"""The default of fields that hold JSON. It must be this very object to be left out."""


class TasksSubmitted(Event, frozen=True, kw_only=True, tag="tasks_submitted"):
    """`specs` is a JSON list of task specs, or `template` one spec for `count` tasks.

    They stay encoded: only the worker that runs a task needs to read its spec.
    """

    task_group_id: TaskGroupId
    first: TaskId
    count: int
    runs: list[SpecRun] = []
    """Runs in order; none means one run with the defaults."""
    specs: msgspec.Raw = NO_JSON
    template: msgspec.Raw = NO_JSON
    parameters: msgspec.Raw = NO_JSON
    """A JSON list of objects, one for each task of an array."""
    first_index: int = 0
    step: int = 1
    key: str = ""
    """Idempotency key of the whole submission."""
    key_digest: str = ""
    """Digest of what was submitted under the key, to tell a repeat from a mistake."""
    offset: int = 0
    """How many tasks of the submission came before these, in earlier events."""
    task_keys: dict[str, TaskId] = {}
    """Idempotency keys of single tasks."""


class TasksAssigned(Event, frozen=True, kw_only=True, tag="tasks_assigned"):
    task_group_id: TaskGroupId
    manager_id: ManagerId
    tasks: list[Span]


class TasksStarted(Event, frozen=True, kw_only=True, tag="tasks_started"):
    task_group_id: TaskGroupId
    manager_id: ManagerId
    tasks: list[TaskStart]


class TasksFinished(Event, frozen=True, kw_only=True, tag="tasks_finished"):
    """These tasks are decided for good."""

    task_group_id: TaskGroupId
    manager_id: ManagerId
    tasks: list[AttemptResult]


class TasksRequeued(Event, frozen=True, kw_only=True, tag="tasks_requeued"):
    """The current attempts of these tasks are over; they wait for another."""

    task_group_id: TaskGroupId
    manager_id: ManagerId
    tasks: list[Retry]


class TasksCancelled(Event, frozen=True, kw_only=True, tag="tasks_cancelled"):
    """Tasks that no executor holds end here. No `tasks` means all such tasks of the group."""

    task_group_id: TaskGroupId
    tasks: list[Span] = []


class TaskCancellationRequested(
    Event, frozen=True, kw_only=True, tag="task_cancellation_requested"
):
    """Executors that hold these tasks are asked to end them."""

    task_group_id: TaskGroupId
    tasks: list[Attempt]
