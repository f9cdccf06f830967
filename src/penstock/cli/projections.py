"""`penstock projections`: the read models in Postgres, compared with the log.

These commands speak to NATS and Postgres themselves: they are for operators, on a machine that has
both addresses, and work while no coordinator does.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from penstock import exit_codes
from penstock.cli import show
from penstock.cli.progress_bar import ProgressBar
from penstock.cli.session import Group, Session, pass_session
from penstock.configuration import DEFAULT_DATA
from penstock.errors import Unavailable

if TYPE_CHECKING:
    from penstock.events import Log

T = TypeVar("T")


@click.group(cls=Group)
def projections() -> None:
    """Read models: how far they are, rebuild, verify."""


@projections.command()
@pass_session
def status(session: Session) -> None:
    """Show how the read model stands to the log."""
    from penstock.projections import read_models

    found = _with_log(session, read_models.status)
    if session.output == "json":
        show.json(found)
    elif session.output == "quiet":
        click.echo(found.sequence)
    else:
        newer = found.version != found.wanted_version
        show.facts(
            [
                ("Read model", f"commit {show.count(found.sequence)}"),
                ("Log", f"{show.count(found.log_end)} commits"),
                ("Behind", f"{show.count(found.behind)} commits"),
                ("Updated", found.updated_at),
                ("Version", found.version),
                ("Wanted", f"{found.wanted_version}: rebuild it" if newer else None),
                ("Projectors", found.projectors),
                ("Rebuild", "under way" if found.building else None),
            ]
        )


@projections.command()
@pass_session
def rebuild(session: Session) -> None:
    """Build the read model anew, beside the one in use, then switch."""
    from penstock.projections import read_models

    with ProgressBar("commits", None) as bar:
        place = _with_log(
            session,
            lambda log, database: read_models.rebuild(
                log, database, lambda reached, aim: bar.update(reached, f"of {aim}")
            ),
        )
    if session.output == "json":
        show.json(place)
    elif session.output == "quiet":
        click.echo(place.position.sequence)
    else:
        click.echo(f"The read model was built anew, up to commit {place.position.sequence}.")


@projections.command()
@pass_session
def verify(session: Session) -> int:
    """Compare every row with a fold of the log; exit 7 if any differs."""
    from penstock.projections import read_models

    with ProgressBar("commits", None) as bar:
        differences = _with_log(
            session,
            lambda log, database: read_models.verify(
                log, database, lambda reached, aim: bar.update(reached, f"of {aim}")
            ),
        )
    if session.output == "json":
        show.json(differences)
    elif session.output == "human":
        for difference in differences:
            click.echo(f"{difference.table}: {difference.kind} {difference.row}")
        if not differences:
            click.echo("The read model equals the log.")
    if differences:
        show.note("The read model differs from the log. Run 'penstock projections rebuild'.")
    return exit_codes.CORRUPT if differences else exit_codes.OK


def _with_log(session: Session, work: "Callable[[Log, str], Awaitable[T]]") -> T:
    """Do something with the log and the database."""
    from penstock.events import Subjects
    from penstock.events.connection import connect
    from penstock.events.jetstream import JetStreamLog

    nats_url, database_url = _addresses(session)

    async def conversation() -> T:
        connection = await connect(nats_url, "projections")
        try:
            prefix = os.environ.get("PENSTOCK_PREFIX") or "penstock"
            return await work(JetStreamLog(connection, Subjects(prefix)), database_url)
        finally:
            await connection.close()

    return asyncio.run(conversation())


def _addresses(session: Session) -> tuple[str, str]:
    """Of NATS and Postgres: from the environment, else of the local system."""
    from penstock.up.data_directory import DataDirectory

    nats_url = os.environ.get("PENSTOCK_NATS_URL")
    database_url = os.environ.get("PENSTOCK_DATABASE_URL")
    if session.data is None and nats_url and database_url:
        return nats_url, database_url
    data = Path(session.data or os.environ.get("PENSTOCK_DATA") or DEFAULT_DATA)
    address = DataDirectory(data).address()
    if address is None:
        raise Unavailable(
            f"No system runs in {data}. Start it with 'penstock up', or set PENSTOCK_NATS_URL and "
            "PENSTOCK_DATABASE_URL."
        )
    return address.nats_url, address.database_url
