"""Runs workloads one after the other, each on a fresh system, and prints what they measured."""

import sys
from collections.abc import Awaitable, Callable, Sequence

from penstock.bench.latency import latency
from penstock.bench.queueing import array, backlog
from penstock.bench.result import Result, write
from penstock.bench.target import Options
from penstock.bench.throughput import command, noop

WORKLOADS: dict[str, Callable[[Options], Awaitable[Result]]] = {
    "noop": noop,
    "command": command,
    "latency": latency,
    "backlog": backlog,
    "array": array,
}


async def run(workloads: Sequence[str], options: Options) -> None:
    for name in workloads:
        sys.stderr.write(f"penstock bench: {name} ...\n")
        write(await WORKLOADS[name](options))
