"""Finds and ends what an earlier life left running.

A supervisor that is killed takes its children with it (see `launch`), but not at once, and a
manager's processes may outlive it. Two servers on one directory would ruin it, so whoever starts a
server first makes sure that no other works there. Only processes that were started for exactly this
directory count, and the caller holds the lock of the directory.
"""

import asyncio
import signal
import time
from collections.abc import Callable

import psutil

_POLL_SECONDS = 0.02


def find(belongs: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """All living processes for which `belongs` holds."""
    found = []
    for process in psutil.process_iter():
        try:
            if belongs(process) and is_alive(process):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            # It ended meanwhile, or it is another user's and so not of our data.
            continue
    return found


async def end(
    processes: list[psutil.Process],
    number: signal.Signals = signal.SIGTERM,
    limit_seconds: float = 10.0,
) -> None:
    """Ask them to stop, kill those that do not, and return when all are gone."""
    for process in processes:
        _send(process, number)
    if not await gone(processes, limit_seconds):
        for process in processes:
            _send(process, signal.SIGKILL)
        await gone(processes, limit_seconds)


async def gone(processes: list[psutil.Process], limit_seconds: float) -> bool:
    """Wait until all have ended; False when the limit came first."""
    deadline = time.monotonic() + limit_seconds
    while any(is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        # They are not our children: the kernel tells nobody else of their end.
        await asyncio.sleep(_POLL_SECONDS)
    return True


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs: a zombie holds no files, and may wait long for its parent."""
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        # psutil compares the start time first: a reused pid is not hit.
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
