"""How much work to keep where: enough that nobody waits for it, not so much that it waits itself.

A worker that runs short tasks gets some milliseconds' worth of them, so that it never waits for a
message; one that runs long tasks gets one at a time, so that long tasks spread evenly. In the same
way the manager asks the coordinator for a fraction of a second's worth.
"""

from collections.abc import Collection

WORKER_AHEAD_SECONDS = 0.05
LONG_TASK_SECONDS = 0.05
MAX_CREDIT = 1024

MANAGER_AHEAD_SECONDS = 0.4
MAX_CAPACITY = 4096


def credit(average_seconds: float | None) -> int:
    """How many tasks a worker may hold. `average_seconds` is None before its first result."""
    if average_seconds is None or average_seconds >= LONG_TASK_SECONDS:
        return 1
    if average_seconds * MAX_CREDIT <= WORKER_AHEAD_SECONDS:
        return MAX_CREDIT
    return max(2, int(WORKER_AHEAD_SECONDS / average_seconds))


def learn(average_seconds: float | None, seen_seconds: float) -> float:
    """Slowly up, quickly down: one long task among short ones must not starve a worker for long."""
    if average_seconds is None:
        return seen_seconds
    return min((average_seconds + seen_seconds) / 2, 4 * seen_seconds)


def capacity(averages: Collection[float], workers: int, prefetch: int | None) -> int:
    """How many tasks the manager wants to hold, at workers and in its buffer."""
    if prefetch is not None:
        return workers + prefetch
    least = 3 * workers
    if not averages:
        return least
    average = sum(averages) / len(averages)
    if average * MAX_CAPACITY <= MANAGER_AHEAD_SECONDS * workers:
        return max(least, MAX_CAPACITY)
    return min(least + int(MANAGER_AHEAD_SECONDS * workers / average), max(least, MAX_CAPACITY))
