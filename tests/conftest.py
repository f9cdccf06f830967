"""What all tests share."""

import asyncio
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers

from penstock.up.nats import NatsServer
from penstock.up.postgres import PostgresServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def _session_prefix() -> str:
    return f"t{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def nats_url(_session_prefix: str) -> Iterator[str]:
    """The address of a real NATS, shared by the session: keep to your `prefix`, do not kill it."""
    with servers.running_nats() as url:
        yield url
        if "PENSTOCK_TEST_NATS_URL" in os.environ:
            asyncio.run(servers.delete_streams(url, _session_prefix))


@pytest.fixture
def prefix(_session_prefix: str) -> str:
    """A subject prefix (and so streams) for this test alone."""
    return f"{_session_prefix}-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of a real Postgres, shared by the session: use `database_url` instead."""
    with servers.running_postgres() as url:
        yield url


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    """A new, empty database for this test alone."""
    with servers.fresh_database(postgres_url) as url:
        yield url


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """An embedded nats-server for this test alone, started: it may be killed and restarted."""
    with servers.scratch_directory() as directory:
        server = NatsServer(directory / "nats")
        asyncio.run(server.start())
        try:
            yield server
        finally:
            asyncio.run(server.stop())


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """An embedded Postgres for this test alone, started: it may be killed and restarted."""
    with servers.scratch_directory() as directory:
        server = PostgresServer(directory / "postgres")
        asyncio.run(server.start())
        try:
            yield server
        finally:
            asyncio.run(server.stop())


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory with a short path, for what holds sockets."""
    with servers.scratch_directory() as directory:
        yield directory
