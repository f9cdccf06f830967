"""How the counters of one task group change in a batch: sums, so that they add up in any order."""

import msgspec

from penstock.events import SECOND, Timestamp
from penstock.projections.read_models.states import CANCELLED, READY, WAITING

RATE_WINDOW = 5 * SECOND
"""The rate of a group is measured over the present and the previous window of this length."""


class RestCancelled(msgspec.Struct, frozen=True):
    at: Timestamp
    reason: str


class TaskGroupChange:
    """`counts` is by state. After `rest_cancelled`, all that was waiting or ready is cancelled."""

    __slots__ = (
        "counts",
        "first_started_at",
        "last_finished_at",
        "rate_current",
        "rate_previous",
        "rate_window",
        "rest_cancelled",
        "total",
    )

    def __init__(self) -> None:
        self.total = 0
        self.counts = [0] * 7
        self.first_started_at: Timestamp | None = None
        self.last_finished_at: Timestamp | None = None
        self.rate_window = 0
        self.rate_current = 0
        self.rate_previous = 0
        self.rest_cancelled: RestCancelled | None = None

    def started(self, at: Timestamp) -> None:
        if self.first_started_at is None or at < self.first_started_at:
            self.first_started_at = at

    def finished(self, count: int, last: Timestamp, recorded: Timestamp) -> None:
        if self.last_finished_at is None or last > self.last_finished_at:
            self.last_finished_at = last
        window = recorded // RATE_WINDOW
        if window == self.rate_window:
            self.rate_current += count
        elif window > self.rate_window:
            self.rate_previous = self.rate_current if window == self.rate_window + 1 else 0
            self.rate_window = window
            self.rate_current = count
        elif window == self.rate_window - 1:
            self.rate_previous += count

    def cancel_rest(self, at: Timestamp, reason: str) -> None:
        """What became ready or waiting in this batch so far is cancelled here; the writer does the
        same to what was so before."""
        counts = self.counts
        counts[CANCELLED] += counts[WAITING] + counts[READY]
        counts[WAITING] = counts[READY] = 0
        if self.rest_cancelled is None:
            self.rest_cancelled = RestCancelled(at, reason)
