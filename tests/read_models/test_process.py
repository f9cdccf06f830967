"""The projector as a process, on a real log, killed at any moment."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.read_models.running import LIMIT_SECONDS
from tests.read_models.story import Story, fill

from penstock.events import START, Commit, Entry, Subjects, encode
from penstock.events.connection import connect
from penstock.events.jetstream import JetStreamLog
from penstock.events.log import LogWriter
from penstock.events.streams import ensure_streams
from penstock.projections.read_models import ReadModel, verify

pytestmark = pytest.mark.anyio

PROGRAM = "from penstock.projections.read_models.main import run; run()"


@asynccontextmanager
async def projector_process(
    nats_url: str, database_url: str, prefix: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {name: value for name, value in os.environ.items() if "PENSTOCK" not in name}
    environment |= {
        "PENSTOCK_NATS_URL": nats_url,
        "PENSTOCK_DATABASE_URL": database_url,
        "PENSTOCK_PREFIX": prefix,
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def copy(entries: list[Entry], writer: LogWriter) -> None:
    """Append what happened in a story to a real log."""
    for entry in entries:
        position = writer.position
        commit = Commit(
            id=entry.commit.id,
            counter=position.counter + 1,
            previous=position.hash,
            epoch=writer.epoch,
            at=entry.commit.at,
            events=entry.commit.events,
        )
        await writer.append(encode(commit))


async def test_a_projector_that_is_killed_again_and_again_loses_and_repeats_nothing(
    nats_url: str, database_url: str, prefix: str, story: Story
) -> None:
    subjects = Subjects(prefix)
    fill(story, 300)
    async with AsyncExitStack() as stack:
        connection = await connect(nats_url, "test")
        stack.push_async_callback(connection.close)
        await ensure_streams(connection, subjects)
        log = JetStreamLog(connection, subjects)
        writer = await log.elect("test", "", START, story.now)
        reader = await stack.enter_async_context(ReadModel(database_url))
        for first in range(0, 600, 150):
            async with projector_process(nats_url, database_url, prefix):
                writing = asyncio.create_task(copy(story.entries[first : first + 150], writer))
                await reader.wait_for(first + 75, LIMIT_SECONDS)
            await writing
        async with projector_process(nats_url, database_url, prefix) as process:
            await copy(story.entries[600:], writer)
            await reader.wait_for(writer.position.sequence, LIMIT_SECONDS)
            assert await verify(log, database_url) == []
            group = await reader.task_group(1)
            assert group is not None
            assert (group.counts.succeeded, group.counts.assigned) == (2700, 300)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LIMIT_SECONDS):
                assert await process.wait() == 0
