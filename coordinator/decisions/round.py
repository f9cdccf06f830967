"""One round: all commands of a moment, and what follows from them, as commits to be appended."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from penstock.coordinator.commands import AnyCommand
from penstock.coordinator.decisions.decide import decide
from penstock.coordinator.decisions.schedule import schedule
from penstock.errors import PenstockError, TooLarge
from penstock.events import MAX_COMMIT_BYTES, AnyEvent, ManagerId, TaskGroupId, Timestamp
from penstock.events.commit import encode_event
from penstock.projections import State, advance, evolve

ROOM_FOR_EVENTS = MAX_COMMIT_BYTES - 1024
"""What a commit says about itself takes some room as well."""

Caller = TypeVar("Caller")


class Round(msgspec.Struct, Generic[Caller]):
    at: Timestamp
    events: list[AnyEvent] = []
    commits: list[list[bytes]] = []
    """Encoded events. Nearly always one commit: more when they do not fit into one."""
    replies: list[tuple[Caller, Any]] = []
    """Who asked, and the answer or the error."""


def decide_round(
    state: State,
    queue: deque[tuple[AnyCommand, Caller]],
    capacities: Mapping[ManagerId, int],
    sequence: int,
    now: Timestamp,
    decided: Callable[[AnyEvent, int, int], None] = lambda event, sequence, index: None,
) -> Round[Caller]:
    """Decide what waits in the queue, one after the other, evolving the state as it goes.

    `sequence` is that of the next commit. Takes no more from the queue than fits into a commit.
    """
    advance(state, now)
    made: Round[Caller] = Round(at=now)
    touched: set[TaskGroupId] = set()
    size = 0

    def emit(event: AnyEvent, encoded: bytes) -> None:
        nonlocal size
        if not made.commits or size + len(encoded) > ROOM_FOR_EVENTS:
            made.commits.append([])
            size = 0
        commit = made.commits[-1]
        place = sequence + len(made.commits) - 1
        evolve(state, event, place, len(commit))
        decided(event, place, len(commit))
        commit.append(encoded)
        size += len(encoded) + 1
        made.events.append(event)
        task_group_id = getattr(event, "task_group_id", None)
        if task_group_id is not None:
            touched.add(task_group_id)

    while queue and len(made.commits) <= 1:
        command, caller = queue.popleft()
        try:
            decision = decide(command, state, now)
            encoded = [_encode(event) for event in decision.events]
        except PenstockError as error:
            made.replies.append((caller, error))
            continue
        for event, body in zip(decision.events, encoded, strict=True):
            emit(event, body)
        made.replies.append((caller, decision.answer))
    schedule(state, capacities, sorted(touched), now, lambda event: emit(event, _encode(event)))
    return made


def _encode(event: AnyEvent) -> bytes:
    """An event that no commit can hold must be refused before anything has come of it."""
    encoded = encode_event(event)
    if len(encoded) > ROOM_FOR_EVENTS:
        raise TooLarge(f"An event of {len(encoded)} bytes does not fit into a commit.")
    return encoded
