"""Logs to test: in memory, in one NATS, in a cluster of three."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
from tests import servers
from tests.log.cluster import Cluster

from penstock.events import Log, Subjects, jetstream
from penstock.events.connection import Connection, connect
from penstock.events.jetstream import JetStreamLog
from penstock.events.jetstream_api import StreamAnswer, ask, stream_info
from penstock.events.memory import NO_FAULTS, Faults, MemoryLog, MemoryStorage
from penstock.events.streams import ensure_streams, stream_configurations


class Place(Protocol):
    """Somewhere to keep one log."""

    async def open(self) -> Log:
        """Another handle on the same log, as another process would have."""
        ...

    async def fill(self) -> None:
        """Let no further byte into the log."""
        ...

    async def make_room(self) -> None: ...


class MemoryPlace:
    def __init__(self, faults: Faults, seed: int) -> None:
        self._storage = MemoryStorage()
        self._faults = faults
        self._seed = seed

    async def open(self) -> Log:
        self._seed += 1
        return MemoryLog(self._storage, faults=self._faults, seed=self._seed)

    async def fill(self) -> None:
        self._storage.capacity_bytes = 1

    async def make_room(self) -> None:
        self._storage.capacity_bytes = None


class JetStreamPlace:
    def __init__(self, urls: str, subjects: Subjects, stack: AsyncExitStack) -> None:
        self._urls = urls
        self._subjects = subjects
        self._stack = stack
        self._connections: list[Connection] = []

    async def open(self) -> Log:
        return JetStreamLog(await self.connection(), self._subjects)

    async def connection(self) -> Connection:
        connection = await connect(self._urls, "test")
        self._stack.push_async_callback(connection.close)
        self._connections.append(connection)
        return connection

    async def fill(self) -> None:
        connection = self._connections[0]
        info = await stream_info(connection, self._subjects.log_stream)
        await self._limit(info.state.bytes + 1)

    async def make_room(self) -> None:
        await self._limit(-1)

    async def _limit(self, max_bytes: int) -> None:
        stream = self._subjects.log_stream
        config = (await stream_info(self._connections[0], stream)).config
        await ask(
            self._connections[0],
            f"STREAM.UPDATE.{stream}",
            config | {"max_bytes": max_bytes},
            StreamAnswer,
        )


@pytest.fixture(scope="session")
def cluster_urls() -> Iterator[str]:
    with servers.scratch_directory() as directory:
        cluster = Cluster(directory)
        asyncio.run(cluster.start())
        try:
            yield cluster.urls
        finally:
            asyncio.run(cluster.stop())


DISTURBED = Faults(lost_offer=0.2, lost_answer=0.2, late_offer=0.2, repeated_offer=0.2, delay=0.3)


@pytest.fixture(
    params=[
        "memory",
        *(f"memory with faults {seed}" for seed in (100, 200, 300)),
        "jetstream",
        pytest.param("cluster", marks=pytest.mark.cluster),
    ]
)
def kind_of_place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """What to keep the log in, and its address or seed."""
    kind, _, seed = str(request.param).partition(" with faults ")
    servers_of = {"jetstream": "nats_url", "cluster": "cluster_urls"}
    # Here, because a server's fixture cannot start it while an event loop runs.
    return kind, request.getfixturevalue(servers_of[kind]) if kind in servers_of else seed


@pytest.fixture
async def place(
    kind_of_place: tuple[str, str], subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    """An empty log."""
    monkeypatch.setattr(jetstream, "PATIENCE_SECONDS", 1.0)
    kind, url = kind_of_place
    if kind == "memory":
        yield MemoryPlace(DISTURBED if url else NO_FAULTS, int(url or 0))
        return
    async with AsyncExitStack() as stack:
        made = JetStreamPlace(url, subjects, stack)
        connection = await made.connection()
        config = stream_configurations(subjects, replicas=3 if kind == "cluster" else 1)["LOG"]
        await ask(
            connection,
            f"STREAM.CREATE.{subjects.log_stream}",
            config,
            StreamAnswer,
            timeout_seconds=20.0,
        )
        yield made
        if kind == "cluster":
            await connection.call(f"$JS.API.STREAM.DELETE.{subjects.log_stream}")


@pytest.fixture
def subjects(prefix: str) -> Subjects:
    return Subjects(prefix=prefix)


@pytest.fixture
async def connection(nats_url: str, subjects: Subjects) -> AsyncIterator[Connection]:
    """A connection to the NATS that tests share, with the streams of this test in it."""
    connection = await connect(nats_url, "test")
    await ensure_streams(connection, subjects)
    yield connection
    await connection.close()
