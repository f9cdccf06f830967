"""`penstock log`: the log as it is."""

from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import show
from penstock.cli.session import Group, Session, pass_session

if TYPE_CHECKING:
    from penstock.client import Client, LogLine

_HIDDEN = {"type", "at", "actor", "reason", "cause"}


@click.group(cls=Group)
def log() -> None:
    """The log: every change of state, in order."""


@log.command()
@click.option("-n", "last", type=click.IntRange(0), default=10, show_default=True)
@click.option("--no-follow", is_flag=True, help="End at the end of the log.")
@pass_session
def tail(session: Session, *, last: int, no_follow: bool) -> None:
    """Print the last commits, then each new one; one line an event."""

    async def conversation(client: "Client") -> None:
        end = (await client.status()).sequence
        until = end if no_follow else None
        if last == 0 and no_follow:
            return
        first = max(1, end - last + 1)
        async with aclosing(client.log(first, until, follow=not no_follow)) as lines:
            async for line in lines:
                _print(session, line)

    session.ask(conversation)


@log.command("show")
@click.argument("sequence", type=click.IntRange(1))
@pass_session
def show_commit(session: Session, *, sequence: int) -> None:
    """Print one commit in full."""
    import msgspec

    from penstock.errors import NotFound

    async def conversation(client: "Client") -> "LogLine":
        async with aclosing(client.log(sequence, sequence)) as lines:
            async for line in lines:
                return line
        raise NotFound(f"The log has no commit {sequence}. See its end with 'penstock status'.")

    line = session.ask(conversation)
    if session.output == "quiet":
        click.echo(line.sequence)
    elif session.output == "json":
        show.json(line)
    else:
        click.echo(f"commit {line.sequence}  hash {line.hash}")
        click.echo(msgspec.json.format(bytes(line.commit), indent=2))


def _print(session: Session, line: "LogLine") -> None:
    import msgspec

    if session.output == "quiet":
        click.echo(line.sequence)
    elif session.output == "json":
        show.json_line(line)
    else:
        for event in msgspec.json.decode(line.commit)["events"]:
            click.echo(describe(line.sequence, event))


def describe(sequence: int, event: dict[str, Any]) -> str:
    """An event on one line: where, when, who, what."""
    at = datetime.fromtimestamp(event["at"] / 1_000_000).astimezone()
    clock = at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}"
    details = " ".join(f"{k}={_short(v)}" for k, v in event.items() if k not in _HIDDEN)
    reason = f" because {event['reason']!r}" if event.get("reason") else ""
    kind = click.style(event["type"], bold=True)
    return f"{sequence:>8}  {clock}  {event['actor']:<12}  {kind} {details}{reason}"


def _short(value: Any) -> str:
    """A value in at most a few words; long lists by their length and their ends."""
    import msgspec

    if isinstance(value, list) and len(value) > 1:
        text = f"[{len(value)}: {_short(value[0])} ... {_short(value[-1])}]"
    elif isinstance(value, dict) and "task_id" in value:
        outcome = value.get("outcome", "")
        text = f"task {value['task_id']}" + (f" {outcome}" if outcome else "")
    elif isinstance(value, str):
        text = value
    else:
        text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
