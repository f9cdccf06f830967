"""Keeps one server running: starts it again when it dies, more patiently each time.

One that ends because the log is damaged is not started again: it would find the same damage, and
whatever is written on top of it makes things worse.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from penstock import exit_codes
from penstock.errors import Corrupt, PenstockError, Unavailable
from penstock.up.process import Process

_log = structlog.get_logger("penstock.up")

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
HEALTHY_SECONDS = 10.0


class Server(Protocol):
    """Something that runs as one process of ours."""

    process: Process | None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...


def next_delay(delay_seconds: float, lived_seconds: float) -> float:
    """How long to wait before the next start, after the last one waited `delay_seconds`."""
    if delay_seconds == 0 or lived_seconds >= HEALTHY_SECONDS:
        return FIRST_DELAY_SECONDS
    return min(2 * delay_seconds, LONGEST_DELAY_SECONDS)


class Guard:
    def __init__(
        self,
        name: str,
        server: Server,
        *,
        restart: bool = True,
        when_damaged: Callable[[Corrupt], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.server = server
        self.deaths = 0
        self._restart = restart
        self._when_damaged = when_damaged
        self._watching: asyncio.Task[None] | None = None
        self._started = asyncio.Condition()

    @property
    def process(self) -> Process | None:
        return self.server.process

    async def start(self) -> None:
        await self.server.start()
        await self._tell()
        self._watching = asyncio.create_task(self._watch(), name=f"guard {self.name}")

    async def stop(self) -> None:
        """Stop it for good, or until it is started again."""
        await self._let_go()
        await self.server.stop()

    async def kill(self) -> None:
        """End it as a crash would; it is started again if that is wanted."""
        await self.server.kill()

    async def replaced(self, pid: int) -> Process:
        """Wait until another process than `pid` runs."""

        def other() -> bool:
            now = self.process
            return now is not None and now.pid != pid and now.returncode is None

        async with self._started:
            await self._started.wait_for(other)
        if self.process is None:
            raise Unavailable(f"{self.name} was stopped.")
        return self.process

    async def _let_go(self) -> None:
        if self._watching is None:
            return
        self._watching.cancel()
        await asyncio.wait([self._watching])
        self._watching = None

    async def _watch(self) -> None:
        delay = 0.0
        while self.process is not None:
            since = time.monotonic()
            code = await self.process.wait()
            self.deaths += 1
            if code == exit_codes.CORRUPT:
                self._when_damaged(self._damage(self.process))
                return
            _log.warning("process_ended", process=self.name, code=code, restart=self._restart)
            if not self._restart:
                return
            delay = next_delay(delay, time.monotonic() - since)
            await asyncio.sleep(delay)
            try:
                await self.server.start()
            except (PenstockError, OSError) as error:
                _log.error("process_does_not_start", process=self.name, error=str(error))
            else:
                _log.info("process_restarted", process=self.name, pid=self.process.pid)
                await self._tell()

    def _damage(self, process: Process) -> Corrupt:
        return Corrupt(
            f"{process.last_words()}\n"
            f"The {self.name} found this and the system was stopped; see {process.log}. Keep all "
            "files as they are, and read 'The log is damaged' in docs/how-to/operate.md."
        )

    async def _tell(self) -> None:
        async with self._started:
            self._started.notify_all()
