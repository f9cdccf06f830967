"""What managers say to the leader, and what they are answered.

Reports are answered after the commit. A manager must synchronise with this leader before anything
that it reports is taken: until then the leader does not know what it holds. Heartbeats are stored
nowhere; they only show that a manager lives, and whether it got all that was pushed to it.
"""

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress

import msgspec
import structlog
from nats.aio.msg import Msg

from penstock.coordinator.commands import LoseManager, ReportTasks, SynchroniseManager
from penstock.coordinator.dispatch import Dispatcher
from penstock.coordinator.sessions import Session, Sessions
from penstock.coordinator.writer import Committed, Writer
from penstock.errors import Forbidden, NotLeader, PenstockError
from penstock.events import Attempt, ManagerId, Subjects
from penstock.events.connection import Connection
from penstock.events.manager_protocol import Heartbeat, Report, ReportReply, Sync, SyncReply
from penstock.projections import Online

logger = structlog.get_logger("penstock.coordinator")

LIVENESS_CHECK_SECONDS = 1.0
RESEND_SECONDS = 1.0

_report_decoder = msgspec.msgpack.Decoder(Report)
_sync_decoder = msgspec.msgpack.Decoder(Sync)
_heartbeat_decoder = msgspec.msgpack.Decoder(Heartbeat)
_encoder = msgspec.msgpack.Encoder()


class Conversation:
    def __init__(
        self,
        connection: Connection,
        subjects: Subjects,
        writer: Writer,
        sessions: Sessions,
        dispatcher: Dispatcher,
    ) -> None:
        self._connection = connection
        self._subjects = subjects
        self._writer = writer
        self._state = writer.state
        self._sessions = sessions
        self._dispatcher = dispatcher

    async def run(self) -> None:
        """Listen, and notice who has fallen silent, until cancelled."""
        subscriptions = [
            await self._connection.subscribe(self._subjects.report("*"), cb=self._on_report),
            await self._connection.subscribe(self._subjects.sync("*"), cb=self._on_sync),
            await self._connection.subscribe(self._subjects.heartbeat("*"), cb=self._on_heartbeat),
        ]
        try:
            with suppress(NotLeader):
                await self._take_up()
            await self._watch_liveness()
        finally:
            if self._connection.is_connected:
                for subscription in subscriptions:
                    await subscription.unsubscribe()

    async def _take_up(self) -> None:
        """Go on where the leader before left off."""
        for manager in list(self._state.managers.values()):
            if isinstance(manager.connection, Online):
                await self._dispatcher.ask_to_synchronise(manager.id)
            elif manager.tasks:
                await self._lose(manager.id, "The manager is offline.")

    async def _watch_liveness(self) -> None:
        while True:
            await asyncio.sleep(LIVENESS_CHECK_SECONDS)
            self._writer.nudge()
            for manager_id in self._sessions.silent(time.monotonic()):
                logger.warning("manager_lost", manager=manager_id)
                with suppress(NotLeader):
                    await self._lose(manager_id, "The manager was not heard of for too long.")

    async def _lose(self, manager_id: ManagerId, reason: str) -> None:
        await self._writer.ask(
            LoseManager(actor="coordinator", manager_id=manager_id, reason=reason)
        )

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

        self._writer.submit(command, done)

    async def _on_sync(self, message: Msg) -> None:
        try:
            sync = _sync_decoder.decode(message.data)
            if message.subject != self._subjects.sync(sync.manager_id):
                raise Forbidden("This is another manager's subject.")
            reply = await self._synchronise(sync)
        except msgspec.DecodeError as error:
            reply = SyncReply(error="invalid", message=str(error))
        except PenstockError as error:
            reply = SyncReply(error=error.code, message=error.message)
        await message.respond(_encoder.encode(reply))
        self._writer.nudge()

    async def _synchronise(self, sync: Sync) -> SyncReply:
        self._sessions.close(sync.manager_id)
        committed = await self._writer.ask(
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
        manager = self._state.managers[sync.manager_id]
        cancel = [
            Attempt(task_id, task.attempt)
            for task_id in sorted(manager.tasks)
            if (task := self._state.tasks[task_id]).cancel_requested
        ]
        self._sessions.open(
            Session(sync.manager_id, sync.incarnation, sync.capacity), time.monotonic()
        )
        logger.info("manager_synchronised", manager=sync.manager_id, held=len(sync.held))
        return SyncReply(
            epoch=self._state.epoch,
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
            self._writer.nudge()
        missed = heartbeat.epoch != self._state.epoch or heartbeat.pushes_seen < session.pushes
        if missed and now - session.last_push_at > RESEND_SECONDS:
            await self._dispatcher.ask_to_synchronise(heartbeat.manager_id)

    async def _refuse(self, message: Msg, code: str, why: str) -> None:
        logger.warning("report_refused", subject=message.subject, code=code, why=why)
        await message.respond(_encoder.encode(ReportReply(error=code, message=why)))
