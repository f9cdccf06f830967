"""`penstock submit`: commands and handlers become tasks."""

import os
from collections.abc import Iterator
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import click

from penstock import exit_codes
from penstock.cli import show
from penstock.cli.durations import duration
from penstock.cli.selectors import Indexes, indexes, show_ranges
from penstock.cli.session import Command, Session, pass_session
from penstock.cli.task import why
from penstock.errors import Invalid, NotFound

if TYPE_CHECKING:
    from penstock import TaskSpec
    from penstock.client import Client, Submission, Task

LINES_IN_A_REQUEST = 20_000
BYTES_IN_A_REQUEST = 2 * 1024 * 1024


@click.command(cls=Command)
@click.option("--group", "-g", "task_group", default="default", help="Task group, by id or name.")
@click.option(
    "--array", type=indexes, help="One task per index: 1-1000, 1-100:2, or how many from 0."
)
@click.option(
    "--each-line",
    type=click.File("rb"),
    metavar="FILE",
    help="One task per line that is not empty; '-' is stdin.",
)
@click.option("--handler", metavar="MODULE:FUNCTION", help="Call a Python function.")
@click.option("--args", "arguments", metavar="JSON", help="The handler's: a list, or an object.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment variable.")
@click.option("--cwd", metavar="DIRECTORY", help="Working directory of the task.")
@click.option("--timeout", type=duration, help="End the task after this time: 45s, 5m, 1h30m.")
@click.option("--priority", metavar="N|NAME", help="A number, or low, normal, high, critical.")
@click.option("--retries", type=click.IntRange(0, 999), help="Try again so often when it fails.")
@click.option("--label", multiple=True, help="Label, kept with the task and shown with it.")
@click.option("--key", help="Idempotency key: a repeat with the same key submits nothing new.")
@click.option("--wait", is_flag=True, help="Wait for the end; exit 1 when any task failed.")
@click.option("--progress", is_flag=True, help="Wait, and show a progress bar.")
@click.argument("command", metavar="[-- COMMAND [ARGUMENT]...]", nargs=-1, type=click.UNPROCESSED)
@pass_session
def submit(
    session: Session,
    *,
    task_group: str,
    array: Indexes | None,
    each_line: IO[bytes] | None,
    handler: str | None,
    arguments: str | None,
    env: tuple[str, ...],
    cwd: str | None,
    timeout: float | None,
    priority: str | None,
    retries: int | None,
    label: tuple[str, ...],
    key: str | None,
    wait: bool,
    progress: bool,
    command: tuple[str, ...],
) -> int:
    """Submit one task, or many.

    In a command, and in the arguments of a handler, {index} is replaced by the index of the task
    and, with --each-line, {line} by its line.

    \b
    penstock submit -- convert in.png out.jpg
    penstock submit --array 1-1000 --progress -- ./simulate --seed {index}
    find . -name '*.log' | penstock submit --each-line - -- gzip {line}
    penstock submit --handler mymodule:train --args '[{"depth": 4}]' --wait

    With --wait, a single task's output is passed through. The exit code is 0 when every task
    succeeded and 1 otherwise.
    """
    if array is not None and each_line is not None:
        raise click.UsageError("Use one of --array and --each-line.")
    spec = _spec(
        command=command,
        handler=handler,
        arguments=arguments,
        env=env,
        cwd=cwd,
        timeout=timeout,
        priority=priority,
        retries=retries,
        label=label,
    )
    single = array is None and each_line is None

    async def conversation(client: "Client") -> int:
        if single and wait and not progress:
            return _ended(session, await client.run(spec, task_group=task_group, key=key))
        follow = wait or progress
        ended_before = (await client.progress(task_group)).counts.finished if follow else 0
        if each_line is not None:
            submission = await _submit_lines(client, spec, each_line, task_group, key)
        elif array is not None:
            submission = await client.submit_array(
                spec,
                count=array.count,
                first_index=array.first,
                step=array.step,
                task_group=task_group,
                key=key,
            )
        else:
            submission = await client.submit(spec, task_group=task_group, key=key)
        if follow:
            return await _wait(session, client, submission, ended_before, progress)
        _accepted(session, submission)
        return exit_codes.OK

    try:
        return session.ask(conversation)
    except NotFound as error:
        raise NotFound(f"{error.message}\nCreate it: penstock group create {task_group}") from error


