"""`penstock task`: single tasks, by id, range or 'last'."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from penstock import exit_codes
from penstock.cli import durations, selectors, show
from penstock.cli.selectors import Indexes
from penstock.cli.session import Group, Session, pass_session
from penstock.errors import NotFound
from penstock.events.tasks import TASK_STATES, TaskState

if TYPE_CHECKING:
    from penstock.client import Client, Task

MAX_SELECTED = 10_000
AT_ONCE = 20

Selector = Indexes | str
T = TypeVar("T")


@click.group(cls=Group)
def task() -> None:
    """Tasks: look at, cancel, read their output.

    SELECTOR is an id (10), a range (1-10, 1-10:2), or 'last'.
    """


@task.command("list")
@click.argument("chosen", metavar="[SELECTOR]...", nargs=-1, type=selectors.tasks)
@click.option("--group", "-g", "task_group", help="Only of this task group, by id or name.")
@click.option("--state", type=click.Choice(TASK_STATES), help="Only in this state.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@pass_session
def list_tasks(
    session: Session,
    *,
    chosen: tuple[Selector, ...],
    task_group: str | None,
    state: TaskState | None,
    limit: int,
) -> None:
    """List tasks."""

    async def conversation(client: "Client") -> "list[Task]":
        if not chosen:
            found = client.tasks(task_group=task_group, state=state, limit=limit)
            return [one async for one in found]
        named = await _existing(client, chosen)
        return [one for one in named if state is None or one.state == state][:limit]

    tasks = session.ask_fresh(conversation)
    if session.output == "json":
        show.json(tasks)
    elif session.output == "quiet":
        for one in tasks:
            click.echo(one.id)
    else:
        show.table(
            ["id", "group", "state", "try", "manager", "started", "took", "why"],
            [
                [
                    one.id,
                    one.task_group_id,
                    one.state,
                    one.attempt or None,
                    one.manager_id,
                    one.started_at,
                    _took(one),
                    None if one.succeeded else why(one),
                ]
                for one in tasks
            ],
            "There are no such tasks.",
        )


@task.command("show")
@click.argument("chosen", metavar="SELECTOR...", nargs=-1, type=selectors.tasks, required=True)
@pass_session
def show_task(session: Session, *, chosen: tuple[Selector, ...]) -> None:
    """Show tasks in full."""
    tasks = session.ask_fresh(lambda client: _tasks(client, chosen))
    if session.output == "json":
        show.json(tasks[0] if len(tasks) == 1 else tasks)
        return
    for number, one in enumerate(tasks):
        if session.output == "quiet":
            click.echo(one.id)
            continue
        if number:
            click.echo()
        _show(one)


@task.command()
@click.argument("chosen", metavar="SELECTOR...", nargs=-1, type=selectors.tasks, required=True)
@click.option("--reason", default="", help="Why; kept in the log.")
@pass_session
def cancel(session: Session, *, chosen: tuple[Selector, ...], reason: str) -> None:
    """Cancel tasks: those that run get a signal."""

    async def conversation(client: "Client") -> "list[Task]":
        ids = await _ids(client, chosen)
        return [await client.cancel_task(task_id, reason=reason) for task_id in ids]

    tasks = session.ask(conversation)
    if session.output == "json":
        show.json(tasks[0] if len(tasks) == 1 else tasks)
    elif session.output == "quiet":
        for one in tasks:
            click.echo(one.id)
    else:
        for one in tasks:
            asked = one.state != "cancelled"
            click.echo(f"Task {one.id} {'was asked to end' if asked else 'is cancelled'}.")


@task.command()
@click.argument("chosen", metavar="SELECTOR...", nargs=-1, type=selectors.tasks, required=True)
@click.option("--stdout", "only", flag_value="stdout", help="Standard output only.")
@click.option("--stderr", "only", flag_value="stderr", help="Standard error only, on our stdout.")
@pass_session
def output(session: Session, *, chosen: tuple[Selector, ...], only: str | None) -> int:
    """Print what tasks wrote."""

    async def conversation(client: "Client") -> int:
        for task_id in await _ids(client, chosen):
            written = await client.output(task_id)
            if session.output == "json":
                show.json_line({"id": task_id, "stdout": written.stdout, "stderr": written.stderr})
                continue
            if only != "stderr":
                click.echo(written.stdout, nl=False)
            if only != "stdout":
                click.echo(written.stderr, nl=False, err=only is None)
            if written.truncated:
                show.note(f"Task {task_id} wrote more; only the beginning was kept.")
        return exit_codes.OK

    return session.ask_fresh(conversation)


async def _ids(client: "Client", chosen: tuple[Selector, ...]) -> list[int]:
    """The ids that selectors stand for, each once, in order."""
    ids: dict[int, None] = {}
    for selector in chosen:
        if isinstance(selector, str):
            ids[await _last(client)] = None
        elif selector.count > MAX_SELECTED:
            raise click.UsageError(f"Select at most {show.count(MAX_SELECTED)} tasks at a time.")
        else:
            ids.update(dict.fromkeys(selector.numbers))
    return list(ids)


async def _last(client: "Client") -> int:
    """The newest task. Ids are handed out from 1 on without gaps, so that it is their number."""
    client.see_at_least((await client.status()).sequence)
    last = sum((await client.status()).tasks.values())
    if last == 0:
        raise NotFound("There is no task yet. Submit one with 'penstock submit'.")
    return last


async def _existing(client: "Client", chosen: tuple[Selector, ...]) -> "list[Task]":
    """Those of the tasks that exist; the others are noted. Raises `NotFound` when none does."""
    ids = await _ids(client, chosen)

    async def one(task_id: int) -> "Task | int":
        try:
            return await client.task(task_id)
        except NotFound:
            return task_id

    found = await _at_once(one, ids)
    missing = [task_id for task_id in found if isinstance(task_id, int)]
    if missing:
        text = f"There is no task {', '.join(selectors.show_ranges(selectors.ranges(missing)))}."
        if len(missing) == len(found):
            raise NotFound(text)
        show.note(text)
    return [task for task in found if not isinstance(task, int)]


async def _tasks(client: "Client", chosen: tuple[Selector, ...]) -> "list[Task]":
    return await _at_once(client.task, await _ids(client, chosen))


async def _at_once(ask: Callable[[int], Awaitable[T]], ids: list[int]) -> list[T]:
    """Ask about many tasks, some at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(task_id: int) -> T:
        async with places:
            return await ask(task_id)

    return list(await asyncio.gather(*(one(task_id) for task_id in ids)))


