"""The tasks that a worker holds, shared by its main thread and its attendant.

A task moves from `waiting` to `current` to `finished`, then, in a numbered batch, to
`unacknowledged`. Under `lock` each held task is in at least one of them. The main thread runs
through this hundred thousand times a second, so tasks are plain tuples and fields are public.
"""

import threading
from collections import deque
from itertools import repeat
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from penstock.events.event import TaskId
from penstock.events.manager_protocol import TaskBatch
from penstock.events.spec import Cause
from penstock.events.tasks import Attempt, TaskStart
from penstock.events.worker_journal import JournalWriter, array_header
from penstock.events.worker_protocol import Message

Ending: TypeAlias = dict[str, Any]
"""Fields of an AttemptResult that differ from those of a plain success."""


class Program(Protocol):
    """What a spec says, made ready to be run."""

    timeout_seconds: float | None

    def execute(self, task: "Task") -> Ending | None:
        """Run one task to its end. None is a success with nothing to tell."""
        ...


class Task(NamedTuple):
    program: Program
    task_id: TaskId
    attempt: int
    array_index: int | None
    row: dict[str, Any] | None
    """Parameters of this task of an array."""


class StopRequest:
    """The wish that a running task ends before its time, and how far that has come."""

    __slots__ = ("cause", "escalated", "grace_seconds", "message", "since", "task")

    def __init__(self, task: Task, cause: Cause, message: str, grace_seconds: float) -> None:
        self.task = task
        self.cause: Cause = cause
        self.message = message
        self.grace_seconds = grace_seconds
        self.since: float | None = None
        """When it was first asked to end, on the monotonic clock."""
        self.escalated = False

    @property
    def ending(self) -> Ending:
        outcome = "cancelled" if self.cause == "cancelled" else "failed"
        return {"outcome": outcome, "cause": self.cause, "message": self.message}


class EncodedResults(Message, frozen=True, kw_only=True, tag="results"):
    """`Results`, of which the results are encoded already."""

    number: int
    results: msgspec.Raw
    started: list[TaskStart] = []
    returned: list[Attempt] = []


class Queue:
    def __init__(self, journal: JournalWriter | None) -> None:
        self.lock = threading.Lock()
        self.journal = journal
        self.waiting: deque[Task] = deque()
        self.current: Task | None = None
        self.current_since = 0
        """In microseconds on the monotonic clock: that of the wall may be set meanwhile."""
        self.clock_offset = 0
        """Makes a `Timestamp` of a moment on the monotonic clock."""
        self.stop: StopRequest | None = None
        self.cancelled: dict[tuple[TaskId, int], str] = {}
        """Waiting tasks that must not begin, and the reason."""
        self.finished: list[Task] = []
        self.finished_encoded: list[bytes] = []
        self.started: list[TaskStart] = []
        self.returned: list[Attempt] = []
        self.leaving = False
        self.attendant_asleep = False
        self._number = 0
        self._acknowledged = 0
        self._unacknowledged: deque[tuple[int, bytes, list[Task]]] = deque()
        self._encode = msgspec.msgpack.Encoder().encode

    def put(self, program: Program, batch: TaskBatch) -> None:
        count = batch.count
        first = batch.first
        ids = range(first, first + count)
        if batch.array:
            step = batch.step
            indexes: Any = range(batch.first_index, batch.first_index + count * step, step)
            rows: Any = (
                msgspec.json.decode(batch.parameters, type=list[dict[str, Any]])
                if batch.parameters
                else repeat(None)
            )
        else:
            indexes = rows = repeat(None)
        tasks = map(Task._make, zip(repeat(program), ids, repeat(batch.attempt), indexes, rows))
        with self.lock:
            self.waiting.extend(tasks)

    def begin(self, now: int) -> Task | None:
        """Take the next task in hand. The caller holds the lock."""
        # A wish for the end of the task before this one may have come too late for it.
        self.stop = None
        if self.waiting and not self.leaving:
            self.current_since = now
            self.current = self.waiting.popleft()
        else:
            self.current = None
        return self.current

    def acknowledge(self, number: int) -> None:
        with self.lock:
            self._acknowledged = max(self._acknowledged, number)
            while self._unacknowledged and self._unacknowledged[0][0] <= number:
                self._unacknowledged.popleft()

    def give_back_waiting(self) -> None:
        """Return the tasks that have not begun, last first."""
        with self.lock:
            while self.waiting:
                task = self.waiting.pop()
                self.returned.append(Attempt(task.task_id, task.attempt))
            self.cancelled.clear()

    def next_message(self) -> bytes | None:
        """All that there is to report, as one numbered batch."""
        with self.lock:
            if not (self.finished or self.started or self.returned):
                return None
            self._number += 1
            encoded = self.finished_encoded
            message = self._encode(
                EncodedResults(
                    number=self._number,
                    results=msgspec.Raw(array_header(len(encoded)) + b"".join(encoded)),
                    started=self.started,
                    returned=self.returned,
                )
            )
            self._unacknowledged.append((self._number, message, self.finished))
            self.finished, self.finished_encoded = [], []
            self.started, self.returned = [], []
            if self.journal is not None:
                self.journal.sent(self._number, self._acknowledged)
            return message

    @property
    def settled(self) -> bool:
        """Whether the manager has every result."""
        with self.lock:
            return not (self.finished or self._unacknowledged)

    def snapshot(self) -> tuple[list[Attempt], list[bytes]]:
        """What is held, and the messages that were not acknowledged."""
        with self.lock:
            tasks = [task for _, _, batch in self._unacknowledged for task in batch]
            tasks += self.finished
            if self.current is not None:
                tasks.append(self.current)
            tasks += self.waiting
            held = dict.fromkeys((task.task_id, task.attempt) for task in tasks)
            return (
                [Attempt(*key) for key in held],
                [message for _, message, _ in self._unacknowledged],
            )
