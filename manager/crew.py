"""The workers as the rest of the manager sees them: processes, sockets and core together."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from penstock.events.exits import Exit, Unknown
from penstock.events.tasks import AttemptResult
from penstock.events.worker_journal import JournalReader, Mark, read_mark
from penstock.events.worker_protocol import Control, Hello, Place, Results, Run, Stop, identity
from penstock.manager.core import Core
from penstock.manager.pool import Pool
from penstock.manager.processes import kill_session, start_ticks
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
    ) -> None:
        self._core = core
        self._spool = spool
        self._place = place
        self._on_news = on_news
        self._acknowledgements: dict[bytes, int] = {}
        self._identities: dict[bytes, int] = {}
        self._expected: set[int] = set()
        self._all_known = asyncio.Event()
        self._sockets = Sockets(place, self._on_message, self.rest)
        self._pool = Pool(place, log_directory, environment, self._on_exit, on_change)

    @property
    def records(self) -> list[RecordedWorker]:
        return self._pool.records

    async def assemble(self, recorded: list[RecordedWorker]) -> None:
        """Adopt the workers of an earlier manager and start the missing ones. Returns when it is
        known what the adopted ones hold."""
        for record in recorded:
            if record.number > self._core.worker_count:
                if start_ticks(record.pid) == record.start_ticks:
                    kill_session(record.pid)
                self._on_exit(record, Unknown())
            elif self._pool.adopt(record):
                self._expected.add(record.number)
            else:
                kill_session(record.pid)
                self._on_exit(record, Unknown())
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
            now, wall_clock = time.monotonic(), time.time_ns() // 1000
            for worker in self._core.overdue(self._mark_of, now, wall_clock):
                logger.warning("worker_killed_with_its_task", worker=worker.number)
                self._pool.kill(worker.number)

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
            self._core.on_hello(message)
            self._identities[name] = message.worker
            self._known(message.worker)
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
