"""A read model that is being written: where it stands, what it remembers, and how it moves on."""

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from penstock import migrations
from penstock.errors import Corrupt, Invalid, NotFound
from penstock.events import Entry, Log, Position, digest
from penstock.projections.read_models import tables
from penstock.projections.read_models.database import Connection, connect
from penstock.projections.read_models.fold import fold
from penstock.projections.read_models.in_flight import ActiveTask, Assignment, InFlight
from penstock.projections.read_models.writer import write


class ReadModelPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a read model stands: which version of the tables, which build, how far in the log."""

    version: int
    build: str
    position: Position


async def prepare(database_url: str, schema: str) -> None:
    """Make the schema ready to be written: its newest revision, and a position at the start."""
    await migrations.upgrade(database_url, schema)
    connection = await connect(database_url, schema)
    try:
        await connection.execute(
            "INSERT INTO position VALUES (true, $1, $2, 0, 0, '', now()) ON CONFLICT DO NOTHING",
            tables.VERSION,
            uuid4().hex,
        )
    finally:
        await connection.close()


async def load_position(connection: Connection) -> ReadModelPosition:
    row = await connection.fetchrow("SELECT version, build, sequence, counter, hash FROM position")
    if row is None:
        raise Invalid("The read model has no position: its schema was not prepared.")
    return ReadModelPosition(
        version=row["version"],
        build=row["build"],
        position=Position(sequence=row["sequence"], counter=row["counter"], hash=row["hash"]),
    )


class Projection:
    """After an error, load it again: the memory may be ahead of the database."""

    def __init__(
        self,
        connection: Connection,
        stored: ReadModelPosition,
        in_flight: InFlight,
        partitions: set[str],
    ) -> None:
        self.build = stored.build
        self.position = stored.position
        self._connection = connection
        self._in_flight = in_flight
        self._partitions = partitions

    @classmethod
    async def load(cls, connection: Connection) -> "Projection":
        """Read the position and what was in flight there."""
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            stored = await load_position(connection)
            if stored.version != tables.VERSION:
                raise Invalid(
                    f"The read model has version {stored.version}, this process writes version "
                    f"{tables.VERSION}. Run 'penstock projections rebuild' with the newer one."
                )
            in_flight = InFlight()
            for row in await connection.fetch("SELECT * FROM assignments ORDER BY first"):
                in_flight.assign(Assignment(**dict(row), stored=True))
            for row in await connection.fetch("SELECT * FROM active_tasks"):
                task = ActiveTask(**dict(row), stored=True)
                in_flight.active[task.id] = task
            partitions = await connection.fetch(
                "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
                "WHERE inhparent = 'archived_tasks'::regclass"
            )
        return cls(connection, stored, in_flight, {row["relname"] for row in partitions})

    async def apply(self, entries: Sequence[Entry]) -> None:
        """Fold and write commits that follow the position, as one transaction."""
        effect = fold(self._in_flight, entries)
        after = entries[-1].position
        await write(
            self._connection,
            effect,
            self._partitions,
            build=self.build,
            before=self.position,
            after=after,
        )
        self.position = after


async def check_log(log: Log, position: Position) -> None:
    """Raise `Corrupt` when a read model was made from another log, or from more of this one."""
    sequence = position.sequence
    if sequence == 0:
        return
    try:
        found = digest(await log.read(sequence))
    except NotFound as error:
        raise Corrupt(
            f"The read model stands at sequence {sequence}, which the log does not have: the log "
            "was cut off, or the database belongs to another log.",
            sequence=sequence,
        ) from error
    if found != position.hash:
        raise Corrupt(
            f"The read model was made from another log: at sequence {sequence} this one holds "
            "another commit. Check PENSTOCK_DATABASE_URL and PENSTOCK_NATS_URL; 'penstock "
            "projections rebuild' makes the read model anew from this log.",
            sequence=sequence,
        )
