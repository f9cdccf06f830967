"""The schema of the read models, as Alembic revisions that run from code.

A read model lives in a Postgres schema of its own, so that a new one can be built beside the one in
use. No revision names a schema: `upgrade` puts the wanted one first in the search path.
"""

from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.sql import quoted_name

__all__ = ["upgrade"]


async def upgrade(database_url: str, schema: str) -> None:
    """Create the schema, or bring it to the newest revision."""
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(database_url),
        poolclass=NullPool,
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade, schema)
    except DBAPIError as error:
        # Callers know the driver's errors and can tell a database that is away from a mistake.
        raise (error.orig.__cause__ if error.orig is not None else None) or error from None
    finally:
        await engine.dispose()


def _upgrade(connection: Connection, schema: str) -> None:
    name = connection.dialect.identifier_preparer.quote(quoted_name(schema, quote=True))
    # Two processes that start at the same time would both create everything.
    connection.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended('penstock migrations', 0))")
    )
    connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {name}"))
    connection.execute(text(f"SET LOCAL search_path TO {name}"))
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    command.upgrade(config, "head")
