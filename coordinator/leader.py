"""The leading coordinator: everything that exists only while the role is held.

It owns the state, the writer and the conversation with the managers. A leader is made by an
election, runs until it is deposed or stopped, and is never used again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.clock import Clock
from penstock.coordinator.commands import AnyCommand, Initialise, PassTime, SubmitTasks
from penstock.coordinator.conversation import Conversation
from penstock.coordinator.decisions import next_due
from penstock.coordinator.dispatch import Dispatcher
from penstock.coordinator.sessions import Sessions
from penstock.coordinator.specs import Specs
from penstock.coordinator.timer import Timer
from penstock.coordinator.waiters import Expected, Waiters
from penstock.coordinator.writer import Callbacks, Committed, Writer
from penstock.errors import LogFull, NotLeader, PenstockError
from penstock.events import (
    AnyEvent,
    Log,
    LogWriter,
    Position,
    Subjects,
    TasksCancelled,
    TasksSubmitted,
)
from penstock.events.connection import Connection
from penstock.projections import Online, State, has_ended


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
        may_lead: Callable[[], bool],
        moved: Callable[[], Awaitable[None]],
    ) -> None:
        self.state = state
        self.waiters = Waiters()
        self.specs = Specs(log)
        self._log_writer = log_writer
        self._at_rest = at_rest
        self._moved = moved
        self._timer = Timer(clock, self._time_has_come)
        online = [m.id for m in state.managers.values() if isinstance(m.connection, Online)]
        sessions = Sessions(online, time.monotonic(), patience_seconds)
        self._dispatcher = Dispatcher(connection, subjects, state, sessions, self.specs)
        self.writer = Writer(
            log_writer,
            state,
            clock,
            Callbacks(
                capacities=lambda: sessions.capacities,
                decided=self._decided,
                committed=self._committed,
                rested=self._rested,
                may_lead=may_lead,
            ),
        )
        self._conversation = Conversation(
            connection, subjects, self.writer, sessions, self._dispatcher
        )

    @property
    def sequence(self) -> int:
        return self.writer.sequence

    async def ask(self, command: AnyCommand) -> Committed:
        return await self.writer.ask(command)

    async def submit_and_expect(self, command: SubmitTasks) -> tuple[Committed, Expected | None]:
        """Submit one task and expect its end, from the moment of the commit: none can be missed."""
        expected: list[Expected] = []

        def expect(committed: Committed) -> None:
            if not committed.answer.duplicate:
                expected.append(self.waiters.expect(committed.answer.ranges[0][0]))

        committed = await self.writer.ask(command, expect)
        return committed, expected[0] if expected else None

    def stop(self) -> None:
        """End `run` after the commit that is under way."""
        self.writer.stop()

    async def run(self) -> None:
        """Lead until told to stop. Raises `Deposed` or `Corrupt`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self.writer.run())
                others = [
                    tasks.create_task(self._initialise()),
                    tasks.create_task(self._conversation.run()),
                ]
                await writing
                for task in others:
                    task.cancel()
        finally:
            self._timer.cancel()
            self.waiters.abandon()

    async def _initialise(self) -> None:
        # A full log commits it when there is room.
        with suppress(NotLeader, LogFull):
            await self.ask(Initialise(actor="coordinator", reason="first start"))

    def _decided(self, event: AnyEvent, sequence: int, index: int) -> None:
        if isinstance(event, TasksSubmitted):
            self.specs.remember(event, sequence, index)

    async def _committed(self, events: list[AnyEvent]) -> None:
        await self._dispatcher.deliver(events)
        await self._moved()
        self.waiters.announce(events, self.sequence)
        if any(isinstance(event, TasksCancelled) for event in events):
            self.waiters.give_up(lambda task_id: has_ended(self.state, task_id))

    def _rested(self) -> None:
        """The state is exactly what the log says, until the next command."""
        self._at_rest(self.state, self._log_writer.position)
        self._timer.set(next_due(self.state))

    def _time_has_come(self) -> None:
        self.writer.submit(PassTime(actor="timer"), _ignore)


def _ignore(_: Committed | PenstockError) -> None:
    """Time passes without anyone waiting for it."""
