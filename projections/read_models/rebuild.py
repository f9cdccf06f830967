"""Building a read model anew from the log, beside the one in use, and proving the one in use.

A build goes into a schema of its own, from the beginning of the log. When it has caught up, one
transaction locks the position in use, makes sure that the build is not behind it, drops the old
schema and renames the new one. Readers go on by name. The active projector waits at the position
for that moment, finds another build there and loads it.

A verification does the same into a scratch schema, up to exactly the position in use, and compares
every row of every table. The projector is held up only for the last few commits and goes on while
the comparison reads a snapshot of both.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import asyncpg
import msgspec
from sqlalchemy import JSON

from penstock.errors import Conflict, Invalid
from penstock.events import Log
from penstock.events.feed import Feed
from penstock.projections.read_models import tables
from penstock.projections.read_models.database import Connection, connect
from penstock.projections.read_models.projection import (
    Projection,
    ReadModelPosition,
    check_log,
    load_position,
    prepare,
)
from penstock.projections.read_models.tables import SCHEMA

BUILD_SCHEMA = "penstock_build"
VERIFY_SCHEMA = "penstock_verify"

MAX_DIFFERENCES = 100
"""How many a verification reports for each table and side."""

Progress = Callable[[int, int], None]
"""Called with the sequence reached and the sequence aimed at."""


class ReadModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the read model in use stands to the log. `behind` counts commits."""

    version: int
    wanted_version: int
    build: str
    sequence: int
    log_end: int
    behind: int
    updated_at: datetime
    projectors: int
    """Connected ones; all but one of them stand by."""
    building: bool


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A row that is only in the read model (`unexpected`) or only in the fold (`missing`)."""

    table: str
    kind: str
    row: str


def _ignore(reached: int, aim: int) -> None:
    """Progress that nobody asked for."""


async def status(log: Log, database_url: str) -> ReadModelStatus:
    connection = await asyncpg.connect(database_url)
    try:
        row = await connection.fetchrow(
            f"SELECT version, build, sequence, updated_at, (SELECT count(*) FROM pg_stat_activity "
            f"WHERE datname = current_database() AND application_name = "
            f"'penstock projector ({SCHEMA})') AS projectors, "
            f"to_regnamespace('{BUILD_SCHEMA}') IS NOT NULL AS building FROM {SCHEMA}.position"
        )
    finally:
        await connection.close()
    if row is None:
        raise Invalid("The read model has no position: its schema was not prepared.")
    end = await log.end()
    return ReadModelStatus(
        **dict(row),
        wanted_version=tables.VERSION,
        log_end=end,
        behind=max(0, end - row["sequence"]),
    )


async def rebuild(log: Log, database_url: str, progress: Progress = _ignore) -> ReadModelPosition:
    """Build a new read model from the log and put it in the place of the one in use."""
    async with _scratch(database_url, BUILD_SCHEMA) as connection:
        projection = await Projection.load(connection)
        await _advance(log, projection, await log.end(), progress)
        while not await _switch(connection, projection.position.sequence):
            await _advance(log, projection, await log.end(), progress)
        return ReadModelPosition(
            version=tables.VERSION, build=projection.build, position=projection.position
        )


async def verify(log: Log, database_url: str, progress: Progress = _ignore) -> list[Difference]:
    """Compare the read model in use with a fold of the log up to its position."""
    async with _scratch(database_url, VERIFY_SCHEMA) as connection:
        projection = await Projection.load(connection)
        holding = await connect(database_url, SCHEMA)
        comparing = await connect(database_url, SCHEMA)
        try:
            in_use = await load_position(holding)
            if in_use.version != tables.VERSION:
                raise Invalid(
                    f"The read model has version {in_use.version}; this program can only verify "
                    f"version {tables.VERSION}. Run 'penstock projections rebuild' first."
                )
            await check_log(log, in_use.position)
            await _advance(log, projection, in_use.position.sequence, progress)
            async with comparing.transaction(isolation="repeatable_read", readonly=True):
                async with holding.transaction():
                    await holding.execute("LOCK TABLE position IN SHARE MODE")
                    in_use = await load_position(holding)
                    await _advance(log, projection, in_use.position.sequence, progress)
                    # The first statement fixes what the comparison sees, of both schemas.
                    await comparing.execute("SELECT FROM position")
                return await _compare(comparing)
        finally:
            holding.terminate()
            comparing.terminate()


async def _advance(log: Log, projection: Projection, until: int, progress: Progress) -> None:
    """Fold up to exactly a sequence."""
    reached = projection.position.sequence
    progress(reached, until)
    if reached >= until:
        return
    async with Feed(log, projection.position) as feed:
        while reached < until:
            entries, _ = await feed.take()
            await projection.apply(entries[: until - reached])
            reached = projection.position.sequence
            progress(reached, until)


@asynccontextmanager
async def _scratch(database_url: str, schema: str) -> AsyncIterator[Connection]:
    """A fresh schema that is gone afterwards, unless it was renamed."""
    connection = await connect(database_url, schema)
    try:
        if not await connection.fetchval(
            "SELECT pg_try_advisory_lock(hashtextextended('penstock scratch ' || $1, 0))", schema
        ):
            raise Conflict(f"Another process is working in the schema {schema}. Try again later.")
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        await prepare(database_url, schema)
        try:
            yield connection
        finally:
            if not connection.is_closed():
                await asyncio.shield(connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))
    finally:
        connection.terminate()


async def _switch(connection: Connection, sequence: int) -> bool:
    """Put the build, which stands at a sequence, in the place of the schema in use, unless that
    one is further."""
    try:
        async with connection.transaction():
            in_use = await connection.fetchval(f"SELECT to_regnamespace('{SCHEMA}') IS NOT NULL")
            if in_use:
                # Not the row: who waits for a row holds the table, and could never be dropped.
                await connection.execute(f"LOCK TABLE {SCHEMA}.position IN ACCESS EXCLUSIVE MODE")
                reached = await connection.fetchval(f"SELECT sequence FROM {SCHEMA}.position")
                if reached is not None and reached > sequence:
                    return False
                await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
            await connection.execute(f"ALTER SCHEMA {BUILD_SCHEMA} RENAME TO {SCHEMA}")
            await connection.execute(f"SELECT pg_notify('{SCHEMA}_position', $1)", str(sequence))
    except asyncpg.DeadlockDetectedError:
        # A reader held one table and waited for another. It is gone by now.
        return False
    return True


async def _compare(connection: Connection) -> list[Difference]:
    found: list[Difference] = []
    for table in tables.metadata.sorted_tables:
        if table is tables.position:
            continue
        columns = ", ".join(
            # JSON has no equality; its text does.
            f'"{column.name}"::text' if isinstance(column.type, JSON) else f'"{column.name}"'
            for column in table.columns
        )
        live = f"SELECT {columns} FROM {SCHEMA}.{table.name}"
        folded = f"SELECT {columns} FROM {VERIFY_SCHEMA}.{table.name}"
        for kind, one, other in (("unexpected", live, folded), ("missing", folded, live)):
            rows = await connection.fetch(
                f"SELECT row_to_json(difference)::text AS row FROM "
                f"({one} EXCEPT ALL {other} LIMIT {MAX_DIFFERENCES}) AS difference"
            )
            found += [Difference(table=table.name, kind=kind, row=row["row"]) for row in rows]
    return found
