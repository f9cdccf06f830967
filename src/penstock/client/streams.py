"""Submitting more tasks than fit into one request.

The source is cut into pieces, each of which is one request with a body of lines (NDJSON) and its
own idempotency key. Memory holds one piece, whatever the length of the source, and a piece whose
answer got lost is sent again. With a key of the caller's, a repeat of the whole stream continues
where the first one broke off: the pieces are cut at the same places and known by their number.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable

import msgspec

from penstock.client.calls import given, new_key
from penstock.client.models import Submission
from penstock.client.tasks import DEFAULT_TASK_GROUP, TaskCalls
from penstock.errors import Invalid
from penstock.events.spec import TaskSpec

NDJSON = {"Content-Type": "application/x-ndjson"}
PIECE_BYTES = 2 * 1024 * 1024
PIECE_LINES = 20_000


class StreamCalls(TaskCalls):
    async def submit_stream(
        self,
        tasks: Iterable[TaskSpec] | AsyncIterable[TaskSpec],
        *,
        task_group: int | str = DEFAULT_TASK_GROUP,
        key: str | None = None,
    ) -> Submission:
        """Submit any number of tasks as they are produced."""
        return await self.submit_lines(_encoded(tasks), task_group=task_group, key=key)

    async def submit_lines(
        self,
        lines: Iterable[bytes] | AsyncIterable[bytes],
        *,
        task_group: int | str = DEFAULT_TASK_GROUP,
        key: str | None = None,
    ) -> Submission:
        """Submit task specs that are already written as JSON, one a line."""
        key = key or new_key()
        whole: Submission | None = None
        number = 0
        async for body in _pieces(lines):
            piece = await self._submit_body(
                body, NDJSON, given(task_group=task_group), f"{key}-{number}"
            )
            whole = piece if whole is None else joined(whole, piece)
            number += 1
        if whole is None:
            raise Invalid("There is no task to submit: the source is empty.")
        return whole


def joined(one: Submission, two: Submission) -> Submission:
    """Two submissions, one after the other, as one."""
    ranges = list(one.ranges)
    for first, count in two.ranges:
        if ranges and ranges[-1][0] + ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + count)
        else:
            ranges.append((first, count))
    return Submission(
        task_group_id=one.task_group_id,
        ranges=ranges,
        count=one.count + two.count,
        duplicate=one.duplicate and two.duplicate,
        sequence=max(one.sequence, two.sequence),
    )


async def _each(
    source: Iterable[bytes] | AsyncIterable[bytes],
) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
    else:
        for item in source:
            yield item


async def _encoded(tasks: Iterable[TaskSpec] | AsyncIterable[TaskSpec]) -> AsyncIterator[bytes]:
    encode = msgspec.json.Encoder().encode
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield encode(task)
    else:
        for task in tasks:
            yield encode(task)


async def _pieces(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    piece: list[bytes] = []
    size = 0
    async for line in _each(lines):
        line = line.strip()
        if not line:
            continue
        if piece and (size + len(line) > PIECE_BYTES or len(piece) == PIECE_LINES):
            yield b"\n".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line) + 1
    if piece:
        yield b"\n".join(piece)
