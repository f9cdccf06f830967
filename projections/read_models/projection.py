"""A read model that is being written: where it stands, what it remembers, and how it moves on."""

from collections.abc import Sequence
from uuid import uuid4

from penstock import migrations
from penstock.errors import Corrupt, Invalid, NotFound
from penstock.events import Entry, Log, Position, digest
from penstock.projections.read_models import tables
from penstock.projections.read_models.database import Connection, connect
from penstock.projections.read_models.in_flight import ActiveTask, Assignment, InFlight
from penstock.projections.read_models.net_effect import fold
from penstock.projections.read_models.writer import Place, write


async def prepare(database_url: str, schema: str) -> None:
    """Make the schema ready to be written: its newest revision, and a position at the start."""
    await migrations.upgrade(database_url, schema)
    connection = await connect(database_url, schema)
    try:
        await connection.execute(
            "INSERT INTO position VALUES (true, $1, $2, 0, 0, '', '', now()) "
            "ON CONFLICT DO NOTHING",
            tables.VERSION,
            uuid4().hex,
        )
    finally:
        await connection.close()


async def load_place(connection: Connection) -> Place:
    row = await connection.fetchrow(
        "SELECT version, build, log_identity, sequence, counter, hash FROM position"
    )
    if row is None:
        raise Invalid("The read model has no position: its schema was not prepared.")
    return Place(
        version=row["version"],
        build=row["build"],
        log_identity=row["log_identity"],
        position=Position(sequence=row["sequence"], counter=row["counter"], hash=row["hash"]),
    )


class Projection:
    """After an error, load it again: the memory may be ahead of the database."""

    def __init__(
        self, connection: Connection, place: Place, in_flight: InFlight, partitions: set[str]
    ) -> None:
        self.place = place
        self._connection = connection
        self._in_flight = in_flight
        self._partitions = partitions

    @classmethod
    async def load(cls, connection: Connection) -> "Projection":
        """Read the position and what was in flight there."""
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            place = await load_place(connection)
            if place.version != tables.VERSION:
                raise Invalid(
                    f"The read model has version {place.version}, this process writes version "
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
        return cls(connection, place, in_flight, {row["relname"] for row in partitions})

    async def apply(self, entries: Sequence[Entry]) -> None:
        """Fold and write commits that follow the position, as one transaction."""
        after = self.place
        for entry in entries:
            after = _next(after, entry)
        effect = fold(self._in_flight, entries)
        await write(self._connection, effect, self.place, after, self._partitions)
        self.place = after


def _next(place: Place, entry: Entry) -> Place:
    position = place.position
    if (
        entry.position.sequence != position.sequence + 1
        or entry.commit.counter != position.counter + 1
        or entry.commit.previous != position.hash
    ):
        raise Corrupt(
            f"The commit at sequence {entry.position.sequence} does not follow the read model, "
            f"which stands at {position.sequence}.",
            sequence=entry.position.sequence,
        )
    return Place(
        version=place.version,
        build=place.build,
        log_identity=place.log_identity or entry.position.hash,
        position=entry.position,
    )


async def check_log(log: Log, place: Place) -> None:
    """Raise `Corrupt` when a read model was made from another log, or from more of this one."""
    sequence = place.position.sequence
    if sequence == 0:
        return
    end = await log.end()
    if end < sequence:
        raise Corrupt(
            f"The read model stands at sequence {sequence}, but the log ends at {end}: the log was "
            "cut off, or the database belongs to another log.",
            sequence=sequence,
        )
    try:
        first = digest(await log.read(1))
    except NotFound:
        # The beginning was archived. The hash at the position is proof enough.
        return
    if first != place.log_identity:
        raise Corrupt(
            "The read model was made from another log. Check PENSTOCK_DATABASE_URL and "
            "PENSTOCK_NATS_URL; 'penstock projections rebuild' makes it anew from this log.",
            sequence=sequence,
        )
