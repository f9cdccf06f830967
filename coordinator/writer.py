"""The one place where the log grows: group commit, one commit in flight.

Commands gather while a commit is under way. Then all that wait are decided, one after the other, on
the state, which evolves as it goes; what follows from them (assignments, completions) is decided
in the same pass, and all of it becomes one commit. Only when the log has acknowledged the commit
are the callers answered and the managers told: nothing is said that could still be lost.

The state runs ahead of the log by the commit in flight. That is safe because it is thrown away
together with the role when the log refuses: a deposed writer never answers.

A log that is full refuses, but keeps what it has. The callers are told, and the same commit is
tried again until there is room; a caller who repeats a submission under its idempotency key then
learns how it went.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import structlog

from penstock.clock import Clock
from penstock.coordinator.commands import AnyCommand
from penstock.coordinator.decisions import Round, decide_round
from penstock.errors import Deposed, LogFull, NotLeader, PenstockError
from penstock.events import AnyEvent, LogWriter, ManagerId
from penstock.events.commit import assemble
from penstock.projections import State

logger = structlog.get_logger("penstock.coordinator")

FULL_RETRY_SECONDS = 1.0


class Committed(msgspec.Struct, frozen=True):
    """The answer to a command, and the sequence up to which the log must be read to see it."""

    answer: Any
    sequence: int


def _nothing(_: Committed) -> None:
    """What follows from most commits."""


Done: TypeAlias = Callable[[Committed | PenstockError], Awaitable[None] | None]
"""Told the outcome. May return something to wait for, except when told `NotLeader`."""


class Callbacks(msgspec.Struct, frozen=True):
    """How the writer talks to those who have to do with what it writes."""

    capacities: Callable[[], Mapping[ManagerId, int]]
    decided: Callable[[AnyEvent, int, int], None]
    """Called for each event, with its sequence and index, before it is durable."""
    committed: Callable[[list[AnyEvent]], Awaitable[None]]
    """Called with the events of a pass once they are durable."""
    rested: Callable[[], None]
    """Called when the state is exactly what the log says."""
    may_lead: Callable[[], bool]
    """Whether the lease still holds. The log keeps a zombie from writing; this keeps it from
    deciding and answering where nothing is written."""


class Writer:
    def __init__(self, log: LogWriter, state: State, clock: Clock, callbacks: Callbacks) -> None:
        self.state = state
        self._log = log
        self._clock = clock
        self._callbacks = callbacks
        self._queue: deque[tuple[AnyCommand, Done]] = deque()
        self._wake = asyncio.Event()
        self._stopped = False
        self.full = False
        """The log has no room for the commit under way: nothing else is taken."""

    @property
    def sequence(self) -> int:
        """The last sequence that is durable."""
        return self._log.position.sequence

    def submit(self, command: AnyCommand, done: Done) -> None:
        """Queue a command. `done` is called when its outcome is durable, or it was refused."""
        if self._stopped:
            done(NotLeader())
            return
        self._queue.append((command, done))
        self._wake.set()

    async def ask(
        self, command: AnyCommand, then: Callable[[Committed], None] = _nothing
    ) -> Committed:
        """Queue a command and wait until its outcome is durable.

        `then` is called in the very moment in which it is, before anything else can happen.
        """
        if self.full:
            raise LogFull
        future: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()

        def done(outcome: Committed | PenstockError) -> None:
            if future.done():
                return
            if isinstance(outcome, PenstockError):
                future.set_exception(outcome)
            else:
                then(outcome)
                future.set_result(outcome)

        self.submit(command, done)
        return await future

    def nudge(self) -> None:
        """Look again at who could do what: something outside of the state has changed."""
        self._wake.set()

    def stop(self) -> None:
        """End `run` at the next moment of rest. Commands that still wait are refused."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Write until told to stop, or until the role is lost (`Deposed`)."""
        try:
            while not self._stopped:
                await self._wake.wait()
                self._wake.clear()
                await self.step()
        finally:
            self._stopped = True
            while self._queue:
                self._queue.popleft()[1](NotLeader())

    async def step(self) -> None:
        """Decide all that waits, commit it, then tell everyone."""
        self._check_lease()
        decided = decide_round(
            self.state,
            self._queue,
            self._callbacks.capacities(),
            self.sequence + 1,
            self._clock.now(),
            self._callbacks.decided,
        )
        if self._queue:
            self._wake.set()
        try:
            for events in decided.commits:
                await self._append(decided, events)
            if decided.events:
                await self._callbacks.committed(decided.events)
            else:
                self._check_lease()
            await self._tell(decided, self.sequence)
        except BaseException:
            for done, _ in decided.replies:
                done(NotLeader())
            raise
        self._callbacks.rested()

    def _check_lease(self) -> None:
        if not self._callbacks.may_lead():
            raise Deposed("The lease has lapsed.")

    async def _tell(self, decided: Round[Done], sequence: int) -> None:
        """Each caller once: who was told is taken off the list."""
        replies = decided.replies
        replies.reverse()
        while replies:
            done, answer = replies.pop()
            outcome = answer if isinstance(answer, PenstockError) else Committed(answer, sequence)
            if (telling := done(outcome)) is not None:
                await telling

    async def _refuse_those_who_wait(self, error: LogFull) -> None:
        """Tell those who came before it was known that the log is full. What they want is decided
        when there is room, as the commit under way is."""
        waiting = list(self._queue)
        self._queue.clear()
        self._queue.extend((command, _was_told) for command, _ in waiting)
        for _, done in waiting:
            if (telling := done(error)) is not None:
                await telling

    async def _append(self, decided: Round[Done], events: list[bytes]) -> None:
        body = assemble(
            self._log.position,
            commit_id=uuid.uuid4().hex,
            epoch=self._log.epoch,
            at=decided.at,
            events=events,
        )
        while True:
            try:
                await self._log.append(body)
            except LogFull as error:
                if not self.full:
                    logger.error("log_full", advice="make room on the disk of the log")
                self.full = True
                decided.replies = [
                    (done, answer if isinstance(answer, PenstockError) else error)
                    for done, answer in decided.replies
                ]
                await self._tell(decided, self.sequence)
                await self._refuse_those_who_wait(error)
                await asyncio.sleep(FULL_RETRY_SECONDS)
                if self._stopped:
                    raise
            else:
                break
        if self.full:
            logger.info("log_has_room_again")
        self.full = False


def _was_told(_: Committed | PenstockError) -> None:
    """Of those who were told that the log is full: they do not hear of it again."""
