"""When to try again: pure decisions, no clock and no sockets.

A request is repeated after a failure that may pass: nobody listens, the connection broke, the
coordinator is busy or changes its leader. The wait grows from try to try, with a random part so
that many clients do not come back at the same instant, and ends at a time limit.

A connection that broke after the request was sent leaves open whether it was carried out. Only a
request that may be carried out twice is then repeated: one that changes nothing, or one that
carries an idempotency key.
"""

import msgspec

FIRST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 5.0


class RetryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`first_answer_seconds` holds until a coordinator has answered once: a wrong address should
    be noticed at once, a restart should be sat out."""

    retry_seconds: float = 60.0
    first_answer_seconds: float = 5.0


def wait_seconds(
    attempt: int,
    elapsed_seconds: float,
    limit_seconds: float,
    chance: float,
    retry_after_seconds: float | None = None,
) -> float | None:
    """How long to wait after the failed try number `attempt` (from 1), or None to give up.

    `chance` is a random number from 0 to 1. What the server asks for with Retry-After is the least.
    """
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(attempt - 1, 16))
    wait = longest * (0.5 + chance / 2)
    if retry_after_seconds is not None:
        wait = max(wait, retry_after_seconds)
    return wait if elapsed_seconds + wait <= limit_seconds else None


def retry_after(value: str | None) -> float | None:
    """The seconds of a Retry-After header. Its other form, a date, is not used by Penstock."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        return None
