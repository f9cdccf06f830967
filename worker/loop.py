"""The task loop: fetch, run one task after the other, report in batches."""

import time

import msgspec

from penstock.events.tasks import AttemptResult
from penstock.events.worker_protocol import Hello, Run
from penstock.worker.communication import WorkerCommunication
from penstock.worker.handlers import TaskStopped
from penstock.worker.queue import Ending, Queue, Task
from penstock.worker.specs import Programs

FLUSH_AFTER_MICROSECONDS = 20_000
FLUSH_AFTER_RESULTS = 256
FLUSH_AFTER_BYTES = 128 * 1024


def now() -> int:
    """Microseconds on the monotonic clock."""
    return time.monotonic_ns() // 1000


class Loop:
    """The main thread's part. Between tasks it has the connection's turn to itself for a moment;
    while it is inside a task, the attendant may use the connection."""

    def __init__(
        self,
        queue: Queue,
        communication: WorkerCommunication,
        programs: Programs,
        worker: int,
        pid: int,
    ) -> None:
        self._queue = queue
        self._communication = communication
        self._programs = programs
        self._worker = worker
        self._pid = pid
        self._encoder = msgspec.msgpack.Encoder()
        self.greeting_wanted = False

    def run(self) -> None:
        """Until someone asks to leave."""
        queue, communication = self._queue, self._communication
        while not queue.leaving:
            self.run_waiting()
            with communication.turn:
                self._refill()
            if queue.attendant_asleep:
                queue.attendant_asleep = False
                communication.wake_attendant()
        queue.give_back_waiting()
        with communication.turn:
            self.flush()

    def _refill(self) -> None:
        self.accept(self._communication.fetch(wait=False))
        if self._queue.waiting:
            return
        self.flush()
        if self.greeting_wanted:
            self.greet()
        if not self._queue.leaving:
            self.accept(self._communication.fetch(wait=True))

    def accept(self, messages: list[Run]) -> None:
        """Take in what was sent. The caller has the connection's turn."""
        for message in messages:
            if message.acknowledged:
                self._queue.acknowledge(message.acknowledged)
            for batch in message.batches:
                self._queue.put(self._programs.of(batch), batch)

    def flush(self) -> None:
        """Send what there is to report. The caller has the connection's turn."""
        message = self._queue.next_message()
        if message is not None:
            self._communication.report(message)

    def greet(self) -> None:
        """Say hello and repeat what was not acknowledged. The caller has the connection's turn."""
        self.greeting_wanted = False
        # Tasks that an earlier manager sent may lie unread in the connection: they are held too.
        self.accept(self._communication.fetch(wait=False))
        held, messages = self._queue.snapshot()
        hello = Hello(worker=self._worker, pid=self._pid, held=held)
        self._communication.report(self._encoder.encode(hello))
        for message in messages:
            self._communication.report(message)

    def run_waiting(self) -> None:
        """Run tasks until none waits."""
        queue = self._queue
        lock, journal, cancelled = queue.lock, queue.journal, queue.cancelled
        encode, worker, clock = self._encoder.encode, self._worker, time.monotonic_ns
        began = flushed_at = clock() // 1000
        size = 0
        with lock:
            queue.clock_offset = offset = time.time_ns() // 1000 - began
            task = queue.begin(began)
        while task is not None:
            program, task_id, attempt, _, _ = task
            started_at = began + offset
            if journal is not None:
                journal.mark(task_id, attempt, started_at, began)
            ending: Ending | None = None
            try:
                if cancelled and (task_id, attempt) in cancelled:
                    ending = _cancelled(queue, task)
                else:
                    ending = program.execute(task)
            except TaskStopped:
                # It came too late to hit the task itself, but `queue.stop` still says why.
                pass
            ended = clock() // 1000
            ended_at = ended + offset
            if queue.stop is not None:
                ending = self._stopped(task, ending)
            if ending is None:
                encoded = encode(
                    AttemptResult(
                        task_id=task_id,
                        attempt=attempt,
                        started_at=started_at,
                        ended_at=ended_at,
                        worker=worker,
                    )
                )
            else:
                encoded = self._encode_ending(task, ending, started_at, ended_at)
            with lock:
                if journal is not None:
                    journal.add(encoded)
                queue.finished.append(task)
                queue.finished_encoded.append(encoded)
                task = queue.begin(ended)
            size += len(encoded)
            began = ended
            if (
                ended - flushed_at >= FLUSH_AFTER_MICROSECONDS
                or len(queue.finished) >= FLUSH_AFTER_RESULTS
                or size >= FLUSH_AFTER_BYTES
            ):
                with self._communication.turn:
                    self.flush()
                flushed_at, size = ended, 0
        if journal is not None:
            journal.clear_mark()

    def _stopped(self, task: Task, ending: Ending | None) -> Ending | None:
        with self._queue.lock:
            stop, self._queue.stop = self._queue.stop, None
        if stop is None or stop.task is not task:
            return ending
        return {**(ending or {}), **stop.ending}

    def _encode_ending(self, task: Task, ending: Ending, started_at: int, ended_at: int) -> bytes:
        common: Ending = {
            "task_id": task.task_id,
            "attempt": task.attempt,
            "started_at": started_at,
            "ended_at": ended_at,
            "worker": self._worker,
        }
        try:
            return self._encoder.encode(AttemptResult(**common, **ending))
        except UnicodeEncodeError:
            # File names and messages may hold bytes that are no text.
            clean: Ending = {
                name: value.encode(errors="replace").decode() if isinstance(value, str) else value
                for name, value in ending.items()
            }
            return self._encoder.encode(AttemptResult(**common, **clean))


def _cancelled(queue: Queue, task: Task) -> Ending:
    reason = queue.cancelled.pop((task.task_id, task.attempt), "")
    message = f"Cancelled before it began: {reason}" if reason else "Cancelled before it began."
    return {"outcome": "cancelled", "cause": "cancelled", "message": message}
