"""`penstock demo`: a system, a sample campaign, and where to look next.

The campaign estimates pi: each task throws random points at a square. At a terminal the system
stays up until Ctrl-C; without one the demo ends by itself.
"""

import asyncio
import os
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from penstock import exit_codes
from penstock.client import Client, Submission
from penstock.configuration import DEFAULT_DATA
from penstock.errors import Unavailable
from penstock.events.spec import TaskSpec
from penstock.samples import pi
from penstock.up.signals import until_stopped
from penstock.up.supervisor import Settings, System, choose_address

POINTS_PER_TASK = 50_000


def run(settings: Settings, tasks: int) -> int:
    """Run the demo; the result is the exit code."""
    console = Console(highlight=False)
    code = asyncio.run(until_stopped(_demo(settings, tasks, console)))
    return exit_codes.INTERRUPTED if code is None else code


async def _demo(settings: Settings, tasks: int, console: Console) -> int:
    settings = msgspec.structs.replace(settings, listen=_free(settings.listen))
    console.print("Starting NATS, Postgres, a coordinator, a projector and a manager ...")
    began = time.monotonic()
    system = System(settings)
    async with system:
        console.print(f"Ready after {time.monotonic() - began:.1f} s at {system.url}.")
        async with Client(system.url, system.token) as client:
            submission, group = await _submit(client, tasks)
            console.print(f"Campaign {group}: {tasks:,} tasks are on disk in the log.")
            began = time.monotonic()
            await _follow(client, group, tasks, console)
            seconds = time.monotonic() - began
            succeeded = await _report(client, group, submission, seconds, console)
        _where_next(settings.data, group, submission, console)
        if console.is_terminal:
            console.print("\nPenstock stays up until you press Ctrl-C.")
            await _interrupted()
    console.print("Stopped.")
    return exit_codes.OK if succeeded else exit_codes.FAILED


async def _submit(client: Client, tasks: int) -> tuple[Submission, str]:
    group = f"pi-{datetime.now():%Y%m%d-%H%M%S}"
    await client.create_task_group(group, description="Estimates pi with random points")
    template = TaskSpec(
        handler="penstock.samples.pi:count_inside",
        arguments={"seed": "{index}", "points": POINTS_PER_TASK},
    )
    submission = await client.submit_array(template, count=tasks, first_index=1, task_group=group)
    await client.close_task_group(group, reason="the demo has no more tasks")
    return submission, group


async def _follow(client: Client, group: str, tasks: int, console: Console) -> None:
    bar = Progress(
        TextColumn("Tasks"),
        BarColumn(bar_width=40),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
    with bar:
        row = bar.add_task("tasks", total=tasks, rate=0)
        async for progress in client.follow_progress(group):
            bar.update(row, completed=progress.counts.finished, rate=progress.per_second)


async def _report(
    client: Client, group: str, submission: Submission, seconds: float, console: Console
) -> bool:
    """Say how it went; True when every task succeeded."""
    found = [task async for task in client.tasks(task_group=group)]
    succeeded = [task for task in found if task.succeeded]
    console.print(
        f"{len(succeeded):,} of {submission.count:,} tasks succeeded in {seconds:.1f} s"
        f" ({len(succeeded) / max(seconds, 0.001):,.0f} a second)."
    )
    if succeeded:
        points = POINTS_PER_TASK * len(succeeded)
        estimate = pi.estimate(sum(int(task.result) for task in succeeded), points)
        console.print(f"Pi is about [bold]{estimate:.5f}[/bold], by {points:,} random points.")
    for task in [task for task in found if not task.succeeded][:5]:
        console.print(f"Task {task.id} is {task.state}: {task.message or task.cause or 'unknown'}")
    return len(succeeded) == submission.count


def _where_next(data: Path, group: str, submission: Submission, console: Console) -> None:
    program = _program()
    where = "" if data == Path(DEFAULT_DATA) else f" --data {data}"
    first = submission.ranges[0][0]
    commands = [
        (f"status{where}", "the system in numbers"),
        (f"group show {group}{where}", "the campaign"),
        (f"task show {first}{where}", "one task and its result"),
        (f"log tail{where}", "the log, where all of it is kept"),
        (f"submit{where} --array 1-10 --wait -- echo hello {{index}}", "tasks of your own"),
    ]
    if not console.is_terminal:
        commands.insert(0, (f"up --detach{where}", "start it again, with all it knows"))
    console.print("\nWhere to look next:" if not console.is_terminal else "\nIn another terminal:")
    width = max(len(command) for command, _ in commands)
    for command, meaning in commands:
        console.print(f"  {program} {command:<{width}}   {meaning}", soft_wrap=True)


async def _interrupted() -> None:
    """Wait for Ctrl-C; here it is the expected end, not a failure of the demo."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


def _free(listen: str) -> str:
    """The wanted address, or another port when somebody has it: a demo should just run."""
    try:
        choose_address(listen)
    except Unavailable:
        return listen.rpartition(":")[0] + ":0"
    return listen


def _program() -> str:
    """How the user can call this program: by name when that finds it, else by its path."""
    found = shutil.which("penstock")
    started = Path(sys.argv[0])
    if found is not None and Path(found).resolve() == started.resolve():
        return "penstock"
    if started.name != "penstock":
        return "python -m penstock"
    return os.path.relpath(started)
