"""Measures the bare posix_spawn loop in several processes at once."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from penstock.errors import Unavailable

SCRIPT = Path(__file__).with_name("spawn_loop.py")


async def spawns_per_second(total: int, processes: int) -> float:
    """Spawn `total` times /bin/true, spread over so many processes that began together."""
    share = max(1, total // processes)
    loops = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(SCRIPT), str(share), stdin=PIPE, stdout=PIPE
        )
        for _ in range(processes)
    ]
    for loop in loops:
        await _line(loop)
    for loop in loops:
        if loop.stdin is not None:
            loop.stdin.write(b"go\n")
    times = [tuple(map(float, (await _line(loop)).split())) for loop in loops]
    for loop in loops:
        await loop.wait()
    began = min(began for began, _ in times)
    ended = max(ended for _, ended in times)
    return share * processes / (ended - began)


async def _line(loop: Process) -> bytes:
    line = b"" if loop.stdout is None else await loop.stdout.readline()
    if not line:
        raise Unavailable(f"The bare loop ended with code {await loop.wait()}.")
    return line
