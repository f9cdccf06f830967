"""Connections to the read models' database, for writing and for reading."""

from typing import TypeAlias

import asyncpg
from asyncpg.pool import Pool

from penstock.events import Timestamp

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ReadingPool: TypeAlias = "Pool[asyncpg.Record]"

AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.InterfaceError,
)
"""What is raised by a database that is stopped, starts, is full or is busy: it will be back."""

UNSTORABLE = (asyncpg.DataError, ValueError, OverflowError)
"""What is raised for a value that its column cannot hold, by the server or by the driver."""

REPLACED = (
    asyncpg.UndefinedTableError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.InvalidSchemaNameError,
)
"""What a reader may meet while a schema is put in the place of another, or is not there yet."""

_EPOCH_OF_POSTGRES: Timestamp = 946_684_800_000_000


async def connect(database_url: str, schema: str) -> Connection:
    """A connection for writing one schema. Times are whole microseconds since 1970 on it.

    A commit need not wait for the disk: what a crash of Postgres takes back, the position goes back
    with, and it is folded again.
    """
    connection = await asyncpg.connect(
        database_url,
        server_settings={
            "search_path": schema,
            "synchronous_commit": "off",
            "application_name": f"penstock projector ({schema})",
        },
    )
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        format="tuple",
        encoder=lambda at: (at - _EPOCH_OF_POSTGRES,),
        decoder=lambda parts: parts[0] + _EPOCH_OF_POSTGRES,
    )
    return connection


def reading_pool(database_url: str, schema: str, size: int) -> ReadingPool:
    """Connections are made when they are needed, so that a reader can start before Postgres."""
    return asyncpg.create_pool(
        database_url,
        min_size=0,
        max_size=size,
        server_settings={
            "search_path": schema,
            "jit": "off",
            "application_name": "penstock reader",
        },
        reset=_keep,
    )


async def _keep(connection: Connection) -> None:
    """Readers change no settings; resetting them would cost a round trip for each query."""
