"""What the tests of the read models share."""

from collections.abc import AsyncIterator

import pytest
from tests.read_models.story import Story

from penstock.projections.read_models import Projection, ReadModel, prepare
from penstock.projections.read_models.database import Connection, connect
from penstock.projections.read_models.tables import SCHEMA


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    """A writing connection to a read model that stands at the start of the log."""
    await prepare(database_url, SCHEMA)
    connection = await connect(database_url, SCHEMA)
    yield connection
    await connection.close()


@pytest.fixture
async def projection(connection: Connection) -> Projection:
    return await Projection.load(connection)


@pytest.fixture
async def read_model(database_url: str, connection: Connection) -> AsyncIterator[ReadModel]:
    async with ReadModel(database_url) as read_model:
        yield read_model
