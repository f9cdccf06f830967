"""The state of the whole system, as folded from the log.

Groups, task groups and managers exist in thousands and say what they are by the type of their
`lifecycle` or `connection`. Tasks exist in tens of millions, so they do not exist here at all while
they wait: a `Range` stands for any number of them, and only a task in flight (assigned, running,
waiting for another attempt) has an entry of its own, which is changed in place.

The whole tree consists of plain values, so that a snapshot is its encoding.
"""

from typing import Literal, TypeAlias

import msgspec

from penstock.errors import NotFound
from penstock.events import (
    Cause,
    Device,
    ManagerId,
    RetryPolicy,
    TaskGroupId,
    TaskId,
    Timestamp,
)

FOLD_VERSION = 3
"""Raise it whenever `evolve` or these types change: older snapshots are then ignored."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """Accepts tasks."""


class Closed(msgspec.Struct, frozen=True, tag=True):
    """Accepts no more tasks, finishes those it has."""


class Complete(msgspec.Struct, frozen=True, tag=True):
    """Closed, and every task has ended."""


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """Given up: what had not begun is cancelled, what runs was asked to end."""


Lifecycle: TypeAlias = Open | Closed | Complete | Cancelled


class Online(msgspec.Struct, frozen=True, tag=True):
    incarnation: str


class Offline(msgspec.Struct, frozen=True, tag=True):
    """Not heard of, or never yet."""


Connection: TypeAlias = Online | Offline


class Counts(msgspec.Struct):
    """How many tasks of a group are in which state."""

    total: int = 0
    waiting: int = 0
    ready: int = 0
    assigned: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def unfinished(self) -> int:
        return self.waiting + self.ready + self.assigned + self.running


class Failure(msgspec.Struct, frozen=True):
    """An earlier attempt of a task, as far as it matters for the next."""

    cause: Cause
    counts: bool


class LiveTask(msgspec.Struct):
    """A task in flight."""

    task_group_id: TaskGroupId
    attempt: int
    state: Literal["assigned", "running", "waiting", "ready"]
    manager_id: ManagerId
    started_at: Timestamp = 0
    cancel_requested: bool = False
    failures: list[Failure] = []


class Range(msgspec.Struct):
    """Consecutive tasks of one submission that share priority, time-out and retry policy.

    Their specs are in the log: event `event` of the commit at `sequence`. The first `taken` tasks
    have left the queue; `skipped` are those behind them that were cancelled.
    """

    task_group_id: TaskGroupId
    first: TaskId
    count: int
    sequence: int
    event: int
    unfinished: int
    priority: int = 0
    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None
    taken: int = 0
    skipped: set[TaskId] = set()

    @property
    def next(self) -> TaskId:
        return self.first + self.taken

    @property
    def end(self) -> TaskId:
        return self.first + self.count


class TaskGroup(msgspec.Struct):
    id: TaskGroupId
    name: str
    group: str
    lifecycle: Lifecycle
    priority: int = 0
    tags: frozenset[str] = frozenset()
    max_managers: int | None = None
    task_prefetch_count: int | None = None
    counts: Counts = msgspec.field(default_factory=Counts)
    queue: list[tuple[int, TaskId]] = []
    """A heap of (-priority, id of the next task): ranges and tasks that are ready again."""
    retries: set[TaskId] = set()
    """Tasks that wait for another attempt, or are ready for it."""
    managers: set[ManagerId] = set()

    @property
    def state(self) -> str:
        return type(self.lifecycle).__name__.lower()


class Manager(msgspec.Struct):
    id: ManagerId
    groups: frozenset[str]
    tags: frozenset[str]
    labels: frozenset[str]
    worker_count: int
    device: Device
    connection: Connection
    task_group_id: TaskGroupId | None = None
    tasks: set[TaskId] = set()
    """Tasks that it holds, as far as the log knows."""

    @property
    def state(self) -> str:
        if isinstance(self.connection, Offline):
            return "offline"
        return "idle" if self.task_group_id is None else "executing"


class Submission(msgspec.Struct):
    """What an idempotency key stands for."""

    digest: str
    at: Timestamp
    task_group_id: TaskGroupId
    ranges: list[tuple[TaskId, int]] = []


class State(msgspec.Struct):
    clock: Timestamp = 0
    """The latest time that any commit was made at."""
    epoch: int = 0
    leader: str = ""
    leader_url: str = ""
    next_task_id: TaskId = 1
    next_task_group_id: TaskGroupId = 1
    groups: set[str] = set()
    task_groups: dict[TaskGroupId, TaskGroup] = {}
    names: dict[str, TaskGroupId] = {}
    """Task groups by 'group/name'."""
    managers: dict[ManagerId, Manager] = {}
    tasks: dict[TaskId, LiveTask] = {}
    starts: list[TaskId] = []
    """First ids of all ranges, in order."""
    ranges: dict[TaskId, Range] = {}
    backlog: set[TaskGroupId] = set()
    """Task groups whose queue is not empty."""
    due: list[tuple[Timestamp, TaskId, int]] = []
    """A heap of (time, task, attempt): when waiting tasks become ready."""
    deadlines: list[tuple[Timestamp, TaskId, int]] = []
    """A heap of (time, task, attempt): when running tasks must have ended."""
    keys: dict[str, Submission] = {}
    """Idempotency keys, oldest first."""

    def task_group(self, task_group_id: TaskGroupId) -> TaskGroup:
        try:
            return self.task_groups[task_group_id]
        except KeyError:
            raise NotFound(f"There is no task group {task_group_id}.") from None


def submission_key(task_group_id: TaskGroupId, key: str) -> str:
    """Where a submission's idempotency key is kept."""
    return f"{task_group_id}/{key}"


def task_key(task_group_id: TaskGroupId, key: str) -> str:
    """Where a single task's idempotency key is kept."""
    return f"{task_group_id}:{key}"


def creation_key(key: str) -> str:
    """Where the idempotency key of a task group's creation is kept."""
    return f"/{key}"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


def encode_state(state: State) -> bytes:
    return _encoder.encode(state)


def decode_state(data: bytes) -> State:
    return _decoder.decode(data)
