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
from nats.errors import Error as NatsError

from penstock.coordinator.commands import LoseManager, ReportTasks, SynchroniseManager
from penstock.coordinator.decisions.managers import to_cancel, to_drop
from penstock.coordinator.dispatch import Dispatcher
from penstock.coordinator.sessions import Session, Sessions
from penstock.coordinator.writer import Committed, Writer
from penstock.errors import Forbidden, LogFull, NotLeader, PenstockError, Unavailable
from penstock.events import ManagerId, Subjects
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
            with suppress(NotLeader, LogFull):
                await self._take_up()
            await self._watch_liveness()
        finally:
            if self._connection.is_connected:
                for subscription in subscriptions:
                    await subscription.unsubscribe()

    async def _take_up(self) -> None:
        """Go on where the leader before left off."""
        left_behind = []
        for manager in list(self._state.managers.values()):
            if isinstance(manager.connection, Online):
                await self._dispatcher.ask_to_synchronise(manager.id)
            elif manager.tasks or manager.task_group_id is not None:
                left_behind.append(manager.id)
        await self._lose(left_behind, "The manager is offline.")

    async def _watch_liveness(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(LIVENESS_CHECK_SECONDS)
            now = time.monotonic()
            # A process that was paused has heard nobody, and must not blame them for it.
            self._sessions.forgive(max(0.0, now - began - 2 * LIVENESS_CHECK_SECONDS))
            self._writer.nudge()
            if self._writer.full:
                continue
            if silent := self._sessions.silent(now):
                logger.warning("managers_lost", managers=silent)
                # A full log commits it when there is room.
                with suppress(NotLeader, LogFull):
                    await self._lose(silent, "The manager was not heard of for too long.")

    async def _lose(self, manager_ids: list[ManagerId], reason: str) -> None:
        """All in one go: a manager that synchronises in between must not be lost after that."""
        commands = [
            LoseManager(actor="coordinator", manager_id=manager_id, reason=reason)
            for manager_id in manager_ids
        ]
        await asyncio.gather(*(self._writer.ask(command) for command in commands))

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
        if self._writer.full:
            await self._refuse(message, LogFull.code, LogFull().message)
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
                reply = ReportReply(epoch=self._state.epoch, sequence=outcome.sequence)
            return _respond(message, reply)

        self._writer.submit(command, done)

    async def _on_sync(self, message: Msg) -> None:
        try:
            sync = _sync_decoder.decode(message.data)
            if message.subject != self._subjects.sync(sync.manager_id):
                raise Forbidden("This is another manager's subject.")
            await self._synchronise(sync, message)
        except msgspec.DecodeError as error:
            await _respond(message, SyncReply(error="invalid", message=str(error)))
        except PenstockError as error:
            await _respond(message, SyncReply(error=error.code, message=error.message))
        except Exception:
            # Without an answer the manager would wait, and then ask for the same again.
            logger.exception("sync_failed", subject=message.subject)
            await _respond(message, SyncReply(error="internal", message="See the log."))

    async def _synchronise(self, sync: Sync, message: Msg) -> None:
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
        # Nothing is pushed to a manager without a session, so the answer is made from the state of
        # the very moment in which the session begins, and what follows is held back behind it.
        manager = self._state.managers[sync.manager_id]
        online = manager.connection
        if not isinstance(online, Online) or online.incarnation != sync.incarnation:
            raise Unavailable("The manager was given up meanwhile. Synchronise again.")
        session = Session(sync.manager_id, sync.incarnation, held_back=[])
        self._sessions.open(session, sync.capacity, time.monotonic())
        reply = SyncReply(
            epoch=self._state.epoch,
            task_group=(
                self._dispatcher.assignment(manager.task_group_id)
                if manager.task_group_id is not None
                else None
            ),
            drop=to_drop(self._state, manager, sync.held),
            cancel=to_cancel(self._state, manager),
        )
        await _respond(message, reply)
        await self._dispatcher.begin(session, committed.answer.start)
        logger.info("manager_synchronised", manager=sync.manager_id, held=len(sync.held))
        self._writer.nudge()

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
        await _respond(message, ReportReply(error=code, message=why))


async def _respond(message: Msg, reply: ReportReply | SyncReply) -> None:
    try:
        await message.respond(_encoder.encode(reply))
    except NatsError as error:
        # Whoever asked will ask again.
        logger.warning("answer_not_sent", subject=message.subject, why=str(error))
