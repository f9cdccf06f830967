"""`penstock replay`: the state as of any moment, folded from the log.

Every commit is checked on the way: its hash, its counter, and that it follows the one before it.
"""

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from penstock import exit_codes
from penstock.cli import durations, show
from penstock.cli.progress_bar import ProgressBar
from penstock.cli.session import Command, Session, pass_session
from penstock.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from penstock.cli.replayed import Replayed
    from penstock.client import Client

COMPARISONS = 20


def time(text: str) -> datetime:
    """The type of an option: a time, or how long ago."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=durations.parse(text))
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not a time. Write 2030-01-31T12:00, or 10m for ten minutes ago."
        ) from error


@click.command(cls=Command)
@click.option("--to", type=click.IntRange(1), metavar="SEQUENCE", help="Fold up to this commit.")
@click.option("--at", type=time, help="Fold up to this time; '10m' is ten minutes ago.")
@click.option("--verify", is_flag=True, help="Compare with the live system; exit 7 if it differs.")
@pass_session
def replay(session: Session, *, to: int | None, at: datetime | None, verify: bool) -> int:
    """Fold the log and show the state.

    The log is checked as it is read. Without options it is folded to its end.
    """
    if verify and (to is not None or at is not None):
        raise click.UsageError("--verify compares the end of the log: leave out --to and --at.")

    from penstock.cli.replayed import Replayed

    async def conversation(client: "Client") -> "tuple[Replayed, list[str]]":
        end = (await client.status()).sequence
        if to is not None and to > end:
            raise NotFound(f"The log has no commit {to}: it ends at {end}.")
        replayed = Replayed()
        await _fold(client, replayed, to or end, at)
        return replayed, await _compare(client, replayed) if verify else []

    replayed, differences = session.ask(conversation)
    if session.output == "json":
        document = msgspec.to_builtins(replayed.document())
        show.json({**document, "differences": differences} if verify else document)
    elif session.output == "quiet":
        click.echo(replayed.position.sequence)
    else:
        _show(replayed)
        if verify and not differences:
            click.echo("The live system has the same state.")
    for difference in differences:
        show.note(f"The live system differs: {difference}")
    return exit_codes.CORRUPT if differences else exit_codes.OK


async def _fold(
    client: "Client", replayed: "Replayed", last: int, at: datetime | None = None
) -> None:
    """Fold on, up to a sequence, or to a time if that comes first."""
    first = replayed.position.sequence + 1
    if first > last:
        return
    until = None if at is None else int(at.timestamp() * 1_000_000)
    with ProgressBar("commits", last) as bar:
        async with aclosing(client.log(first, last)) as lines:
            async for line in lines:
                if not replayed.fold(line.sequence, bytes(line.commit), line.hash, until):
                    return
                if line.sequence % 100 == 0:
                    bar.update(line.sequence)
        bar.update(replayed.position.sequence)
    if replayed.position.sequence != last:
        raise Unavailable(
            f"The log broke off at commit {replayed.position.sequence} of {last}. Try again."
        )


async def _compare(client: "Client", replayed: "Replayed") -> list[str]:
    """Compare with what the live system shows of exactly the commits that were folded."""
    # The fold may be ahead of the read model, which then has to come as far first.
    client.see_at_least(replayed.position.sequence)
    before = await client.status()
    for _ in range(COMPARISONS):
        await _fold(client, replayed, before.read_model_sequence)
        now = await client.status()
        # Between two looks at the same sequence, the counts were those of that sequence.
        if before.read_model_sequence == now.read_model_sequence == replayed.position.sequence:
            return replayed.differences(now)
        before = now
    raise Unavailable(
        "The system is too busy to be compared. Try again when it is quiet, or compare the read "
        "model with 'penstock projections verify'."
    )


def _show(replayed: "Replayed") -> None:
    document = replayed.document()
    show.facts(
        [
            ("As of commit", show.count(document.sequence)),
            ("At", document.at),
            ("Hash", document.hash),
            ("Leader", f"{document.leader or 'none'} (epoch {document.epoch})"),
            ("Tasks", show.counts(document.tasks)),
        ]
    )
    click.echo()
    show.table(
        ["id", "task group", "state", "total", "ready", "in flight", "succeeded", "failed"],
        [
            [
                group.id,
                group.name,
                group.state,
                show.count(group.counts["total"]),
                show.count(group.counts["ready"] + group.counts["waiting"]),
                show.count(group.counts["assigned"] + group.counts["running"]),
                show.count(group.counts["succeeded"]),
                show.count(group.counts["failed"]),
            ]
            for group in document.task_groups
        ],
        "There are no task groups.",
    )
    click.echo()
    show.table(
        ["manager", "state", "workers", "task group", "tasks held"],
        [
            [one.id, one.state, one.worker_count, one.task_group_id, one.tasks_held]
            for one in document.managers
        ],
        "There are no managers.",
    )
