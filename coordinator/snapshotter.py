"""Writes snapshots of the state now and then, so that a start need not fold the whole log."""

import asyncio
import time

import structlog

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.events import Position
from penstock.events.snapshots import SnapshotStore
from penstock.projections import FOLD_VERSION, State, encode_state

logger = structlog.get_logger("penstock.coordinator")

INTERVAL_SECONDS = 60.0
COMMITS_BETWEEN = 20_000
"""A tail of this many commits is folded in a few seconds."""


class Snapshotter:
    def __init__(self, store: SnapshotStore, clock: Clock, restored: Position) -> None:
        self._store = store
        self._clock = clock
        self._last_sequence = restored.sequence
        self._last_time = time.monotonic()
        self._writing: asyncio.Task[None] | None = None

    def at_rest(self, state: State, position: Position) -> None:
        """Write a snapshot in the background when it is time. The state is copied here and now."""
        if self._writing is not None and not self._writing.done():
            return
        behind = position.sequence - self._last_sequence
        waited = time.monotonic() - self._last_time
        if behind >= COMMITS_BETWEEN or (behind > 0 and waited >= INTERVAL_SECONDS):
            self._writing = asyncio.create_task(self._write(encode_state(state), position))

    async def finish(self, state: State, position: Position) -> None:
        """Write a last snapshot before leaving."""
        if self._writing is not None:
            await self._writing
        if position.sequence > self._last_sequence:
            await self._write(encode_state(state), position)

    async def _write(self, body: bytes, position: Position) -> None:
        self._last_time = time.monotonic()
        try:
            await self._store.write(body, position, FOLD_VERSION, self._clock.now())
        except PenstockError as error:
            # It is a cache: without it the next start takes longer, and nothing else.
            logger.warning("snapshot_not_written", why=error.message)
        else:
            self._last_sequence = position.sequence
            logger.info("snapshot_written", sequence=position.sequence, bytes=len(body))
