"""Endpoints about the system itself: health, status, and the log."""

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import version

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.coordinator.http.endpoint import (
    answer,
    at_least,
    reading,
    services,
    whole_number,
)
from penstock.coordinator.http.problems import details
from penstock.coordinator.node import Node
from penstock.errors import PenstockError, Unavailable
from penstock.events import digest

READ_AHEAD = 32
KEEP_LOOKING_SECONDS = 5.0


class Health(msgspec.Struct, frozen=True):
    status: str = "ok"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    leading: bool
    leader: str
    read_model_sequence: int | None = None
    problem: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    node: str
    leader: str | None
    epoch: int
    sequence: int
    read_model_sequence: int
    task_groups: dict[str, int]
    tasks: dict[str, int]
    managers: dict[str, int]


async def health(request: Request) -> Response:
    """This process runs."""
    return answer(Health())


async def ready(request: Request) -> Response:
    """This coordinator can take requests: someone leads, and the read model can be read."""
    node = services(request).node
    leads = node.leader is not None
    # A node that was restarted may remember itself as the leader before it leads again.
    known = leads or (node.log is not None and node.state.leader not in ("", node.name))
    sequence, problem = None, None
    try:
        sequence = await services(request).read_model.position()
    except Unavailable as error:
        problem = error.message
    facts = Readiness(
        node=node.name,
        leading=leads,
        leader=node.state.leader,
        read_model_sequence=sequence,
        problem=problem,
    )
    return answer(facts, status=200 if known and problem is None else 503)


@reading
async def status(request: Request) -> Response:
    await at_least(request)
    node = services(request).node
    read_model = services(request).read_model
    counts = await read_model.counts()
    return answer(
        Status(
            version=version("penstock"),
            node=node.name,
            leader=node.state.leader or None,
            epoch=node.state.epoch,
            sequence=node.sequence,
            read_model_sequence=await read_model.position(),
            task_groups=counts.task_groups,
            tasks=counts.tasks,
            managers=counts.managers,
        )
    )


@reading
async def log(request: Request) -> Response:
    """Commits as they stand in the log, one JSON line each; see `_lines` for the last one."""
    node = services(request).node
    first = whole_number(request, "from", 1, 1, 2**63 - 1)
    last = whole_number(request, "to", 0, 0, 2**63 - 1)
    follow = whole_number(request, "follow", 0, 0, 1)
    if node.log is None:
        raise Unavailable
    return StreamingResponse(
        _lines(node, first, last, bool(follow)), media_type="application/x-ndjson"
    )


async def _lines(node: Node, first: int, last: int, follow: bool) -> AsyncIterator[bytes]:
    """The commits as lines. The last line says what went wrong, if anything did.

    The status has long been sent by then, and an answer that just ends would be taken for whole.
    """
    try:
        async for line in _commits(node, first, last, follow):
            yield line
    except PenstockError as error:
        yield msgspec.json.encode({"problem": details(error)}) + b"\n"


async def _commits(node: Node, first: int, last: int, follow: bool) -> AsyncIterator[bytes]:
    sequence = first
    while True:
        end = min(node.sequence, last) if last else node.sequence
        while sequence <= end:
            if (source := node.log) is None:
                raise Unavailable("This coordinator has lost the log. Try again in a moment.")
            stop = min(sequence + READ_AHEAD, end + 1)
            bodies = await asyncio.gather(
                *(source.read(at) for at in range(sequence, stop)), return_exceptions=True
            )
            for at, body in zip(range(sequence, stop), bodies, strict=True):
                if isinstance(body, BaseException):
                    raise body
                yield (
                    msgspec.json.encode(
                        {"sequence": at, "hash": digest(body), "commit": msgspec.Raw(body)}
                    )
                    + b"\n"
                )
            sequence = stop
        if not follow or (last and sequence > last):
            return
        await node.wait_beyond(sequence - 1, KEEP_LOOKING_SECONDS)
