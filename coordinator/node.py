"""A coordinator: stands by, and leads when it is its turn.

A standby folds the log all the time, so that it can lead at once. When the lease is free it takes
it, reads the log to its very end and appends `LeaderElected`, expecting exactly that end. If
someone else was quicker, the log has gone on, and it reads on. The lease only keeps candidates from
disturbing each other; that an old leader can do no harm is ensured by the log, which refuses its
commits from the moment of the election.

When the role is lost, everything that belonged to it is thrown away, connection included, and the
node stands by again with what the log says.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from penstock.clock import Clock
from penstock.coordinator.leader import Leader
from penstock.coordinator.snapshotter import Snapshotter
from penstock.errors import Conflict, Corrupt, Deposed, Unavailable
from penstock.events import START, Subjects, decode
from penstock.events.connection import Connection, connect
from penstock.events.derived import EventsPublisher
from penstock.events.jetstream import JetStreamLog
from penstock.events.lease import Lease
from penstock.events.snapshots import SnapshotStore
from penstock.events.streams import ensure_streams
from penstock.projections import FOLD_VERSION, State, apply, decode_state

logger = structlog.get_logger("penstock.coordinator")

RETRY_SECONDS = 0.5


class Node:
    def __init__(
        self,
        *,
        name: str,
        url: str,
        nats_url: str,
        subjects: Subjects,
        clock: Clock,
        patience_seconds: float,
    ) -> None:
        self.name = name
        self.url = url
        self.leader: Leader | None = None
        self.log: JetStreamLog | None = None
        """The log as this node reads it; None while it has no connection."""
        self._nats_url = nats_url
        self._subjects = subjects
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._state = State()
        self._position = START
        self._moved = asyncio.Condition()
        self._leave = asyncio.Event()

    @property
    def state(self) -> State:
        """The state as this node knows it: the leader's own, or a follower's."""
        return self.leader.state if self.leader is not None else self._state

    @property
    def sequence(self) -> int:
        return self.leader.sequence if self.leader is not None else self._position.sequence

    async def wait_beyond(self, sequence: int, timeout_seconds: float) -> None:
        """Return when the log is known to go on after a sequence, or when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds), self._moved:
                await self._moved.wait_for(lambda: self.sequence > sequence)

    async def _tell_movement(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    def leave(self) -> None:
        """Let go of the role after what is under way, and end `run`."""
        self._leave.set()

    async def run(self) -> None:
        """Stand by and lead until told to leave. Raises `Corrupt` when the log is damaged."""
        while not self._leave.is_set():
            try:
                await self._term()
            except* Corrupt as corrupt:
                raise corrupt.exceptions[0] from None
            except* (Deposed, Unavailable, Conflict) as lost:
                logger.warning("role_lost", why=[str(error) for error in lost.exceptions])
                await asyncio.sleep(RETRY_SECONDS)

    async def _term(self) -> None:
        """From a fresh connection to the loss of the role."""
        connection = await connect(self._nats_url, f"coordinator-{self.name}")
        try:
            await ensure_streams(connection, self._subjects)
            self.log = JetStreamLog(connection, self._subjects)
            store = SnapshotStore(connection, self._subjects)
            await self._restore(store)
            snapshotter = Snapshotter(store, self._clock, self._position)
            lease = Lease(connection, self._subjects, self.name, self.url)
            folding = asyncio.create_task(self._fold(self.log))
            try:
                if await self._acquire(lease, folding):
                    await self._hold(connection, lease, self.log, snapshotter, folding)
            finally:
                await _cancel(folding)
        finally:
            self.leader = None
            self.log = None
            await connection.close()

    async def _restore(self, store: SnapshotStore) -> None:
        self._state, self._position = State(), START
        snapshot = await store.newest(FOLD_VERSION)
        if snapshot is None:
            return
        try:
            self._state = decode_state(snapshot.body)
        except msgspec.DecodeError as error:
            # It is a cache: the log has everything.
            logger.warning("snapshot_unreadable", why=str(error))
            return
        self._position = snapshot.manifest.position
        logger.info("restored_snapshot", sequence=self._position.sequence)

    async def _fold(self, log: JetStreamLog) -> None:
        async for entry in log.follow(self._position):
            apply(self._state, entry.commit, entry.position.sequence)
            self._position = entry.position
            await self._tell_movement()

    async def _acquire(self, lease: Lease, folding: asyncio.Task[None]) -> bool:
        """Wait until the lease is ours. False when told to leave."""
        leaving = asyncio.create_task(self._leave.wait())
        try:
            while not self._leave.is_set():
                if await lease.acquire():
                    return True
                await _first(lease.wait_for_change(), folding, leaving)
            return False
        finally:
            await _cancel(leaving)

    async def _hold(
        self,
        connection: Connection,
        lease: Lease,
        log: JetStreamLog,
        snapshotter: Snapshotter,
        folding: asyncio.Task[None],
    ) -> None:
        """Lead for as long as the lease can be kept."""
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep(lease, enough))
            await _first(self._catch_up(log), folding)
            await _cancel(folding)
            await self._lead(connection, lease, log, snapshotter)
            enough.set()
        await lease.release()

    async def _catch_up(self, log: JetStreamLog) -> None:
        end = await log.end()
        async with self._moved:
            await self._moved.wait_for(lambda: self._position.sequence >= end)

    async def _lead(
        self, connection: Connection, lease: Lease, log: JetStreamLog, snapshotter: Snapshotter
    ) -> None:
        writer = await log.elect(self.name, self.url, self._position, self._clock.now())
        apply(self._state, decode(await log.read(writer.epoch), writer.epoch), writer.epoch)
        self._position = writer.position
        leader = Leader(
            connection=connection,
            subjects=self._subjects,
            log=log,
            log_writer=writer,
            state=self._state,
            clock=self._clock,
            patience_seconds=self._patience_seconds,
            at_rest=snapshotter.at_rest,
            may_lead=lambda: lease.remaining > 0,
            moved=self._tell_movement,
        )
        self.leader = leader
        logger.info("leading", epoch=writer.epoch, node=self.name)
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(leader.run())
            others = [
                tasks.create_task(EventsPublisher(connection, self._subjects, log).run()),
                tasks.create_task(_raise_when_closed(connection)),
            ]
            await self._leave.wait()
            leader.stop()
            await leading
            for task in others:
                task.cancel()
        await snapshotter.finish(leader.state, writer.position)


async def _keep(lease: Lease, enough: asyncio.Event) -> None:
    """Renew the lease. Never broken off: a renewal that is cut short looks like a loss."""
    while not enough.is_set():
        if not await lease.renew():
            raise Deposed("The lease was lost.")
        with suppress(TimeoutError):
            await asyncio.wait_for(enough.wait(), lease.ttl_seconds / 3)


async def _raise_when_closed(connection: Connection) -> None:
    await connection.closed_for_good.wait()
    raise Unavailable("The connection to NATS is closed.")


async def _first(step: Coroutine[Any, Any, None], *others: asyncio.Task[Any]) -> None:
    """Wait for a step, or until one of the others ends. Raises what any of them raised."""
    own = asyncio.create_task(step)
    try:
        ended, _ = await asyncio.wait({own, *others}, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        await _cancel(own)


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
