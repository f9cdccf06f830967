"""Submitting, and waiting for the result in the same exchange."""

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.coordinator.commands import Chunk, SubmitTasks
from penstock.coordinator.leader import Leader
from penstock.coordinator.waiters import Ended, Expected
from penstock.errors import NotLeader
from penstock.events import TaskGroupId, TaskId
from penstock.projections.read_models.views import TaskView, finished_view, moment


class SubmissionView(msgspec.Struct, frozen=True, kw_only=True):
    task_group_id: TaskGroupId
    ranges: list[tuple[TaskId, int]]
    count: int
    duplicate: bool = False
    results: list[TaskView] = []


async def submit_chunks(
    leader: Leader,
    chunks: list[Chunk],
    task_group_id: TaskGroupId,
    key: str,
    digest: str,
    origin: dict[str, str],
    wait: float = 0.0,
) -> tuple[SubmissionView, int]:
    """Commit the chunks in order. Returns the submission and its sequence."""
    ranges: list[tuple[TaskId, int]] = []
    duplicate = False
    sequence = 0
    results: list[TaskView] = []
    for chunk in chunks:
        command = SubmitTasks(
            **origin,
            task_group_id=task_group_id,
            chunk=chunk,
            key=key,
            key_digest=digest if key else "",
        )
        expected: Expected | None = None
        if wait:
            committed, expected = await leader.submit_and_expect(command)
        else:
            committed = await leader.ask(command)
        sequence = committed.sequence
        if committed.answer.duplicate:
            duplicate = True
            ranges = list(committed.answer.ranges)
        else:
            ranges = joined(ranges, committed.answer.ranges)
        if expected is not None and (ended := await _ended(expected, wait)) is not None:
            sequence = ended.sequence
            task = finished_view(ended.event, ended.result)
            results = [msgspec.structs.replace(task, submitted_at=moment(committed.answer.at))]
    return view(task_group_id, ranges, duplicate=duplicate, results=results), sequence


def view(
    task_group_id: TaskGroupId,
    ranges: list[tuple[TaskId, int]],
    *,
    duplicate: bool,
    results: Sequence[TaskView] = (),
) -> SubmissionView:
    return SubmissionView(
        task_group_id=task_group_id,
        ranges=ranges,
        count=sum(count for _, count in ranges),
        duplicate=duplicate,
        results=list(results),
    )


async def _ended(expected: Expected, wait: float) -> Ended | None:
    try:
        return await asyncio.wait_for(expected, wait)
    except (TimeoutError, NotLeader):
        return None


def joined(
    ranges: list[tuple[TaskId, int]], more: list[tuple[TaskId, int]]
) -> list[tuple[TaskId, int]]:
    """Ranges that touch become one."""
    joined = list(ranges)
    for first, count in more:
        if joined and joined[-1][0] + joined[-1][1] == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((first, count))
    return joined
