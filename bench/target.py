"""What is measured: a system of our own in a scratch directory, or one that already runs."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil

from penstock.client import Client
from penstock.errors import Unavailable
from penstock.up import Settings, System
from penstock.up.guard import Server


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `penstock bench` was told."""

    tasks: int | None = None
    workers: int = 2
    url: str | None = None
    token_file: str | None = None


class Target:
    """A system and a client of it. `system` is None for one that is not ours."""

    def __init__(self, client: Client, system: System | None, workers: int) -> None:
        self.client = client
        self.workers = workers
        self._system = system

    def memory_mb(self) -> float | None:
        """Resident memory of the coordinator; unknown for a system that is not ours."""
        if self._system is None:
            return None
        pid = self._system.processes["coordinator"].pid
        return float(psutil.Process(pid).memory_info().rss) / 1e6

    async def restart_coordinator(self) -> float | None:
        """kill -9, then the seconds from its next start until it is ready."""
        if self._system is None:
            return None
        epoch = (await self.client.status()).epoch
        pid = self._system.processes["coordinator"].pid
        await self._system.kill("coordinator")
        await self._system.replaced("coordinator", pid)
        began = time.perf_counter()
        await self._system.ready()
        # A leader that the log remembers is not one that leads: only an election raises the epoch.
        while True:
            if (await self.client.status()).epoch > epoch:
                return time.perf_counter() - began
            await asyncio.sleep(0.005)

    async def new_group(self, workload: str) -> int:
        """A task group that nobody else uses."""
        name = f"bench-{workload}-{time.time_ns()}"
        return (await self.client.create_task_group(name)).id


@asynccontextmanager
async def open_target(options: Options, *, with_workers: bool = True) -> AsyncIterator[Target]:
    if options.url is not None:
        async with Client(options.url, token_file=options.token_file) as client:
            workers = 0
            async for manager in client.managers():
                workers += manager.worker_count if manager.state != "offline" else 0
            if with_workers and workers == 0:
                raise Unavailable(f"No manager is online at {options.url}. Start one.")
            yield Target(client, None, workers)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        settings = Settings(
            data=Path(directory),
            listen="127.0.0.1:0",
            workers=options.workers,
            log_level="warning",
        )
        system = System(settings) if with_workers else System(settings, without_manager)
        async with system:
            async with Client(system.url, system.token) as client:
                yield Target(client, system, options.workers if with_workers else 0)


def without_manager(system: System) -> dict[str, Server]:
    return {"coordinator": system.coordinator(), "projector": system.projector()}
