"""The manager's side of the protocol with the coordinator.

Synchronise first, and again whenever something may have been missed: after the line to NATS was
cut, when a number is missing among the pushes, when another leader speaks, when it is asked for.
While that is under way pushes wait. A push with number 1 begins a new count, whatever came before.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable

import msgspec
import structlog
from nats.aio.msg import Msg

from penstock.events.append import Unanswered
from penstock.events.connection import Connection
from penstock.events.manager_protocol import (
    AssignGroup,
    CancelTasks,
    ConfigUpdate,
    Drain,
    Heartbeat,
    Push,
    PushMessage,
    ReleaseGroup,
    Resync,
    Shutdown,
    Sync,
    SyncReply,
    Tasks,
)
from penstock.events.subjects import Subjects
from penstock.manager.core import Core
from penstock.manager.crew import Crew
from penstock.manager.registration import Registration
from penstock.manager.reporter import Reporter
from penstock.manager.spool import Spool

logger = structlog.get_logger("penstock.manager")

CALL_SECONDS = 5.0
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0


class Link:
    def __init__(
        self,
        connection: Connection,
        subjects: Subjects,
        registration: Registration,
        core: Core,
        crew: Crew,
        spool: Spool,
        *,
        epoch: int,
        heartbeat_seconds: float,
        on_epoch: Callable[[], None],
        on_shutdown: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._subjects = subjects
        self._registration = registration
        self._manager_id = registration.manager_id
        self._core = core
        self._crew = crew
        self.epoch = epoch
        self._heartbeat_seconds = heartbeat_seconds
        self._on_epoch = on_epoch
        self._on_shutdown = on_shutdown
        self._incarnation = uuid.uuid4().hex
        self.synchronised = asyncio.Event()
        self.reporter = Reporter(
            connection,
            subjects.report(registration.manager_id),
            registration.manager_id,
            self._incarnation,
            core,
            spool,
            epoch=lambda: self.epoch,
            synchronised=self.synchronised,
            on_not_synchronised=self._want_sync,
        )
        self._pushes_seen = 0
        self._waiting_pushes: list[Push] = []
        self._sync_wanted = asyncio.Event()
        self._heartbeat_now = asyncio.Event()
        self._encoder = msgspec.msgpack.Encoder()
        self._push_decoder = msgspec.msgpack.Decoder(Push)
        self._sync_decoder = msgspec.msgpack.Decoder(SyncReply)

    async def run(self) -> None:
        stop_watching = self._connection.watch(self._want_sync)
        subscription = await self._connection.subscribe(
            self._subjects.push(self._manager_id), cb=self._on_push
        )
        self._want_sync()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_synchronised())
                tasks.create_task(self.reporter.run())
                tasks.create_task(self._keep_beating())
                tasks.create_task(self._fail_when_closed())
        finally:
            stop_watching()
            if self._connection.is_connected:
                await subscription.unsubscribe()

    async def _fail_when_closed(self) -> None:
        await self._connection.closed_for_good.wait()
        await self._connection.ready()

    # Pushes

    async def _on_push(self, message: Msg) -> None:
        try:
            push = self._push_decoder.decode(message.data)
        except msgspec.DecodeError as error:
            logger.error("push_unreadable", error=str(error))
            self._want_sync()
            return
        if not self.synchronised.is_set():
            self._waiting_pushes.append(push)
        else:
            self._take(push)
            self._crew.rest()

    def _take(self, push: Push) -> None:
        if push.epoch < self.epoch:
            logger.warning("push_of_deposed_leader_refused", epoch=push.epoch, now=self.epoch)
        elif push.epoch > self.epoch:
            self._want_sync()
        elif push.number == 1 or push.number == self._pushes_seen + 1:
            self._pushes_seen = push.number
            for message in push.messages:
                self._act(message)
        elif push.number > self._pushes_seen or any(
            isinstance(message, Resync) for message in push.messages
        ):
            self._want_sync()

    def _act(self, message: PushMessage) -> None:
        core = self._core
        match message:
            case Tasks():
                core.on_tasks(message.batches)
            case CancelTasks():
                self._crew.keep(
                    core.on_cancel(
                        message.tasks, message.reason, message.grace_seconds, time.monotonic()
                    )
                )
                for cancel in core.cancellations():
                    self._crew.publish(cancel)
            case AssignGroup():
                core.on_group(message)
                self._heartbeat_now.set()
            case ReleaseGroup():
                core.on_release(message.task_group_id)
            case ConfigUpdate():
                self._heartbeat_seconds = message.heartbeat_seconds or self._heartbeat_seconds
                self._heartbeat_now.set()
            case Drain():
                core.draining = True
                core.give_back_buffer()
                self._heartbeat_now.set()
            case Shutdown():
                self._on_shutdown()
            case Resync():
                self._want_sync()

    # Synchronisation

    def _want_sync(self) -> None:
        self.synchronised.clear()
        self._sync_wanted.set()

    async def _keep_synchronised(self) -> None:
        while True:
            await self._sync_wanted.wait()
            self._sync_wanted.clear()
            await self._synchronise()

    async def _synchronise(self) -> None:
        delay = FIRST_DELAY_SECONDS
        while True:
            await self._connection.ready()
            sync = Sync(
                manager_id=self._manager_id,
                incarnation=self._incarnation,
                epoch=self.epoch,
                task_group_id=(
                    self._core.task_group.task_group_id if self._core.task_group else None
                ),
                held=self._core.held(),
                capacity=self._core.capacity,
                worker_count=self._core.worker_count,
                device=self._registration.device,
            )
            # What was pushed before may contradict the answer; what is missing comes after it.
            self._waiting_pushes.clear()
            try:
                answer = await self._connection.call(
                    self._subjects.sync(self._manager_id),
                    self._encoder.encode(sync),
                    timeout_seconds=CALL_SECONDS,
                )
                reply = self._sync_decoder.decode(answer.data)
            except Unanswered:
                logger.debug("no_coordinator_answers")
            except msgspec.DecodeError as error:
                logger.error("sync_answer_unreadable", error=str(error))
            else:
                if self._sync_wanted.is_set():
                    # Something else may have been missed while the answer was on its way.
                    self._sync_wanted.clear()
                    continue
                if await self._apply(reply):
                    return
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    async def _apply(self, reply: SyncReply) -> bool:
        if reply.error:
            logger.warning("sync_refused", code=reply.error, message=reply.message)
            if reply.error == "not_found":
                await self._registration.register()
            return False
        if reply.epoch < self.epoch:
            logger.warning("sync_with_deposed_leader_refused", epoch=reply.epoch, now=self.epoch)
            return False
        if reply.epoch > self.epoch:
            self.epoch = reply.epoch
            self._on_epoch()
        self._pushes_seen = 0
        self._crew.keep(self._core.on_sync_reply(reply, time.monotonic()))
        for cancel in self._core.cancellations():
            self._crew.publish(cancel)
        self.synchronised.set()
        logger.info(
            "synchronised",
            epoch=reply.epoch,
            held=self._core.responsible_for,
            dropped=len(reply.drop),
        )
        pushes, self._waiting_pushes = self._waiting_pushes, []
        for push in pushes:
            if self.synchronised.is_set():
                self._take(push)
        self._heartbeat_now.set()
        self._crew.rest()
        return True

    # Heartbeats

    def beat(self) -> None:
        """Tell at once what the next heartbeat would say."""
        self._heartbeat_now.set()

    async def _keep_beating(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._heartbeat_now.wait(), self._heartbeat_seconds)
            self._heartbeat_now.clear()
            if self._connection.is_connected and self.synchronised.is_set():
                await self._connection.publish(
                    self._subjects.heartbeat(self._manager_id),
                    self._encoder.encode(
                        Heartbeat(
                            manager_id=self._manager_id,
                            incarnation=self._incarnation,
                            epoch=self.epoch,
                            pushes_seen=self._pushes_seen,
                            capacity=self._core.capacity,
                            held=self._core.responsible_for,
                            busy_workers=self._core.busy_workers,
                        )
                    ),
                )
