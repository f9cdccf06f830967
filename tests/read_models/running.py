"""Projectors that run while a test does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.projections.read_models import Projector

LIMIT_SECONDS = 30.0


@asynccontextmanager
async def projecting(projector: Projector) -> AsyncIterator[asyncio.Task[None]]:
    running = asyncio.create_task(projector.run())
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
