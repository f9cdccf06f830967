"""Submitting, and waiting for the result in the same exchange."""

import asyncio

import msgspec

from penstock.coordinator.commands import SubmitTasks
from penstock.coordinator.leader import Leader
from penstock.coordinator.results import Ended, Expected
from penstock.coordinator.submissions import Chunk
from penstock.coordinator.writer import Committed
from penstock.errors import LogFull, NotLeader, PenstockError
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
        command = chunk.command(task_group_id, key, digest, origin)
        expected: Expected | None = None
        if wait:
            committed, expected = await _submit_and_expect(leader, command)
        else:
            committed = await leader.ask(command)
        sequence = committed.sequence
        if committed.answer.duplicate:
            duplicate = True
            ranges = list(committed.answer.ranges)
        else:
            ranges = _joined(ranges, committed.answer.ranges)
        if expected is not None and (ended := await _ended(expected, wait)) is not None:
            sequence = ended.sequence
            view = finished_view(ended.event, ended.result)
            results = [msgspec.structs.replace(view, submitted_at=moment(committed.answer.at))]
    submission = SubmissionView(
        task_group_id=task_group_id,
        ranges=ranges,
        count=sum(count for _, count in ranges),
        duplicate=duplicate,
        results=results,
    )
    return submission, sequence


async def _submit_and_expect(
    leader: Leader, command: SubmitTasks
) -> tuple[Committed, Expected | None]:
    """The result is expected from the very moment of the commit: none can be missed."""
    future: asyncio.Future[tuple[Committed, Expected | None]] = (
        asyncio.get_running_loop().create_future()
    )

    def done(outcome: Committed | PenstockError) -> None:
        if future.done():
            return
        if isinstance(outcome, PenstockError):
            future.set_exception(outcome)
        elif outcome.answer.duplicate:
            future.set_result((outcome, None))
        else:
            task_id = outcome.answer.ranges[0][0]
            future.set_result((outcome, leader.results.expect(task_id)))

    if leader.writer.full:
        raise LogFull
    leader.writer.submit(command, done)
    return await future


async def _ended(expected: Expected, wait: float) -> Ended | None:
    try:
        return await asyncio.wait_for(expected, wait)
    except (TimeoutError, NotLeader):
        return None


def _joined(
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
