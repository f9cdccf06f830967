"""The worker processes: started, watched, started again when they die.

Each worker is a session of its own, so that all that its tasks start can be found and ended. A
worker outlives its manager; the next one finds it in the state file and waits for its hello.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import BufferedWriter
from pathlib import Path

import structlog

from penstock.events.exits import Exit, Unknown, classify
from penstock.events.worker_protocol import Place
from penstock.manager.endings import ADOPTED
from penstock.manager.processes import kill_session, start_ticks
from penstock.manager.state_file import RecordedWorker

logger = structlog.get_logger("penstock.manager")

SHORT_LIFE_SECONDS = 2.0
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 10.0
LOG_LIMIT_BYTES = 16 * 1024 * 1024


def worker_arguments(place: Place, number: int) -> list[str]:
    """What a worker is started with, and by which it is known again."""
    return ["-m", "penstock.worker", "--place", place.directory, "--worker", str(number)]


class WorkerProcess:
    def __init__(self, record: RecordedWorker, process: "subprocess.Popen[bytes] | None") -> None:
        self.record = record
        self.process = process
        """None for the child of an earlier manager."""
        self.began = time.monotonic()
        self.descriptor = os.pidfd_open(record.pid)

    def exit(self) -> Exit:
        """How it ended. To be called once, when it has."""
        os.close(self.descriptor)
        if self.process is None:
            return ADOPTED
        information = os.waitid(os.P_PID, self.record.pid, os.WEXITED | os.WNOWAIT)
        self.process.wait()
        return classify(information.si_code, information.si_status) if information else Unknown()


class Pool:
    def __init__(
        self,
        place: Place,
        log_directory: Path,
        environment: dict[str, str],
        on_exit: Callable[[RecordedWorker, Exit], None],
        on_change: Callable[[], None],
    ) -> None:
        self._place = place
        self._log_directory = log_directory
        self._environment = environment
        self._on_exit = on_exit
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, WorkerProcess] = {}
        self._delays: dict[int, float] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._empty = asyncio.Event()
        self._stopping = False

    @property
    def records(self) -> list[RecordedWorker]:
        return [process.record for process in self._processes.values()]

    def runs(self, number: int, pid: int) -> bool:
        process = self._processes.get(number)
        return process is not None and process.record.pid == pid

    def adopt(self, record: RecordedWorker) -> bool:
        """Watch a worker of an earlier manager. False when it is no more."""
        try:
            process = WorkerProcess(record, None)
        except ProcessLookupError:
            return False
        if start_ticks(record.pid) != record.start_ticks:
            os.close(process.descriptor)
            return False
        # Nothing to write down: the record is where it came from.
        self._watch(process)
        return True

    def spawn(self, number: int) -> None:
        self._timers.pop(number, None)
        if self._stopping or number in self._processes:
            return
        try:
            with self._log(number) as log:
                child = subprocess.Popen(
                    [sys.executable, *worker_arguments(self._place, number)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                )
        except OSError as error:
            self._not_started(number, error)
            return
        record = RecordedWorker(number, child.pid, start_ticks(child.pid) or 0)
        try:
            process = WorkerProcess(record, child)
        except OSError as error:
            # One that cannot be watched is of no use.
            child.kill()
            child.wait()
            self._not_started(number, error)
            return
        self._watch(process)
        self._on_change()

    def _not_started(self, number: int, error: OSError) -> None:
        logger.error("worker_not_startable", worker=number, error=str(error))
        self._spawn_later(number, LONGEST_DELAY_SECONDS)

    def _log(self, number: int) -> BufferedWriter:
        path = self._log_directory / f"worker-{number}.log"
        too_long = path.exists() and path.stat().st_size > LOG_LIMIT_BYTES
        return open(path, "wb" if too_long else "ab")

    def _watch(self, process: WorkerProcess) -> None:
        self._processes[process.record.number] = process
        self._empty.clear()
        self._loop.add_reader(process.descriptor, self._ended, process)

    def _ended(self, process: WorkerProcess) -> None:
        self._loop.remove_reader(process.descriptor)
        record = process.record
        how = process.exit()
        # Commands have process groups of their own and do not die with the worker.
        kill_session(record.pid)
        del self._processes[record.number]
        if not self._processes:
            self._empty.set()
        if not self._stopping:
            # First of all: whatever goes wrong below, there will be another worker.
            self._replace(process, how)
        self._on_exit(record, how)
        self._on_change()

    def _replace(self, process: WorkerProcess, how: Exit) -> None:
        record = process.record
        lived = time.monotonic() - process.began
        delay = 0.0
        if lived < SHORT_LIFE_SECONDS:
            delay = min(
                self._delays.get(record.number, FIRST_DELAY_SECONDS / 2) * 2, LONGEST_DELAY_SECONDS
            )
        self._delays[record.number] = delay
        logger.warning(
            "worker_ended",
            worker=record.number,
            pid=record.pid,
            how=how.message,
            restart_in_seconds=delay,
        )
        self._spawn_later(record.number, delay)

    def _spawn_later(self, number: int, delay: float) -> None:
        self._timers[number] = self._loop.call_later(delay, self.spawn, number)

    def kill(self, number: int) -> None:
        process = self._processes.get(number)
        if process is not None:
            signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)

    async def stopped(self, within_seconds: float) -> None:
        """Wait until all workers have left; kill those that do not."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        if not self._processes:
            return
        try:
            await asyncio.wait_for(self._empty.wait(), within_seconds)
        except TimeoutError:
            for number in list(self._processes):
                self.kill(number)
            await self._empty.wait()
