"""Wakes the core when time alone changes something.

The core says when that is; the clock is given, so that a test can let time pass as it likes.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from penstock.clock import Clock
from penstock.events import SECOND, Timestamp

CallLater: TypeAlias = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


def _in_this_loop(seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, callback)


class Timer:
    def __init__(
        self, clock: Clock, fire: Callable[[], None], call_later: CallLater = _in_this_loop
    ) -> None:
        self._clock = clock
        self._fire = fire
        self._call_later = call_later
        self._due: Timestamp | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due: Timestamp | None) -> None:
        """Fire at this time instead of any other; never, for None."""
        if due == self._due and self._handle is not None:
            return
        self.cancel()
        if due is not None:
            self._due = due
            delay_seconds = max(0, due - self._clock.now()) / SECOND
            self._handle = self._call_later(delay_seconds, self._time_has_come)

    def cancel(self) -> None:
        self._due = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _time_has_come(self) -> None:
        """Clocks that are set, or stand still in a test, may not be there yet: look again then."""
        due, self._handle = self._due, None
        if due is not None and self._clock.now() < due:
            self._due = None
            self.set(due)
            return
        self._due = None
        self._fire()
