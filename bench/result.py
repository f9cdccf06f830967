"""What a workload measured: one line of JSON."""

import sys

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields that a workload does not measure are left out."""

    workload: str
    n: int
    workers: int
    seconds: float
    per_second: float
    submitted_as: str | None = None
    """`array`: one spec for all; `list`: every task brings its own. It decides much of the rate."""
    list_per_second: float | None = None
    """The same tasks once more, submitted as lists."""
    load_before: float | None = None
    """Load average when the workload began: figures from a busy machine are not worth comparing."""
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    raw_per_second: float | None = None
    """A bare posix_spawn loop in as many processes, measured right before."""
    ratio: float | None = None
    """per_second as a part of raw_per_second."""
    submit_seconds: float | None = None
    read_model_seconds: float | None = None
    """From the first submission until the read model shows all of it."""
    restart_seconds: float | None = None
    """From the start of a new coordinator, after kill -9, until it is ready."""
    memory_mb: float | None = None
    """Resident memory of the coordinator afterwards."""
    memory_after_restart_mb: float | None = None


def write(result: Result) -> None:
    rounded = {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in msgspec.to_builtins(result).items()
    }
    sys.stdout.write(msgspec.json.encode(rounded).decode() + "\n")
    sys.stdout.flush()


def percentile(sorted_values: list[float], percent: float) -> float:
    """The nearest-rank percentile."""
    rank = max(1, -(-len(sorted_values) * percent // 100))
    return sorted_values[int(rank) - 1]
