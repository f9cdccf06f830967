"""The time, as something that can be given: real in production, by hand in tests."""

import time
from typing import Protocol

from penstock.events.event import Timestamp


class Clock(Protocol):
    def now(self) -> Timestamp: ...


class SystemClock:
    def now(self) -> Timestamp:
        return time.time_ns() // 1000


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self, now: Timestamp = 0) -> None:
        self._now = now

    def now(self) -> Timestamp:
        return self._now

    def advance(self, microseconds: int) -> None:
        self._now += microseconds
