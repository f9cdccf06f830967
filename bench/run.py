"""Runs workloads one after the other, each on a fresh system, and prints what they measured."""

import os
import sys
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from penstock.bench.latency import latency
from penstock.bench.queueing import array, backlog
from penstock.bench.result import Result, write
from penstock.bench.target import Options
from penstock.bench.throughput import command, noop

BUSY_LOAD = 0.5

WORKLOADS: dict[str, Callable[[Options], Awaitable[Result]]] = {
    "noop": noop,
    "command": command,
    "latency": latency,
    "backlog": backlog,
    "array": array,
}


async def run(workloads: Sequence[str], options: Options) -> None:
    for name in workloads:
        load = os.getloadavg()[0]
        busy = f" (the machine is busy: load {load:.1f})" if load > BUSY_LOAD else ""
        sys.stderr.write(f"penstock bench: {name} ...{busy}\n")
        measured = await WORKLOADS[name](options)
        write(msgspec.structs.replace(measured, load_before=load))