def _show(one: "Task") -> None:
    spec = one.spec or {}
    command = spec.get("command")
    show.facts(
        [
            ("Task", one.id),
            ("Task group", one.task_group_id),
            ("State", one.state),
            ("Why", None if one.succeeded else why(one)),
            ("Command", " ".join(command) if command else None),
            ("Handler", spec.get("handler")),
            ("Arguments", spec.get("arguments")),
            ("Attempt", one.attempt or None),
            ("Manager", one.manager_id),
            ("Worker", one.worker),
            ("Submitted", one.submitted_at),
            ("Started", one.started_at),
            ("Ended", one.ended_at),
            ("Took", _took(one)),
            ("CPU", one.cpu_seconds and durations.show(one.cpu_seconds)),
            ("Memory", one.max_rss_bytes and f"{one.max_rss_bytes / 2**20:.1f} MiB"),
            ("Exit code", one.exit_code),
            ("Result", one.result),
        ]
    )
    for number, earlier in enumerate(one.attempts, 1):
        text = show.cell(earlier.get("message") or earlier.get("cause"))
        click.echo(f"Attempt {earlier.get('attempt', number)} ended: {text}")
    for name, written in (("stdout", one.stdout), ("stderr", one.stderr)):
        if written:
            click.echo(click.style(f"--- {name}", dim=True))
            click.echo(written, nl=not written.endswith("\n"))


def why(one: "Task") -> str | None:
    """Why a task is as it is, in a few words."""
    if one.cause == "exit_code":
        return f"exit code {one.exit_code}"
    if one.cause == "signal":
        return f"signal {one.signal}"
    if one.cancel_requested and not one.ended:
        return "asked to end"
    return one.message or (one.cause.replace("_", " ") if one.cause else None)


def _took(one: "Task") -> str | None:
    if one.started_at is None or one.ended_at is None:
        return None
    return durations.show((one.ended_at - one.started_at).total_seconds())
