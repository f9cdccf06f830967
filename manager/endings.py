"""Results that the manager itself gives: of tasks that never began, or whose worker died."""

import msgspec

from penstock.events.event import Timestamp
from penstock.events.exits import Exit, ExitCode, Signal, Unknown
from penstock.events.spec import Cause
from penstock.events.tasks import AttemptResult, Outcome
from penstock.manager.buffer import Key, task_and_attempt


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How and why a task ended without a word from its worker."""

    outcome: Outcome = "failed"
    cause: Cause
    message: str
    exit_code: int | None = None
    signal: int | None = None


KILLED_TO_TIME_OUT = End(
    cause="timeout", message="Ran longer than its timeout and did not end; its worker was killed."
)
MANAGER_STOPPED = End(cause="executor_lost", message="The manager was stopped.")


ADOPTED = Unknown("The worker died; how is not known, because this manager had adopted it.")
UNSEEN = Unknown("The worker died; how is not known, because no manager watched it then.")


def killed_to_cancel(reason: str) -> End:
    because = f": {reason}" if reason else ""
    return End(
        outcome="cancelled",
        cause="cancelled",
        message=f"Cancelled{because}; it did not end by itself, so its worker was killed.",
    )


def worker_died(how: Exit) -> End:
    died = "" if how in (ADOPTED, UNSEEN) else "The worker died while it ran the task. "
    return End(
        cause="worker_death",
        message=f"{died}{how.message}",
        exit_code=how.code if isinstance(how, ExitCode) else None,
        signal=how.number if isinstance(how, Signal) else None,
    )


def cancelled(key: Key, reason: str) -> AttemptResult:
    """A task that no worker had begun."""
    message = f"Cancelled before it began: {reason}" if reason else "Cancelled before it began."
    return result(key, End(outcome="cancelled", cause="cancelled", message=message))


def result(
    key: Key, end: End, started_at: Timestamp = 0, ended_at: Timestamp = 0, worker: int = 0
) -> AttemptResult:
    task_id, attempt = task_and_attempt(key)
    return AttemptResult(
        task_id=task_id,
        attempt=attempt,
        started_at=started_at,
        ended_at=max(started_at, ended_at),
        worker=worker,
        outcome=end.outcome,
        cause=end.cause,
        message=end.message,
        exit_code=end.exit_code,
        signal=end.signal,
    )
