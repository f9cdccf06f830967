"""Whether a failed attempt is followed by another, and when.

Decided from the task's own history in the log, by cause. A failure that is not the task's fault
(its executor was lost before it began, or gave it back) uses up nothing.
"""

import hashlib
import signal as signals

from penstock.events import SECOND, AttemptResult, Cause, RetryPolicy, TaskId, Timestamp
from penstock.projections.state import Failure

DEFAULT = RetryPolicy()

EXECUTOR_LOST_LIMIT = 10
"""A task that takes its manager down each time must end some day."""

_FAULTS = {signals.SIGSEGV, signals.SIGILL, signals.SIGBUS, signals.SIGFPE}
_REQUESTS = {signals.SIGTERM, signals.SIGINT}
FAULT_LIMIT = 2
DEATH_LIMIT = 3
"""Deaths of the worker that a task may cause: fewer when the processor itself objected."""

_IMMEDIATELY = ("worker_death", "executor_lost", "returned")


def may_retry(policy: RetryPolicy | None, failures: list[Failure], result: AttemptResult) -> bool:
    """May the task run again after this attempt, given those before it?"""
    cause: Cause = result.cause or "exit_code"
    if cause == "returned":
        return True
    if cause in ("cancelled", "not_startable"):
        return False
    so_far = 1 + sum(1 for failure in failures if failure.counts and failure.cause == cause)
    limit = limit_for(policy or DEFAULT, cause, result.signal)
    return limit is None or so_far < limit


def limit_for(policy: RetryPolicy, cause: Cause, signal: int | None) -> int | None:
    """How many attempts may end like this; None is any number."""
    if cause in policy.by_cause:
        return policy.by_cause[cause]
    if cause == "worker_death":
        if signal in _REQUESTS:
            return None
        return FAULT_LIMIT if signal in _FAULTS else DEATH_LIMIT
    if cause == "executor_lost":
        return EXECUTOR_LOST_LIMIT
    return policy.max_attempts


def not_before(
    policy: RetryPolicy | None, task_id: TaskId, result: AttemptResult, now: Timestamp
) -> Timestamp:
    """When the next attempt may begin: exponential, with a jitter that a replay gives again."""
    if result.cause in _IMMEDIATELY:
        return 0
    chosen = policy or DEFAULT
    # 100.0 ** 1000 would overflow.
    seconds = chosen.backoff_seconds * chosen.backoff_factor ** min(result.attempt - 1, 100)
    seconds = min(seconds, chosen.backoff_max_seconds)
    seed = hashlib.blake2b(f"{task_id}.{result.attempt}".encode(), digest_size=4).digest()
    jitter = 0.75 + 0.5 * int.from_bytes(seed, "big") / 2**32
    return now + int(seconds * jitter * SECOND)