def _spec(
    *,
    command: tuple[str, ...],
    handler: str | None,
    arguments: str | None,
    env: tuple[str, ...],
    cwd: str | None,
    timeout: float | None,
    priority: str | None,
    retries: int | None,
    label: tuple[str, ...],
) -> "TaskSpec":
    import msgspec

    from penstock.events.spec import TaskSpec, validate

    if not command and handler is None:
        raise click.UsageError("Nothing to run. Write it after '--', or name a --handler.")
    if command and handler is not None:
        raise click.UsageError("Use one of --handler and a command.")
    if arguments is not None and handler is None:
        raise click.UsageError("--args belongs to --handler.")
    document: dict[str, Any] = {
        "command": list(command) or None,
        "handler": handler,
        "arguments": None if arguments is None else _json(arguments),
        "environment": dict(_assignment(text) for text in env) or None,
        "working_directory": "" if cwd is None else os.path.abspath(cwd),
        "timeout_seconds": timeout,
        "priority": _priority(priority),
        "labels": tuple(label),
        "retry": None if retries is None else {"max_attempts": retries + 1},
    }
    try:
        spec = msgspec.convert(document, TaskSpec)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"The task is not valid: {error}") from error
    validate(spec)
    return spec


def _json(text: str) -> Any:
    import msgspec

    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(
            f"--args is not JSON: {error}. Quote it: --args '[1, 2]'."
        ) from error
    if not isinstance(value, list | dict):
        raise click.UsageError("--args must be a JSON list or object: --args '[1, 2]'.")
    return value


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--env {text!r} must look like NAME=VALUE.")
    return name, value


def _priority(text: str | None) -> int | str:
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        return text


async def _submit_lines(
    client: "Client", spec: "TaskSpec", source: IO[bytes], task_group: str, key: str | None
) -> "Submission":
    """Send the lines in pieces: the source may be larger than memory."""
    import uuid

    from penstock.client.streams import joined

    key = key or uuid.uuid4().hex
    whole: Submission | None = None
    lines = _lines(source)
    while piece := list(_piece(lines)):
        part = await client.submit_array(
            spec,
            parameters=[{"line": line} for line in piece],
            first_index=0 if whole is None else whole.count,
            task_group=task_group,
            key=f"{key}-{0 if whole is None else whole.count}",
        )
        whole = part if whole is None else joined(whole, part)
    if whole is None:
        raise Invalid("There is no line to submit: the source is empty.")
    return whole


def _lines(source: IO[bytes]) -> Iterator[str]:
    for number, line in enumerate(source, 1):
        try:
            text = line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"Line {number} is not UTF-8 text.") from error
        if text:
            yield text


def _piece(lines: Iterator[str]) -> Iterator[str]:
    size = 0
    for line in islice(lines, LINES_IN_A_REQUEST):
        yield line
        size += len(line)
        if size >= BYTES_IN_A_REQUEST:
            return


def _accepted(session: Session, submission: "Submission") -> None:
    if session.output == "json":
        show.json(submission)
    elif session.output == "quiet":
        for selector in show_ranges(submission.ranges):
            click.echo(selector)
    else:
        tasks = ", ".join(show_ranges(submission.ranges))
        noun = "task" if submission.count == 1 else "tasks"
        earlier = " (submitted before, with the same key)" if submission.duplicate else ""
        click.echo(f"Submitted {noun} {tasks} to task group {submission.task_group_id}{earlier}.")


async def _wait(
    session: Session,
    client: "Client",
    submission: "Submission",
    ended_before: int,
    progress: bool,
) -> int:
    from penstock.cli.progress_bar import ProgressBar
    from penstock.cli.waiting import wait_for

    if progress:
        with ProgressBar("tasks", submission.count) as bar:
            tally = await wait_for(client, submission, ended_before, bar)
    else:
        tally = await wait_for(client, submission, ended_before, None)
    if session.output == "json":
        show.json(tally)
    elif session.output == "quiet":
        for selector in show_ranges(tally.ranges):
            click.echo(selector)
    else:
        ends = {"succeeded": tally.succeeded, "failed": tally.failed, "cancelled": tally.cancelled}
        click.echo(f"{show.count(tally.count)} tasks: {show.counts(ends)}.")
        if tally.failed:
            group = tally.task_group_id
            show.note(f"See why: penstock task list --group {group} --state failed")
    return exit_codes.OK if tally.succeeded == tally.count else exit_codes.FAILED


def _ended(session: Session, task: "Task") -> int:
    """A single task that was waited for: its output is ours."""
    if session.output == "json":
        show.json(task)
    elif session.output == "quiet":
        click.echo(task.id)
    else:
        click.echo(task.stdout or "", nl=False)
        click.echo(task.stderr or "", nl=False, err=True)
        if task.result is not None:
            show.json(task.result)
        if not task.succeeded:
            show.note(f"Task {task.id} {task.state}: {_sentence(why(task) or 'no reason given')}")
            show.note(f"See all of it: penstock task show {task.id}")
    return exit_codes.OK if task.succeeded else exit_codes.FAILED


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
