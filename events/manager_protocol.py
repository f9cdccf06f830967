"""What coordinator and manager say to each other, over plain NATS, in msgpack.

The coordinator pushes to the manager's own subject. Pushes are numbered within an epoch; a manager
that misses one, reconnects or meets a new epoch synchronises: it tells all that it holds, and the
answer says what to keep and what to drop. What it lacks comes in the pushes after that. A lower
epoch than the highest seen is a zombie's, and is refused.

The manager reports by request. A report is answered when what it says is on disk in the log; until
then the manager keeps it and repeats it. Attempt numbers make a repeat harmless.
"""

from typing import TypeAlias

import msgspec

from penstock.events.event import ManagerId, Small, TaskGroupId, TaskId
from penstock.events.managers import Device
from penstock.events.tasks import Attempt, AttemptNumber, AttemptResult, TaskStart


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Anything said between coordinator and manager."""


class TaskBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`count` consecutive tasks of one spec, all at one attempt. A listed task is a batch of one.

    `spec` is the JSON of a TaskSpec. For an array, task `first + i` has index
    `first_index + i * step` and, when there are any, the parameters `parameters[i]`.
    """

    task_group_id: TaskGroupId
    first: TaskId
    count: int = 1
    attempt: int = 1
    spec: bytes
    array: bool = False
    first_index: int = 0
    step: int = 1
    parameters: bytes = b""
    """JSON list of objects, `count` of them."""


class AssignGroup(Message, frozen=True, kw_only=True, tag="assign_group"):
    """Work for this task group from now on."""

    task_group_id: TaskGroupId
    name: str
    task_prefetch_count: int | None = None


class Tasks(Message, frozen=True, kw_only=True, tag="tasks"):
    """Run these."""

    batches: list[TaskBatch]


class CancelTasks(Message, frozen=True, kw_only=True, tag="cancel_tasks"):
    """End these: SIGTERM, then SIGKILL after the grace period. Report them in any case."""

    tasks: list[Attempt]
    reason: str = ""
    grace_seconds: float = 30.0


class ReleaseGroup(Message, frozen=True, kw_only=True, tag="release_group"):
    task_group_id: TaskGroupId


class ConfigUpdate(Message, frozen=True, kw_only=True, tag="config_update"):
    heartbeat_seconds: float | None = None


class Drain(Message, frozen=True, kw_only=True, tag="drain"):
    """Finish what runs; take nothing new."""


class Shutdown(Message, frozen=True, kw_only=True, tag="shutdown"):
    """Stop the manager."""


class Resync(Message, frozen=True, kw_only=True, tag="resync"):
    """Synchronise: something that was pushed did not arrive."""


PushMessage: TypeAlias = (
    AssignGroup | Tasks | CancelTasks | ReleaseGroup | ConfigUpdate | Drain | Shutdown | Resync
)


class Push(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    number: int
    """1, 2, 3 ... for this manager in this epoch, starting over after each synchronisation."""
    messages: list[PushMessage]


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened at the manager since the last report.

    `capacity` is how many tasks the manager wants to hold in all, finished ones not counted.
    `returned` are tasks that it gives back without having begun them.
    """

    manager_id: ManagerId
    incarnation: str
    started: list[TaskStart] = []
    finished: list[AttemptResult] = []
    returned: list[Attempt] = []
    capacity: Small = 0


class ReportReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`sequence` is where the report stands in the log.

    With `error`, nothing was taken: for `not_synchronised`, synchronise first; otherwise repeat
    after a while.
    """

    epoch: int = 0
    """An answer of another epoch than the manager's own does not count."""
    sequence: int = 0
    error: str = ""
    message: str = ""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A task that a manager has: buffered, running, or finished and not yet reported."""

    task_id: TaskId
    attempt: AttemptNumber
    begun: bool = False


class Sync(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    manager_id: ManagerId
    incarnation: str
    """Made anew by each manager process."""
    epoch: int = 0
    task_group_id: TaskGroupId | None = None
    held: list[Held] = []
    capacity: Small = 0
    worker_count: Small = 0
    device: Device = Device()


class SyncReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Held tasks that `drop` does not name are kept. The next push has number 1.

    With `error`, nothing was taken: for the code `not_found`, register first.
    """

    epoch: int = 0
    task_group: AssignGroup | None = None
    drop: list[Attempt] = []
    cancel: list[Attempt] = []
    error: str = ""
    message: str = ""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sent every few seconds, stored nowhere."""

    manager_id: ManagerId
    incarnation: str
    epoch: int
    pushes_seen: int
    """The highest push number seen in this epoch."""
    capacity: Small = 0
    held: int = 0
    busy_workers: int = 0


REPORT_LIMIT_BYTES = 256 * 1024
"""A report must fit into one commit."""
