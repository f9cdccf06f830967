"""The projector: keeps the read model at the end of the log.

Any number may run; one is active, by an advisory lock that Postgres takes back with its connection.
It follows the log from the stored position and applies whatever has come as one batch. A commit
that comes alone is applied at once. Under load it gathers for up to 50 ms, so that the many tasks
that begin and end in that time cost one row each, and no more.

When Postgres is away, it waits and begins again from the stored position: the position is part of
every transaction. When the position moved under it (another writer, another build), it loads again.
A log that does not fit the position stops it for good.
"""

import asyncio
from time import monotonic

import structlog

from penstock.events import Log
from penstock.events.append import backoff
from penstock.events.feed import Feed
from penstock.projections.read_models.database import AWAY, UNSTORABLE, Connection, connect
from penstock.projections.read_models.projection import (
    Projection,
    check_log,
    load_position,
    prepare,
)
from penstock.projections.read_models.rebuild import rebuild
from penstock.projections.read_models.tables import SCHEMA, VERSION
from penstock.projections.read_models.writer import Moved

logger = structlog.get_logger("penstock.projector")

MAX_GATHER_SECONDS = 0.05
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0

_LOCK = "SELECT pg_advisory_lock(hashtextextended('penstock projector ' || current_schema(), 0))"


class Projector:
    def __init__(self, log: Log, database_url: str, *, schema: str = SCHEMA) -> None:
        self.active = asyncio.Event()
        """Set while this projector holds the lock."""
        self._log = log
        self._database_url = database_url
        self._schema = schema

    async def run(self) -> None:
        """Project for ever. Raises `Corrupt` when the log and the read model do not fit."""
        pauses = backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            began = monotonic()
            try:
                await prepare(self._database_url, self._schema)
                connection = await connect(self._database_url, self._schema)
                try:
                    await self._project(connection)
                finally:
                    self.active.clear()
                    connection.terminate()
            except AWAY as error:
                if isinstance(error, UNSTORABLE):
                    raise
                if monotonic() - began > LONGEST_PAUSE_SECONDS:
                    pauses = backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
                pause_seconds = next(pauses)
                logger.warning("postgres_is_away", why=str(error), retry_seconds=pause_seconds)
                await asyncio.sleep(pause_seconds)

    async def _project(self, connection: Connection) -> None:
        await connection.execute(_LOCK)
        self.active.set()
        while True:
            if (await load_position(connection)).version < VERSION:
                logger.info("read_model_is_outdated", version=VERSION)
                await rebuild(self._log, self._database_url)
            projection = await Projection.load(connection)
            position = projection.position
            await check_log(self._log, position)
            logger.info("projecting", sequence=position.sequence, build=projection.build)
            try:
                await self._follow(projection)
            except Moved:
                logger.info("read_model_was_moved")

    async def _follow(self, projection: Projection) -> None:
        gather_seconds = 0.0
        applied_at = 0.0
        async with Feed(self._log, projection.position) as feed:
            while True:
                entries, size = await feed.take(applied_at + gather_seconds - monotonic())
                began = monotonic()
                await projection.apply(entries)
                applied_at = monotonic()
                # Busy for a quarter of the time at most, while batches are small.
                gather_seconds = min(
                    MAX_GATHER_SECONDS, 3 * (applied_at - began) + size / 1_000_000
                )
