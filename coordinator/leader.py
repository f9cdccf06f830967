"""The leading coordinator: everything that exists only while the role is held.

It owns the state, the writer, the sessions of the managers and the subscriptions on which they
speak. A leader is made by an election, runs until it is deposed or stopped, and is never used
again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import structlog
from nats.aio.msg import Msg

from penstock.clock import Clock
from penstock.coordinator.commands import (
    AnyCommand,
    Initialise,
    LoseManager,
    PassTime,
    ReportTasks,
    SynchroniseManager,
)
from penstock.coordinator.decisions import next_due
from penstock.coordinator.dispatch import Dispatcher
from penstock.coordinator.results import Results
from penstock.coordinator.sessions import Session, Sessions
from penstock.coordinator.specs import Specs
from penstock.coordinator.writer import Committed, Dispatch, Writer
from penstock.errors import NotLeader, PenstockError
from penstock.events import (
    AnyEvent,
    Attempt,
    Log,
    LogWriter,
    ManagerId,
    Position,
    Subjects,
    TasksSubmitted,
)
from penstock.events.connection import Connection
from penstock.events.manager_protocol import Heartbeat, Report, ReportReply, Sync, SyncReply
from penstock.projections import Online, State

logger = structlog.get_logger("penstock.coordinator")

LIVENESS_CHECK_SECONDS = 1.0
RESEND_SECONDS = 1.0

_report_decoder = msgspec.msgpack.Decoder(Report)
_sync_decoder = msgspec.msgpack.Decoder(Sync)
_heartbeat_decoder = msgspec.msgpack.Decoder(Heartbeat)
_encoder = msgspec.msgpack.Encoder()

ACTOR = "coordinator"


class Leader:
    def __init__(
        self,
        *,
        connection: Connection,
        subjects: Subjects,
        log: Log,
        log_writer: LogWriter,
        state: State,
        clock: Clock,
        patience_seconds: float,
        at_rest: Callable[[State, Position], None],
    ) -> None:
        self.state = state
        self.results = Results()
        self.specs = Specs(log)
        self._log_writer = log_writer
        self._connection = connection
        self._subjects = subjects
        self._clock = clock
        self._at_rest = at_rest
        self._timer: asyncio.TimerHandle | None = None
        online = [m.id for m in state.managers.values() if isinstance(m.connection, Online)]
        self._expected = online
        self._sessions = Sessions(online, time.monotonic(), patience_seconds)
        self._dispatcher = Dispatcher(connection, subjects, state, self._sessions, self.specs)
        self.writer = Writer(
            log_writer,
            state,
            clock,
            Dispatch(
                capacities=lambda: self._sessions.capacities,
                decided=self._decided,
                committed=self._committed,
                rested=self._rested,
            ),
        )

    @property
    def epoch(self) -> int:
        return self._log_writer.epoch

    @property
    def sequence(self) -> int:
        return self.writer.sequence

    async def ask(self, command: AnyCommand) -> Committed:
        return await self.writer.ask(command)

    def stop(self) -> None:
        """End `run` after the commit that is under way."""
        self.writer.stop()

    async def run(self) -> None:
        """Lead until told to stop. Raises `Deposed` or `Corrupt`."""
        subscriptions = [
            await self._connection.subscribe(self._subjects.report("*"), cb=self._on_report),
            await self._connection.subscribe(self._subjects.sync("*"), cb=self._on_sync),
            await self._connection.subscribe(self._subjects.heartbeat("*"), cb=self._on_heartbeat),
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self.writer.run())
                others = [
                    tasks.create_task(self._begin()),
                    tasks.create_task(self._watch_liveness()),
                ]
                await writing
                for task in others:
                    task.cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for subscription in subscriptions:
                with suppress(Exception):
                    await subscription.unsubscribe()
            self.results.abandon()

    async def _begin(self) -> None:
        with suppress(NotLeader):
            await self._settle()

    async def _settle(self) -> None:
        """Make what every deployment has, and take up where the leader before left off."""
        await self.ask(Initialise(actor=ACTOR, reason="first start"))
        for manager in list(self.state.managers.values()):
            if manager.tasks and not isinstance(manager.connection, Online):
                await self._lose(manager.id, "The manager is offline.")
        for manager_id in self._expected:
            await self._dispatcher.ask_to_synchronise(manager_id)

    def _decided(self, event: AnyEvent, sequence: int, index: int) -> None:
        if isinstance(event, TasksSubmitted):
            self.specs.remember(event, sequence, index)

    async def _committed(self, events: list[AnyEvent]) -> None:
        await self._dispatcher.deliver(events)
        self.results.announce(events, self.sequence)

    def _rested(self) -> None:
        """The state is exactly what the log says, until the next command."""
        self._at_rest(self.state, self._log_writer.position)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = next_due(self.state)
        if due is not None:
            delay = max(0, due - self._clock.now()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay, self._time_has_come)

    def _time_has_come(self) -> None:
        self.writer.submit(PassTime(actor="timer"), _ignore)

    async def _watch_liveness(self) -> None:
        while True:
            await asyncio.sleep(LIVENESS_CHECK_SECONDS)
            self.writer.nudge()
            for manager_id in self._sessions.silent(time.monotonic()):
                logger.warning("manager_lost", manager=manager_id)
                with suppress(NotLeader):
                    await self._lose(manager_id, "The manager was not heard of for too long.")

    async def _lose(self, manager_id: ManagerId, reason: str) -> None:
        await self.ask(LoseManager(actor=ACTOR, manager_id=manager_id, reason=reason))

    async def _on_report(self, message: Msg) -> None:
        try:
            report = _report_decoder.decode(message.data)
        except msgspec.DecodeError as error:
            await self._refuse(message, "invalid", str(error))
            return
        session = self._sessions.get(report.manager_id)
        if session is None or session.incarnation != report.incarnation:
            await self._refuse(message, "not_synchronised", "Synchronise first.")
            return
        if message.subject != self._subjects.report(report.manager_id):
            await self._refuse(message, "forbidden", "This is another manager's subject.")
            return
        self._sessions.heard(session, report.capacity, time.monotonic())
        command = ReportTasks(
            actor=f"manager:{report.manager_id}",
            manager_id=report.manager_id,
            started=report.started,
            finished=report.finished,
            returned=report.returned,
        )

        def done(outcome: Committed | PenstockError) -> Awaitable[None] | None:
            if isinstance(outcome, NotLeader):
                # The manager repeats its report, to whoever leads then.
                return None
            if isinstance(outcome, PenstockError):
                reply = ReportReply(error=outcome.code, message=outcome.message)
            else:
                reply = ReportReply(sequence=outcome.sequence)
            return message.respond(_encoder.encode(reply))

        self.writer.submit(command, done)

    async def _on_sync(self, message: Msg) -> None:
        try:
            sync = _sync_decoder.decode(message.data)
            if message.subject != self._subjects.sync(sync.manager_id):
                raise PenstockError("This is another manager's subject.")
            reply = await self._synchronise(sync)
        except msgspec.DecodeError as error:
            reply = SyncReply(error="invalid", message=str(error))
        except PenstockError as error:
            reply = SyncReply(error=error.code, message=error.message)
        await message.respond(_encoder.encode(reply))
        self.writer.nudge()

    async def _synchronise(self, sync: Sync) -> SyncReply:
        self._sessions.close(sync.manager_id)
        committed = await self.ask(
            SynchroniseManager(
                actor=f"manager:{sync.manager_id}",
                manager_id=sync.manager_id,
                incarnation=sync.incarnation,
                held=sync.held,
                worker_count=sync.worker_count,
                device=sync.device,
            )
        )
        start = await self._dispatcher.batches_of(committed.answer.start)
        # Nothing is pushed to a manager without a session, so what follows must not wait: all that
        # happened to its tasks since the commit is in the state that the answer is made from.
        manager = self.state.managers[sync.manager_id]
        cancel = [
            Attempt(task_id, task.attempt)
            for task_id in sorted(manager.tasks)
            if (task := self.state.tasks[task_id]).cancel_requested
        ]
        self._sessions.open(
            Session(sync.manager_id, sync.incarnation, sync.capacity), time.monotonic()
        )
        logger.info("manager_synchronised", manager=sync.manager_id, held=len(sync.held))
        return SyncReply(
            epoch=self.epoch,
            task_group=(
                self._dispatcher.assignment(manager.task_group_id)
                if manager.task_group_id is not None
                else None
            ),
            drop=committed.answer.drop,
            cancel=cancel,
            start=[batch for batch in start if batch.first in manager.tasks],
        )

    async def _on_heartbeat(self, message: Msg) -> None:
        try:
            heartbeat = _heartbeat_decoder.decode(message.data)
        except msgspec.DecodeError:
            logger.warning("heartbeat_unreadable", subject=message.subject)
            return
        if message.subject != self._subjects.heartbeat(heartbeat.manager_id):
            return
        now = time.monotonic()
        session = self._sessions.get(heartbeat.manager_id)
        if session is None or session.incarnation != heartbeat.incarnation:
            await self._dispatcher.ask_to_synchronise(heartbeat.manager_id)
            return
        if self._sessions.heard(session, heartbeat.capacity, now):
            self.writer.nudge()
        missed = heartbeat.epoch != self.epoch or heartbeat.pushes_seen < session.pushes
        if missed and now - session.last_push_at > RESEND_SECONDS:
            await self._dispatcher.ask_to_synchronise(heartbeat.manager_id)

    async def _refuse(self, message: Msg, code: str, why: str) -> None:
        logger.warning("report_refused", subject=message.subject, code=code, why=why)
        await message.respond(_encoder.encode(ReportReply(error=code, message=why)))


def _ignore(_: Committed | PenstockError) -> None:
    """Time passes without anyone waiting for it."""
