"""The revisions and the tables say the same."""

from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from penstock import migrations
from penstock.projections.read_models import tables

pytestmark = pytest.mark.anyio


def _differences(connection: Connection) -> list[Any]:
    options = {"compare_type": True, "compare_server_default": True}
    context = MigrationContext.configure(connection, opts=options)
    return [
        difference
        for difference in compare_metadata(context, tables.metadata)
        if "alembic_version" not in str(difference)
    ]


async def test_the_revisions_make_the_tables_that_the_code_describes(database_url: str) -> None:
    await migrations.upgrade(database_url, "penstock")
    await migrations.upgrade(database_url, "penstock")
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(
            database_url, server_settings={"search_path": "penstock"}
        ),
    )
    try:
        async with engine.connect() as connection:
            assert await connection.run_sync(_differences) == []
    finally:
        await engine.dispose()
