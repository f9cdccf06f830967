"""`penstock up`, `down` and `demo`: a whole system on this machine."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock import exit_codes
from penstock.cli import show
from penstock.cli.session import Command, Session, pass_session
from penstock.configuration import DEFAULT_DATA, DEFAULT_LISTEN
from penstock.errors import Invalid

if TYPE_CHECKING:
    from penstock.up import Settings


@click.command(cls=Command)
@click.option(
    "--listen", default=None, metavar="HOST:PORT", help=f"Default {DEFAULT_LISTEN}; port 0 is any."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Default: one per core.")
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="Of the manager; may be repeated."
)
@click.option("--detach", "-d", is_flag=True, help="Run in the background; stop with 'down'.")
@pass_session
def up(
    session: Session,
    *,
    listen: str | None,
    workers: int | None,
    tags: tuple[str, ...],
    detach: bool,
) -> None:
    """Start a system: NATS, Postgres, coordinator, projector, manager.

    All that it keeps is in the data directory; started there again, it goes on where it was.
    """
    from penstock.logging import set_up_logging
    from penstock.up import System, main

    set_up_logging(os.environ.get("PENSTOCK_LOG_LEVEL") or "warning")
    settings = _settings(session, listen, workers, tags)
    if detach:
        _ready(session, main.start_detached(settings).url, settings.data)
        return

    def ready(system: System) -> None:
        _ready(session, system.url, settings.data)
        if session.output == "human":
            click.echo("Stop it with Ctrl-C.")

    asyncio.run(main.run(settings, ready))


@click.command(cls=Command)
@pass_session
def down(session: Session) -> int:
    """Stop the system of a data directory."""
    from penstock.up import main

    data = _data(session)
    stopped = asyncio.run(main.down(data))
    if session.output == "json":
        show.json({"stopped": stopped, "data": str(data.absolute())})
    elif session.output == "human":
        click.echo("Stopped." if stopped else f"Nothing runs in {data}.")
    return exit_codes.OK


@click.command(cls=Command)
@click.option("--tasks", type=click.IntRange(1), default=1000, show_default=True, metavar="N")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Default: one per core.")
@pass_session
def demo(session: Session, *, tasks: int, workers: int | None) -> int:
    """Start a system, run a sample campaign, and show where to look next.

    At a terminal it stays up until Ctrl-C. Without one it ends by itself, with exit code 0 when
    all tasks succeeded.
    """
    from penstock.logging import set_up_logging
    from penstock.up.demo import run

    set_up_logging("error")
    return run(_settings(session, None, workers), tasks)


def _data(session: Session) -> Path:
    return Path(session.data or os.environ.get("PENSTOCK_DATA") or DEFAULT_DATA)


def _settings(
    session: Session, listen: str | None, workers: int | None, tags: Sequence[str] = ()
) -> "Settings":
    from penstock.up import Settings

    return Settings(
        data=_data(session),
        listen=listen or os.environ.get("PENSTOCK_LISTEN") or DEFAULT_LISTEN,
        workers=workers or _whole_number("PENSTOCK_WORKERS"),
        tags=_tags(tags),
    )


def _tags(given: Sequence[str]) -> list[str]:
    for tag in given:
        if "," in tag:
            raise Invalid(f"A tag holds no comma: {tag!r}. Repeat --tag for each.")
    tags = given or (os.environ.get("PENSTOCK_TAGS") or "").split(",")
    return [tag.strip() for tag in tags if tag.strip()]


def _whole_number(variable: str) -> int:
    text = os.environ.get(variable) or "0"
    if not text.isdecimal():
        raise Invalid(f"{variable} must be a whole number, not {text!r}.")
    return int(text)


def _ready(session: Session, url: str, data: Path) -> None:
    if session.output == "json":
        show.json({"url": url, "data": str(data.absolute())})
    elif session.output == "quiet":
        click.echo(url)
    else:
        click.echo(f"Penstock is ready at {url}, with its data in {data}.")
        elsewhere = "" if data == Path(DEFAULT_DATA) else f" --data {data}"
        click.echo(f"Try: penstock{elsewhere} submit --wait -- echo hello")
