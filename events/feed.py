"""Reads the log ahead of its user, up to a limit, so that a batch is whatever has come so far."""

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from penstock.events.commit import Position
from penstock.events.log import Entry, Log

LIMIT_BYTES = 4 * 1024 * 1024
"""Of encoded commits; tens of thousands of short tasks."""


class Feed:
    """Use it as a context: it stops reading when it is left."""

    def __init__(self, log: Log, after: Position, limit_bytes: int = LIMIT_BYTES) -> None:
        self._log = log
        self._after = after
        self._limit_bytes = limit_bytes
        self._entries: list[Entry] = []
        self._bytes = 0
        self._available = asyncio.Event()
        self._full = asyncio.Event()
        self._room = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read(), name="read the log")
        self._reader.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def take(self, gather_seconds: float = 0.0) -> tuple[list[Entry], int]:
        """All that has come, and its size in bytes.

        Waits for the first commit, and before that for `gather_seconds` unless the feed is full.
        Raises what ended the log, once everything before that was taken.
        """
        if gather_seconds > 0 and not self._full.is_set():
            try:
                async with asyncio.timeout(gather_seconds):
                    await self._full.wait()
            except TimeoutError:
                pass
        await self._available.wait()
        if not self._entries and self._reader is not None:
            await self._reader
        entries, size = self._entries, self._bytes
        self._entries, self._bytes = [], 0
        if self._reader is None or not self._reader.done():
            self._available.clear()
            self._full.clear()
        self._room.set()
        return entries, size

    async def _read(self) -> None:
        commits = self._log.follow(self._after)
        try:
            async for entry in commits:
                self._entries.append(entry)
                self._bytes += entry.size
                self._available.set()
                if self._bytes >= self._limit_bytes:
                    self._room.clear()
                    self._full.set()
                    await self._room.wait()
        finally:
            if isinstance(commits, AsyncGenerator):
                await commits.aclose()

    def _ended(self, reader: asyncio.Task[None]) -> None:
        self._available.set()
        self._full.set()
