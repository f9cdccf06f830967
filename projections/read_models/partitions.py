"""`archived_tasks` has one partition for each month (UTC), made when the first row of it comes."""

from datetime import UTC, datetime
from typing import NamedTuple

from penstock.events import SECOND, Timestamp

_DAY = 86_400 * SECOND
_OLDEST = 400 * _DAY


class Month(NamedTuple):
    """A month as a span of time: `start` is in it, `stop` is not."""

    start: Timestamp
    stop: Timestamp

    @property
    def table(self) -> str:
        first = datetime.fromtimestamp(self.start // SECOND, UTC)
        return f"archived_tasks_{first:%Y_%m}"


def month_of(at: Timestamp) -> Month:
    day = datetime.fromtimestamp(at // SECOND, UTC)
    first = datetime(day.year, day.month, 1, tzinfo=UTC)
    following = datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC)
    return Month(int(first.timestamp()) * SECOND, int(following.timestamp()) * SECOND)


def plausible(reported: Timestamp, recorded: Timestamp) -> Timestamp:
    """When something happened, given what an executor said and when the log took it down.

    An executor whose clock is far off must not make partitions without end.
    """
    if recorded - _OLDEST <= reported <= recorded + _DAY:
        return reported
    return recorded
