"""Tells managers what was decided, after it is durable.

Each manager has a subject of its own. A push is plain NATS and can get lost; it carries the epoch
and a number, so that the manager notices and synchronises. A manager that has not synchronised with
this leader is told nothing: it will be told everything when it does.
"""

import time

import msgspec
import structlog
from nats.aio.client import Client as Nats
from nats.errors import Error as NatsError

from penstock.coordinator.decisions.attempts import OVERDUE
from penstock.coordinator.sessions import Session, Sessions
from penstock.coordinator.specs import Specs
from penstock.events import (
    AnyEvent,
    Attempt,
    ManagerId,
    Subjects,
    TaskCancellationRequested,
    TaskGroupAssigned,
    TaskGroupId,
    TaskGroupReleased,
    TasksAssigned,
    TasksFinished,
    TasksRequeued,
)
from penstock.events.manager_protocol import (
    AssignGroup,
    CancelTasks,
    Push,
    PushMessage,
    ReleaseGroup,
    Resync,
    TaskBatch,
    Tasks,
)
from penstock.projections import State, range_of

logger = structlog.get_logger("penstock.coordinator")

PUSH_LIMIT_BYTES = 512 * 1024

_encoder = msgspec.msgpack.Encoder()


class Dispatcher:
    def __init__(
        self, nats: Nats, subjects: Subjects, state: State, sessions: Sessions, specs: Specs
    ) -> None:
        self._nats = nats
        self._subjects = subjects
        self._state = state
        self._sessions = sessions
        self._specs = specs

    async def deliver(self, events: list[AnyEvent]) -> None:
        """Push what these events mean for managers."""
        outbox: dict[ManagerId, list[PushMessage]] = {}

        def put(manager_id: ManagerId, message: PushMessage) -> None:
            if self._sessions.get(manager_id) is not None:
                outbox.setdefault(manager_id, []).append(message)

        for event in events:
            match event:
                case TasksAssigned():
                    batches = await self._batches(event)
                    for part in _parts(batches):
                        put(event.manager_id, Tasks(batches=part))
                case TaskGroupAssigned():
                    put(event.manager_id, self.assignment(event.task_group_id))
                case TaskGroupReleased():
                    put(event.manager_id, ReleaseGroup(task_group_id=event.task_group_id))
                case TaskCancellationRequested():
                    for manager_id, attempts in self._holders(event.tasks).items():
                        put(manager_id, CancelTasks(tasks=attempts, reason=event.reason))
                case TasksFinished() | TasksRequeued() if event.reason == OVERDUE:
                    put(event.manager_id, CancelTasks(tasks=_ended(event), reason=event.reason))
                case _:
                    pass
        for manager_id, messages in outbox.items():
            await self._push(manager_id, messages)

    def assignment(self, task_group_id: TaskGroupId) -> AssignGroup:
        group = self._state.task_groups[task_group_id]
        return AssignGroup(
            task_group_id=group.id,
            name=group.name,
            task_prefetch_count=group.task_prefetch_count,
        )

    async def begin(self, session: Session, missing: list[Attempt]) -> None:
        """The manager has the answer to its synchronisation: send it what it lacks, then all that
        was held back meanwhile."""
        batches: list[TaskBatch] = []
        for wanted in missing:
            if self._holds(session.manager_id, wanted):
                source = range_of(self._state, wanted.task_id)
                batches += await self._specs.batches(
                    source.sequence, source.event, wanted.task_id, 1, wanted.attempt
                )
        for part in _parts(batches):
            await self._send(session, [Tasks(batches=part)])
        cancelled = [
            wanted
            for wanted in missing
            if self._holds(session.manager_id, wanted)
            and self._state.tasks[wanted.task_id].cancel_requested
        ]
        if cancelled:
            await self._send(session, [CancelTasks(tasks=cancelled)])
        while session.held_back:
            messages, session.held_back = session.held_back, []
            await self._send_in_parts(session, messages)
        session.held_back = None

    def _holds(self, manager_id: ManagerId, wanted: Attempt) -> bool:
        task = self._state.tasks.get(wanted.task_id)
        return task is not None and task.attempt == wanted.attempt and task.manager_id == manager_id

    async def ask_to_synchronise(self, manager_id: ManagerId) -> None:
        """Also reaches a manager without a session: the epoch alone tells it what to do."""
        session = self._sessions.get(manager_id) or Session(manager_id, "")
        await self._send(session, [Resync()])

    async def _batches(self, event: TasksAssigned) -> list[TaskBatch]:
        batches: list[TaskBatch] = []
        for span in event.tasks:
            source = range_of(self._state, span.first)
            batches += await self._specs.batches(
                source.sequence, source.event, span.first, span.count, span.attempt
            )
        return batches

    def _holders(self, attempts: list[Attempt]) -> dict[ManagerId, list[Attempt]]:
        holders: dict[ManagerId, list[Attempt]] = {}
        for asked in attempts:
            task = self._state.tasks.get(asked.task_id)
            if task is not None and task.attempt == asked.attempt:
                holders.setdefault(task.manager_id, []).append(asked)
        return holders

    async def _push(self, manager_id: ManagerId, messages: list[PushMessage]) -> None:
        session = self._sessions.get(manager_id)
        if session is None:
            return
        if session.held_back is not None:
            session.held_back.extend(messages)
        else:
            await self._send_in_parts(session, messages)

    async def _send_in_parts(self, session: Session, messages: list[PushMessage]) -> None:
        """As few pushes as the size of a message allows."""
        together: list[PushMessage] = []
        size = 0
        for message in messages:
            cost = _size(message)
            if together and size + cost > PUSH_LIMIT_BYTES:
                await self._send(session, together)
                together, size = [], 0
            together.append(message)
            size += cost
        await self._send(session, together)

    async def _send(self, session: Session, messages: list[PushMessage]) -> None:
        session.pushes += 1
        session.last_push_at = time.monotonic()
        push = Push(epoch=self._state.epoch, number=session.pushes, messages=messages)
        subject = self._subjects.push(session.manager_id)
        try:
            await self._nats.publish(subject, _encoder.encode(push))
        except NatsError as error:
            # The manager will synchronise when it can be reached, and is told everything then.
            logger.warning("push_not_sent", manager=session.manager_id, why=str(error))
            self._sessions.close(session.manager_id)


def _parts(batches: list[TaskBatch]) -> list[list[TaskBatch]]:
    """Split so that each part fits into a message."""
    parts: list[list[TaskBatch]] = [[]] if batches else []
    size = 0
    for batch in batches:
        cost = _batch_size(batch)
        if size + cost > PUSH_LIMIT_BYTES and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(batch)
        size += cost
    return parts


def _batch_size(batch: TaskBatch) -> int:
    return 100 + len(batch.spec) + len(batch.parameters)


def _size(message: PushMessage) -> int:
    match message:
        case Tasks():
            return sum(map(_batch_size, message.batches))
        case CancelTasks():
            return 100 + 16 * len(message.tasks)
        case _:
            return 1000


def _ended(event: TasksFinished | TasksRequeued) -> list[Attempt]:
    results = (
        event.tasks if isinstance(event, TasksFinished) else [retry.result for retry in event.tasks]
    )
    return [Attempt(result.task_id, result.attempt) for result in results]
