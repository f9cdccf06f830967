"""The attendant: a second thread that looks after the task in hand.

While a task runs it wakes ten times a second. For a task that takes longer it reports the start,
sends the results that were waiting behind it, gives back the tasks that wait, and ends the task
when it was cancelled or its time is up: a command by signals to its process group, a handler by an
exception in the main thread, and when that does not help by the end of this process. While nothing
runs it sleeps.
"""

import os
import signal
import threading
import time
from typing import NoReturn

import msgspec

from penstock.events.tasks import AttemptResult, TaskStart
from penstock.events.worker_protocol import EXIT_LEFT, Cancel, Control, Identify, Stop
from penstock.worker.commands import Command, Commands
from penstock.worker.communication import WorkerCommunication
from penstock.worker.handlers import INTERRUPT
from penstock.worker.loop import Loop, now
from penstock.worker.queue import Queue, StopRequest, Task

TICK_SECONDS = 0.1
RETRY_SECONDS = 0.005
LONG_TASK_MICROSECONDS = 100_000
TIMEOUT_GRACE_SECONDS = 5.0
LEAVE_AFTER_SECONDS = 60.0


class Attendant:
    def __init__(
        self,
        queue: Queue,
        communication: WorkerCommunication,
        loop: Loop,
        commands: Commands,
        worker: int,
    ) -> None:
        self._queue = queue
        self._communication = communication
        self._loop = loop
        self._commands = commands
        self._worker = worker
        self._main_thread = threading.main_thread().ident or 0
        self._reported: Task | None = None
        self._idle_since = time.monotonic()
        self._next_tick: float | None = TICK_SECONDS

    def run(self) -> NoReturn:
        while True:
            for control in self._communication.controls(self._next_tick):
                self._on(control)
            self._next_tick = self.look()

    def _on(self, control: Control) -> None:
        match control:
            case Identify():
                self._loop.greeting_wanted = True
                # The manager that knew of the start may be gone; another has to be told.
                self._reported = None
            case Cancel():
                self._cancel(control)
            case Stop() if not control.workers or self._worker in control.workers:
                self._stop(control)
            case Stop():
                pass

    def _cancel(self, cancel: Cancel) -> None:
        queue = self._queue
        wanted = {(task.task_id, task.attempt) for task in cancel.tasks}
        with queue.lock:
            current = queue.current
            if current is not None and (current.task_id, current.attempt) in wanted:
                wanted.discard((current.task_id, current.attempt))
                if queue.stop is None:
                    message = f"Cancelled: {cancel.reason}" if cancel.reason else "Cancelled."
                    queue.stop = StopRequest(current, "cancelled", message, cancel.grace_seconds)
            waiting = {(task.task_id, task.attempt) for task in queue.waiting}
            queue.cancelled |= dict.fromkeys(wanted & waiting, cancel.reason)

    def _stop(self, stop: Stop) -> None:
        queue = self._queue
        queue.give_back_waiting()
        with queue.lock:
            queue.leaving = True
            current = queue.current
            if current is not None and queue.stop is None and not stop.graceful:
                queue.stop = StopRequest(
                    current, "executor_lost", "The manager was stopped.", stop.grace_seconds
                )
        self._communication.wake()

    def look(self) -> float | None:
        """Look after the current task; return after how many seconds to look again."""
        queue = self._queue
        with queue.lock:
            task, since = queue.current, queue.current_since
            busy = task is not None or bool(queue.waiting)
            queue.attendant_asleep = not busy
        if task is None:
            return self._idle(busy)
        self._idle_since = time.monotonic()
        running = now() - since
        next_tick = self._end_in_time(task, running)
        if running >= LONG_TASK_MICROSECONDS or self._loop.greeting_wanted:
            self._speak_for_main_thread(task, since, running)
        self._commands.trim_outputs()
        return next_tick

    def _idle(self, busy: bool) -> float | None:
        if self._loop.greeting_wanted:
            self._communication.wake()
            return RETRY_SECONDS if busy else TICK_SECONDS
        if not self._communication.manager_is_away():
            return TICK_SECONDS if busy else None
        if time.monotonic() - self._idle_since > LEAVE_AFTER_SECONDS:
            self._queue.leaving = True
            self._communication.wake()
        return 1.0

    def _speak_for_main_thread(self, task: Task, since: int, running: int) -> None:
        if not self._communication.turn.acquire(blocking=False):
            # The task has just ended, and the main thread is about to speak for itself.
            return
        try:
            if self._loop.greeting_wanted:
                self._loop.greet()
            if running < LONG_TASK_MICROSECONDS:
                return
            self._loop.accept(self._communication.fetch(wait=False))
            self._queue.give_back_waiting()
            if self._reported is not task:
                self._reported = task
                start = TaskStart(
                    task_id=task.task_id,
                    attempt=task.attempt,
                    started_at=since + self._queue.clock_offset,
                    worker=self._worker,
                    pid=self._commands.process_group or os.getpid(),
                )
                with self._queue.lock:
                    self._queue.started.append(start)
            self._loop.flush()
        finally:
            self._communication.turn.release()

    def _end_in_time(self, task: Task, running: int) -> float:
        """Time-outs and cancellation of the current task."""
        queue = self._queue
        timeout = task.program.timeout_seconds
        next_tick = TICK_SECONDS
        with queue.lock:
            if queue.current is not task:
                return next_tick
            if timeout is not None and queue.stop is None:
                left = timeout - running / 1e6
                if left <= 0:
                    queue.stop = StopRequest(
                        task,
                        "timeout",
                        f"Ran longer than its timeout of {timeout:g} s.",
                        TIMEOUT_GRACE_SECONDS,
                    )
                next_tick = min(next_tick, max(left, RETRY_SECONDS))
            stop = queue.stop
        if stop is None or stop.task is not task:
            return next_tick
        if isinstance(task.program, Command):
            return self._end_command(stop)
        return self._end_handler(stop)

    def _end_command(self, stop: StopRequest) -> float:
        if stop.since is None:
            if not self._commands.signal(signal.SIGTERM):
                return RETRY_SECONDS
            stop.since = time.monotonic()
        if time.monotonic() - stop.since >= stop.grace_seconds and not stop.escalated:
            stop.escalated = self._commands.signal(signal.SIGKILL)
        return TICK_SECONDS

    def _end_handler(self, stop: StopRequest) -> float:
        if stop.since is None:
            stop.since = time.monotonic()
        elif time.monotonic() - stop.since >= stop.grace_seconds:
            self._die(stop)
        # Again and again: it may have been outside the handler's code, or was swallowed there.
        signal.pthread_kill(self._main_thread, INTERRUPT)
        return TICK_SECONDS

    def _die(self, stop: StopRequest) -> None:
        """End this process, because its main thread does not come back from the task."""
        queue = self._queue
        if not self._communication.turn.acquire(timeout=1.0):
            return
        self._loop.accept(self._communication.fetch(wait=False))
        queue.give_back_waiting()
        with queue.lock:
            if queue.current is not stop.task or queue.stop is not stop:
                self._communication.turn.release()
                return
            result = AttemptResult(
                task_id=stop.task.task_id,
                attempt=stop.task.attempt,
                started_at=queue.current_since + queue.clock_offset,
                ended_at=now() + queue.clock_offset,
                worker=self._worker,
                **stop.ending,
            )
            encoded = msgspec.msgpack.encode(result)
            if queue.journal is not None:
                queue.journal.add(encoded)
            queue.finished.append(stop.task)
            queue.finished_encoded.append(encoded)
        self._loop.flush()
        self._communication.close()
        os._exit(EXIT_LEFT)
