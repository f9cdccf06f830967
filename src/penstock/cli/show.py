"""Showing things: tables and facts for people, JSON for programs, ids for pipes.

Only a terminal gets colours and fitted columns. A pipe or a file gets the same text, plain and
whole, so that what `grep` sees does not depend on the width of a window.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {
    "succeeded": "green",
    "complete": "green",
    "running": "cyan",
    "executing": "cyan",
    "assigned": "blue",
    "failed": "red",
    "offline": "red",
    "cancelled": "yellow",
}


def json(value: Any) -> None:
    """One document on one line; indented for a terminal."""
    import msgspec

    text = msgspec.json.encode(value)
    if sys.stdout.isatty():
        text = msgspec.json.format(text, indent=2)
    click.echo(text)


def json_line(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    texts = [[cell(value) for value in row] for row in rows]
    if not texts:
        click.echo(empty)
    elif sys.stdout.isatty():
        _terminal_table(header, texts)
    else:
        widths = [max(len(row[i]) for row in [header, *texts]) for i in range(len(header))]
        for row in [[name.upper() for name in header], *texts]:
            line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            click.echo(line.rstrip())


def _terminal_table(header: Sequence[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(*header, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in rows:
        grid.add_row(*(Text(text, style=COLOURS.get(text, "")) for text in row))
    console().print(grid)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; those without a value are left out."""
    known = [(name, cell(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        label = click.style(f"{name:<{width}}", bold=True)
        click.echo(f"{label}  {click.style(value, fg=COLOURS.get(value))}")


def cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(cell(item) for item in value) or "-"
    return " ".join(str(value).split())


def moment(value: datetime) -> str:
    """A time in the user's own zone."""
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def count(number: int) -> str:
    return f"{number:,}"


def counts(numbers: dict[str, int]) -> str:
    """'3 running, 5 ready', without zeros."""
    return ", ".join(f"{count(n)} {name}" for name, n in numbers.items() if n) or "none"


def note(text: str) -> None:
    """A word to the user that is not the result."""
    click.echo(text, err=True)


def console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, no_color="NO_COLOR" in os.environ or None)
