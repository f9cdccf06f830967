"""`penstock group`: task groups."""

from typing import TYPE_CHECKING

import click

from penstock import exit_codes
from penstock.cli import show
from penstock.cli.session import Group, Session, pass_session

if TYPE_CHECKING:
    from penstock.client import Client, TaskGroup


@click.group(cls=Group)
def group() -> None:
    """Task groups: create, look at, close, cancel."""


@group.command()
@click.argument("name")
@click.option("--owner", "owner", metavar="GROUP", help="Group of people and machines it is for.")
@click.option("--description", help="What it is about.")
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--tag", multiple=True, help="A manager must have all of these tags.")
@click.option("--label", multiple=True, help="Label, kept with the task group and shown with it.")
@click.option("--max-managers", type=click.IntRange(1), help="At most so many managers at a time.")
@click.option("--prefetch", type=click.IntRange(0), help="Tasks a manager keeps in its buffer.")
@pass_session
def create(
    session: Session,
    *,
    name: str,
    owner: str | None,
    description: str | None,
    priority: int | None,
    tag: tuple[str, ...],
    label: tuple[str, ...],
    max_managers: int | None,
    prefetch: int | None,
) -> None:
    """Create a task group."""
    created = session.ask(
        lambda client: client.create_task_group(
            name,
            group=owner,
            description=description,
            priority=priority,
            tags=tag or None,
            labels=label or None,
            max_managers=max_managers,
            task_prefetch_count=prefetch,
        )
    )
    _changed(session, created, f"Created task group {created.id} ({created.name}).")


@group.command("list")
@click.option(
    "--state", type=click.Choice(["open", "closed", "complete", "cancelled"]), help="Only these."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@pass_session
def list_groups(session: Session, *, state: str | None, limit: int) -> None:
    """List task groups."""
    from penstock.client.models import TaskGroupState

    wanted: TaskGroupState | None = state  # type: ignore[assignment]

    async def conversation(client: "Client") -> "list[TaskGroup]":
        return [found async for found in client.task_groups(state=wanted, limit=limit)]

    groups = session.ask_fresh(conversation)
    if session.output == "json":
        show.json(groups)
    elif session.output == "quiet":
        for found in groups:
            click.echo(found.id)
    else:
        show.table(
            [
                "id",
                "name",
                "state",
                "total",
                "succeeded",
                "failed",
                "cancelled",
                "managers",
                "created",
            ],
            [
                [
                    found.id,
                    found.name,
                    found.state,
                    show.count(found.counts.total),
                    show.count(found.counts.succeeded),
                    show.count(found.counts.failed),
                    show.count(found.counts.cancelled),
                    len(found.managers),
                    found.created_at,
                ]
                for found in groups
            ],
            "There are no such task groups.",
        )


@group.command("show")
@click.argument("name")
@pass_session
def show_group(session: Session, *, name: str) -> None:
    """Show one task group, by id or name."""
    found = session.ask_fresh(lambda client: client.task_group(name))
    if session.output == "json":
        show.json(found)
    elif session.output == "quiet":
        click.echo(found.id)
    else:
        counts = found.counts
        show.facts(
            [
                ("Task group", f"{found.id} ({found.name})"),
                ("State", found.state),
                ("Result", found.result),
                ("Group", found.group),
                ("Description", found.description),
                ("Priority", found.priority),
                ("Tags", found.tags),
                ("Labels", found.labels),
                ("At most", found.max_managers and f"{found.max_managers} managers"),
                ("Created", found.created_at),
                ("Closed", found.closed_at),
                ("Completed", found.completed_at),
                ("Managers", found.managers),
                ("Tasks", f"{show.count(counts.total)}, {show.count(counts.finished)} ended"),
                ("Unfinished", show.counts(_some(found, "waiting ready assigned running"))),
                ("Ended", show.counts(_some(found, "succeeded failed cancelled"))),
            ]
        )


@group.command()
@click.argument("name")
@click.option("--reason", default="", help="Why; kept in the log.")
@pass_session
def close(session: Session, *, name: str, reason: str) -> None:
    """Accept no more tasks; those that are there are finished."""
    closed = session.ask(lambda client: client.close_task_group(name, reason=reason))
    _changed(session, closed, f"Task group {closed.id} ({closed.name}) is {closed.state}.")


@group.command()
@click.argument("name")
@click.option("--reason", default="", help="Why; kept in the log.")
@pass_session
def reopen(session: Session, *, name: str, reason: str) -> None:
    """Accept tasks again."""
    opened = session.ask(lambda client: client.reopen_task_group(name, reason=reason))
    _changed(session, opened, f"Task group {opened.id} ({opened.name}) is {opened.state}.")


@group.command()
@click.argument("name")
@click.option("--reason", default="", help="Why; kept in the log.")
@click.option("--keep-running", is_flag=True, help="Let tasks that run come to their end.")
@pass_session
def cancel(session: Session, *, name: str, reason: str, keep_running: bool) -> int:
    """Cancel a task group and its tasks."""
    done = session.ask(
        lambda client: client.cancel_task_group(
            name, reason=reason, cancel_running_tasks=not keep_running
        )
    )
    if session.output == "json":
        show.json(done)
    elif session.output == "quiet":
        click.echo(name)
    else:
        click.echo(
            f"Cancelled {show.count(done.ready_cancelled)} tasks that had not begun; asked "
            f"{show.count(done.running_cancelled)} that managers hold to end; "
            f"{show.count(done.running_not_cancellable)} go on."
        )
    return exit_codes.OK


def _changed(session: Session, changed: "TaskGroup", text: str) -> None:
    if session.output == "json":
        show.json(changed)
    elif session.output == "quiet":
        click.echo(changed.id)
    else:
        click.echo(text)


def _some(found: "TaskGroup", states: str) -> dict[str, int]:
    return {state: getattr(found.counts, state) for state in states.split()}
