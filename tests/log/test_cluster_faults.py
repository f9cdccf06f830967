"""The real log on three servers, of which one is killed."""

import asyncio
from pathlib import Path

import pytest
from tests.log.cluster import Cluster
from tests.log.commits import NOW, append, names, read_to

from penstock.events import START, LogWriter, Subjects
from penstock.events.connection import connect
from penstock.events.jetstream import JetStreamLog
from penstock.events.jetstream_api import StreamAnswer, ask
from penstock.events.streams import stream_configurations

pytestmark = [pytest.mark.anyio, pytest.mark.cluster]


async def _append_many(writer: LogWriter, done: list[str], count: int) -> None:
    for _ in range(count):
        name = f"m{len(done)}"
        await append(writer, name)
        done.append(name)


async def test_killing_the_leader_of_the_log_loses_and_repeats_nothing(scratch: Path) -> None:
    cluster = Cluster(scratch)
    await cluster.start()
    subjects = Subjects()
    connection = await connect(cluster.urls, "w")
    config = stream_configurations(subjects, replicas=3)["LOG"]
    await ask(
        connection,
        f"STREAM.CREATE.{subjects.log_stream}",
        config,
        StreamAnswer,
        timeout_seconds=20.0,
    )
    log = JetStreamLog(connection, subjects)
    writer = await log.elect("a", "", START, NOW)
    done: list[str] = []
    appending = asyncio.create_task(_append_many(writer, done, 100))
    while len(done) < 20:
        await asyncio.wait({appending}, timeout=0.002)
    await cluster.kill_one(await cluster.leader_of(subjects.log_stream))
    async with asyncio.timeout(60):
        await appending
    assert len(done) == 100
    assert names(await read_to(log, await log.end(), START)) == ["[a]", *done]
    await connection.close()
    await cluster.stop()
