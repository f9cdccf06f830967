"""Submissions as a stream of lines, of any length.

The stream is cut into pieces by its own content, never by how it arrives, so that a repeat of the
same stream under the same idempotency key gives the same pieces: those that are known are skipped.
"""

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.coordinator.http.endpoint import answer, leader, origin
from penstock.coordinator.http.idempotency import idempotency_key
from penstock.coordinator.http.submit import joined, submit_chunks, view
from penstock.coordinator.http.task_groups import resolve
from penstock.coordinator.submissions import CHUNK_BYTES, list_chunks
from penstock.errors import Invalid, PenstockError
from penstock.events import TaskId, TaskSpec, digest

_decoder = msgspec.json.Decoder(TaskSpec)


async def submit_stream(request: Request) -> Response:
    """One spec per line. Lines before a faulty one are accepted; the error says how many."""
    task_group = request.query_params.get("task_group", "default")
    task_group_id = resolve(leader(request).state, task_group)
    key = idempotency_key(request)
    said_by = origin(request)
    ranges: list[tuple[TaskId, int]] = []
    accepted = lines = sequence = 0
    duplicate = False
    stream_digest = ""
    try:
        async for piece in _pieces(request.stream()):
            stream_digest = stream_digest or digest(piece)
            specs = _specs(piece, lines)
            lines += piece.count(b"\n") + (not piece.endswith(b"\n"))
            part, sequence = await submit_chunks(
                leader(request),
                list(list_chunks(specs, accepted)),
                task_group_id,
                key,
                stream_digest,
                said_by,
            )
            accepted += len(specs)
            duplicate = duplicate or part.duplicate
            ranges = part.ranges if part.duplicate else joined(ranges, part.ranges)
    except PenstockError as error:
        error.facts["accepted"] = accepted
        raise
    if not accepted:
        raise Invalid("The stream holds no task.")
    submission = view(task_group_id, ranges, duplicate=duplicate)
    return answer(submission, status=201, sequence=sequence)


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines, as many as fit into a chunk, or one line that does not."""
    rest = bytearray()
    async for part in stream:
        rest += part
        while len(rest) > CHUNK_BYTES:
            cut = rest.rfind(b"\n", 0, CHUNK_BYTES) + 1
            if not cut:
                raise Invalid(f"A line is longer than {CHUNK_BYTES // 1024} KiB.")
            yield bytes(rest[:cut])
            del rest[:cut]
    if rest.strip():
        yield bytes(rest)


def _specs(piece: bytes, lines_before: int) -> list[TaskSpec]:
    try:
        return _decoder.decode_lines(piece)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    specs = []
    for number, line in enumerate(piece.splitlines(), lines_before + 1):
        if not line.strip():
            continue
        try:
            specs.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Invalid(f"Line {number} is not a task: {error}.", line=number) from error
    return specs
