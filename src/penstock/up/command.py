"""A process of Penstock itself, as a server: `python -m penstock NAME`."""

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from penstock.up import leftovers, process


class Command:
    """Runs a command; it counts as started at once."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        stop_seconds: float = 15.0,
    ) -> None:
        self.process: process.Process | None = None
        self._name = name
        self._command = command
        self._environment = environment
        self._log = log
        self._stop_seconds = stop_seconds

    async def start(self) -> None:
        self.process = process.start(
            self._name, self._command, environment=self._environment, log=self._log
        )

    async def stop(self) -> None:
        if self.process is not None:
            await self.process.stop(signal.SIGTERM, self._stop_seconds)

    async def kill(self) -> None:
        if self.process is not None:
            await self.process.kill()


def penstock(subcommand: str) -> list[str]:
    """How one of our own processes is started: with this Python, and so with this package."""
    return [sys.executable, "-m", "penstock", subcommand]


async def end_leftovers(data: Path) -> None:
    """End our own processes that an earlier supervisor of this data directory left behind."""

    def belongs(candidate: psutil.Process) -> bool:
        words = candidate.cmdline()
        return (
            words[1:3] == ["-m", "penstock"]
            and words[3:4] in (["coordinator"], ["projector"], ["manager"])
            and candidate.environ().get("PENSTOCK_DATA") == str(data)
        )

    await leftovers.end(leftovers.find(belongs))
