"""A worker that said hello, as the manager knows it."""

from penstock.manager import pacing
from penstock.manager.buffer import Key, Source


class WorkerState:
    """`held` is in the order in which the worker will run it."""

    __slots__ = ("average_seconds", "held", "number", "pid")

    def __init__(self, number: int, pid: int, held: dict[Key, Source | None]) -> None:
        self.number = number
        self.pid = pid
        self.held = held
        """A task that an earlier manager gave to it has no source."""
        self.average_seconds: float | None = None

    @property
    def room(self) -> int:
        credit = pacing.credit(self.average_seconds)
        held = len(self.held)
        # Not for each task that was finished, but well before the worker runs dry.
        return credit - held if held * 4 <= credit * 3 else 0
