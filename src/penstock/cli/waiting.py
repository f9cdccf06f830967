"""Waiting for a submission of many tasks.

A task group may hold tasks of others as well, so that its progress says only when the submission
could have ended: when as many tasks have ended as it has. Then those of its tasks that are still
unfinished, if any, are waited for one by one.
"""

from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from penstock.cli import show
from penstock.cli.progress_bar import ProgressBar

if TYPE_CHECKING:
    from penstock.client import Client, Progress, Submission, TaskState

UNFINISHED: "tuple[TaskState, ...]" = ("running", "assigned", "ready", "waiting")


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How the tasks of a submission ended."""

    task_group_id: int
    ranges: list[tuple[int, int]]
    count: int
    succeeded: int
    failed: int
    cancelled: int


async def wait_for(
    client: "Client", submission: "Submission", ended_before: int, bar: ProgressBar | None
) -> Tally:
    """Wait until every task of the submission has ended, and count how.

    `ended_before` is how many tasks of the group had ended before it was submitted.
    """
    group = submission.task_group_id
    async with aclosing(client.follow_progress(group)) as changes:
        async for progress in changes:
            ended = max(0, progress.counts.finished - ended_before)
            if bar is not None:
                bar.update(min(ended, submission.count), _note(progress), progress.per_second)
            if ended >= submission.count:
                break
    for state in UNFINISHED:
        for task_id in await _ours(client, submission, state):
            await client.wait(task_id)
    failed = len(await _ours(client, submission, "failed"))
    cancelled = len(await _ours(client, submission, "cancelled"))
    return Tally(
        task_group_id=group,
        ranges=submission.ranges,
        count=submission.count,
        succeeded=submission.count - failed - cancelled,
        failed=failed,
        cancelled=cancelled,
    )


async def _ours(client: "Client", submission: "Submission", state: "TaskState") -> list[int]:
    first = submission.ranges[0][0]
    last = sum(submission.ranges[-1]) - 1
    found = []
    async for task in client.tasks(
        task_group=submission.task_group_id, state=state, after=first - 1
    ):
        if task.id > last:
            break
        if task.id in submission:
            found.append(task.id)
    return found


def _note(progress: "Progress") -> str:
    counts = {"running": progress.counts.running, "failed": progress.counts.failed}
    return show.counts(counts) if any(counts.values()) else ""
