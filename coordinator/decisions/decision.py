"""What a decision is."""

from typing import Any

import msgspec

from penstock.events import AnyEvent, Attempt, TaskId, Timestamp


class Decision(msgspec.Struct, frozen=True):
    """Events to append, and what to answer once they are durable."""

    events: list[AnyEvent] = []
    answer: Any = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    ranges: list[tuple[TaskId, int]]
    at: Timestamp
    duplicate: bool = False


class CancellationStatistics(msgspec.Struct, frozen=True, kw_only=True):
    ready_cancelled: int
    running_cancelled: int
    running_not_cancellable: int


class Synchronised(msgspec.Struct, frozen=True, kw_only=True):
    start: list[Attempt]
    """What the manager should hold and does not."""
