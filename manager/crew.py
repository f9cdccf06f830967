"""The workers as the rest of the manager sees them: processes, sockets and core together."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from penstock.events.exits import Exit
from penstock.events.tasks import AttemptResult
from penstock.events.worker_journal import JournalReader, Mark, read_mark
from penstock.events.worker_protocol import Control, Hello, Place, Results, Run, Stop, identity
from penstock.manager.core import Core
from penstock.manager.endings import UNSEEN
from penstock.manager.pool import Pool, worker_arguments
from penstock.manager.processes import (
    command_line,
    kill_session,
    kill_tasks_left_in,
    start_ticks,
)
from penstock.manager.sockets import Sockets
from penstock.manager.spool import Spool
from penstock.manager.state_file import RecordedWorker
from penstock.manager.worker_state import WorkerState

logger = structlog.get_logger("penstock.manager")

ADOPTION_SECONDS = 5.0
LOOK_SECONDS = 1.0
STOP_GRACE_SECONDS = 2.0


class Crew:
    def __init__(
        self,
        core: Core,
        spool: Spool,
        place: Place,
        log_directory: Path,
        environment: dict[str, str],
        *,
        on_news: Callable[[], None],
        on_change: Callable[[], None],
        on_capacity: Callable[[], None],
    ) -> None:
        self._core = core
        self._spool = spool
        self._place = place
        self._log_directory = log_directory
        self._on_news = on_news
        self._on_capacity = on_capacity
        self._acknowledgements: dict[bytes, int] = {}
        self._identities: dict[bytes, int] = {}
        self._expected: set[int] = set()
        self._all_known = asyncio.Event()
        self._sockets = Sockets(place, self._on_message, self.rest)
        self._pool = Pool(place, log_directory, environment, self._on_exit, on_change)

    @property
    def records(self) -> list[RecordedWorker]:
        return self._pool.records

    async def assemble(self, recorded: list[RecordedWorker], *, rebooted: bool) -> None:
        """Adopt the workers of an earlier manager and start the missing ones. Returns when it is
        known what the adopted ones hold.

        After a reboot a recorded process number, even with its start time, is someone else's, and
        what is left of a journal need not be true: what the workers held is lost.
        """
        for record in recorded:
            if rebooted:
                self._remove_journal(record.number, record.pid)
                continue
            wanted = record.number <= self._core.worker_count
            if wanted and self._pool.adopt(record):
                self._expected.add(record.number)
                continue
            if start_ticks(record.pid) == record.start_ticks:
                kill_session(record.pid)
            else:
                kill_tasks_left_in(record.pid)
            self._on_exit(record, UNSEEN)
        # Not before: a worker that is not adopted yet would be taken for a stranger.
        self._sockets.listen()
        for number in range(1, self._core.worker_count + 1):
            self._pool.spawn(number)
        if self._expected:
            try:
                await asyncio.wait_for(self._all_known.wait(), ADOPTION_SECONDS)
            except TimeoutError:
                for number in list(self._expected):
                    logger.warning("earlier_worker_does_not_answer", worker=number)
                    self._pool.kill(number)
                await self._all_known.wait()

    async def look_after(self) -> None:
        """Repeat cancellations, and kill workers that cannot end what they have in hand."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for cancel in self._core.cancellations():
                self._sockets.publish(cancel)
            now = time.monotonic()
            for worker in self._core.overdue(self._mark_of, now):
                logger.warning("worker_killed_with_its_task", worker=worker.number)
                self._pool.kill(worker.number)
            self._look_for_work_to_give_back(now)

    def _look_for_work_to_give_back(self, now: float) -> None:
        before = self._core.without_workers
        self._core.on_time(now)
        if self._core.without_workers and not before:
            logger.error("no_worker_comes_up", see=str(self._log_directory))
            self._on_capacity()
        if self._core.outbox:
            self._on_news()

    def publish(self, control: Control) -> None:
        self._sockets.publish(control)

    def rest(self) -> None:
        """Something changed: give out tasks, acknowledge results, and have the news reported."""
        for worker, batches in self._core.feed():
            name = identity(worker.number, worker.pid)
            number = self._acknowledgements.pop(name, 0)
            self._sockets.send(name, Run(batches=batches, acknowledged=number))
        for name, number in self._acknowledgements.items():
            self._sockets.send(name, Run(acknowledged=number))
        self._acknowledgements.clear()
        if self._core.outbox:
            self._on_news()

    def keep(self, results: list[AttemptResult]) -> None:
        """Put new results that no worker sent on disk."""
        self._spool.add(results)

    def _on_message(self, name: bytes, message: Hello | Results, encoded: bytes) -> None:
        if isinstance(message, Hello):
            self._on_hello(name, message)
            return
        worker = self._core.workers.get(self._identities.get(name, 0))
        if worker is None:
            # Not introduced yet: it will repeat this after its hello.
            return
        accepted = self._core.on_results(worker, message)
        if len(accepted) == len(message.results) and not message.returned:
            if accepted:
                self._spool.add_encoded(encoded, len(accepted))
        else:
            self._spool.add(accepted)
        self._acknowledgements[name] = message.number

    def _on_hello(self, name: bytes, hello: Hello) -> None:
        if not self._pool.runs(hello.worker, hello.pid):
            self._turn_away(hello)
            return
        before = self._core.without_workers
        self._core.on_hello(hello)
        self._identities[name] = hello.worker
        self._known(hello.worker)
        if before:
            self._on_capacity()

    def _turn_away(self, hello: Hello) -> None:
        """A worker that this manager neither started nor found in its records: the one before died
        before it could write it down, and what it runs counts as lost."""
        if command_line(hello.pid)[1:-1] == worker_arguments(self._place, hello.worker):
            logger.warning("unknown_worker_killed", worker=hello.worker, pid=hello.pid)
            kill_session(hello.pid)
            self._remove_journal(hello.worker, hello.pid)

    def _remove_journal(self, number: int, pid: int) -> None:
        Path(self._place.journal(number, pid)).unlink(missing_ok=True)

    def _known(self, number: int) -> None:
        self._expected.discard(number)
        if not self._expected:
            self._all_known.set()

    def _on_exit(self, record: RecordedWorker, how: Exit) -> None:
        path = self._place.journal(record.number, record.pid)
        journal = JournalReader.read(path)
        mark = journal.mark if journal is not None else None
        results = journal.results if journal is not None else []
        now = time.time_ns() // 1000
        self._spool.add(self._core.on_death(record.number, how, mark, results, now))
        if journal is not None:
            os.unlink(path)
        name = identity(record.number, record.pid)
        self._identities.pop(name, None)
        self._acknowledgements.pop(name, None)
        self._known(record.number)
        self.rest()

    def _mark_of(self, worker: WorkerState) -> Mark | None:
        return read_mark(self._place.journal(worker.number, worker.pid))

    async def stop(self) -> None:
        """End all workers, and what they run."""
        self._core.stopping = True
        self._core.give_back_buffer()
        self._sockets.publish(Stop(graceful=False, grace_seconds=STOP_GRACE_SECONDS))
        for record in self._pool.records:
            if record.number not in self._core.workers:
                # It is only just starting: it has nothing, and cannot hear us yet.
                self._pool.kill(record.number)
        await self._pool.stopped(STOP_GRACE_SECONDS + 1.0)

    def close(self) -> None:
        self._sockets.close()
