"""The servers that tests run against: given ones, embedded ones, or containers, in this order."""

import asyncio
import importlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import nats

from penstock.up.nats import NatsServer
from penstock.up.postgres import PostgresServer

CONTAINERS = os.environ.get("PENSTOCK_TEST_CONTAINERS") == "1"


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory outside pytest's, with a short path, that leaves nothing behind."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def running_nats() -> Iterator[str]:
    """The address of a NATS with JetStream."""
    if given := os.environ.get("PENSTOCK_TEST_NATS_URL"):
        yield given
    elif CONTAINERS:
        module = importlib.import_module("testcontainers.core.container")
        strategies = importlib.import_module("testcontainers.core.wait_strategies")
        container = module.DockerContainer("nats:2.15").with_command("-js").with_exposed_ports(4222)
        container.waiting_for(strategies.LogMessageWaitStrategy("Server is ready"))
        with container:
            host, port = container.get_container_host_ip(), container.get_exposed_port(4222)
            yield f"nats://{host}:{port}"
    else:
        with scratch_directory() as directory:
            server = NatsServer(directory / "nats")
            asyncio.run(server.start())
            try:
                yield server.url
            finally:
                asyncio.run(server.stop())


@contextmanager
def running_postgres() -> Iterator[str]:
    """The address of a Postgres in which we may create databases."""
    if given := os.environ.get("PENSTOCK_TEST_DATABASE_URL"):
        yield given
    elif CONTAINERS:
        module = importlib.import_module("testcontainers.postgres")
        with module.PostgresContainer("postgres:18", driver=None) as container:
            yield container.get_connection_url()
    else:
        with scratch_directory() as directory:
            # Nobody pulls the plug on a test's database; syncing it only costs time.
            server = PostgresServer(directory / "postgres", settings={"fsync": "off"})
            asyncio.run(server.start())
            try:
                yield server.dsn
            finally:
                asyncio.run(server.stop())


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """A new, empty database on that server."""
    name = f"test_{secrets.token_hex(6)}"
    asyncio.run(_execute(server_url, f"CREATE DATABASE {name}"))
    try:
        parts = urlsplit(server_url)
        query = f"?{parts.query}" if parts.query else ""
        yield f"{parts.scheme}://{parts.netloc}/{name}{query}"
    finally:
        asyncio.run(_execute(server_url, f"DROP DATABASE {name} WITH (FORCE)"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def delete_streams(url: str, first_letters: str) -> None:
    """Remove what tests made on a NATS that outlives them."""
    connection = await nats.connect(url)
    try:
        jetstream = connection.jetstream()
        for stream in await jetstream.streams_info():
            if (stream.config.name or "").startswith(first_letters):
                await jetstream.delete_stream(stream.config.name or "")
    finally:
        await connection.close()
