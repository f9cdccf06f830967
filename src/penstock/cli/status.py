"""`penstock status`: the system in numbers."""

import click

from penstock.cli import show
from penstock.cli.session import Command, Session, pass_session


@click.command(cls=Command)
@pass_session
def status(session: Session) -> None:
    """Show whether a system runs, and what it has to do."""
    found = session.ask(lambda client: client.status())
    if session.output == "json":
        show.json(found)
    elif session.output == "quiet":
        click.echo(found.sequence)
    else:
        behind = found.sequence - found.read_model_sequence
        show.facts(
            [
                ("Version", found.version),
                ("Leader", f"{found.leader or 'none'} (epoch {found.epoch})"),
                ("Log", f"{show.count(found.sequence)} commits"),
                ("Read model", f"{show.count(behind)} commits behind" if behind > 0 else "current"),
                ("Task groups", show.counts(found.task_groups)),
                ("Tasks", show.counts(found.tasks)),
                ("Managers", show.counts(found.managers)),
            ]
        )
