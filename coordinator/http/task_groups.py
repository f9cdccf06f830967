"""Endpoints of task groups."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.coordinator.commands import (
    CancelTaskGroup,
    CloseTaskGroup,
    CreateTaskGroup,
    ReopenTaskGroup,
)
from penstock.coordinator.http.encoded_slashes import segment
from penstock.coordinator.http.endpoint import (
    answer,
    at_least,
    document,
    leader,
    origin,
    page_size,
    reading,
    services,
    writing,
)
from penstock.coordinator.http.idempotency import idempotency_key
from penstock.errors import Invalid, NotFound, Unavailable, Unsupported
from penstock.events import TaskGroupId
from penstock.events.spec import PRIORITY_NAMES, Document, Priority
from penstock.projections import State
from penstock.projections.read_models import ProgressView, ReadModel, TaskGroupView

STATES = ("open", "closed", "complete", "cancelled")
PROGRESS_INTERVAL_SECONDS = 0.1
KEEP_ALIVE_SECONDS = 15.0
VIEW_SECONDS = 5.0

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")

Word = Annotated[str, Meta(min_length=1, max_length=128)]


class NewTaskGroup(Document, frozen=True, kw_only=True):
    """What a user writes to create a task group."""

    name: str
    group: Word = "default"
    description: Annotated[str, Meta(max_length=10_000)] = ""
    priority: Priority | str = 0
    tags: Annotated[list[Word], Meta(max_length=100)] = []
    labels: Annotated[list[Word], Meta(max_length=100)] = []
    max_managers: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    task_prefetch_count: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    worker_schedule: Any = None
    env_preparation: Any = None
    env_cleanup: Any = None
    auto_close_timeout: Any = None


_UNSUPPORTED = {
    "worker_schedule": "set the number of workers with PENSTOCK_WORKERS where a manager starts",
    "env_preparation": "prepare the machine before its manager starts",
    "env_cleanup": "clean up in the task itself",
    "auto_close_timeout": "close the task group with 'penstock group close'",
}


class Reason(Document, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Cancellation(Document, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""
    cancel_running_tasks: bool = True


@writing
async def create(request: Request) -> Response:
    wanted = await document(request, NewTaskGroup)
    for field, advice in _UNSUPPORTED.items():
        if getattr(wanted, field) is not None:
            raise Unsupported(f"'{field}' does nothing in this version; {advice}.", field=field)
    command = CreateTaskGroup(
        **origin(request),
        name=_name(wanted.name),
        group=wanted.group,
        description=wanted.description,
        priority=_priority(wanted.priority),
        tags=wanted.tags,
        labels=wanted.labels,
        max_managers=wanted.max_managers,
        task_prefetch_count=wanted.task_prefetch_count,
        key=idempotency_key(request),
    )
    committed = await leader(request).ask(command)
    return await _show(request, committed.answer, committed.sequence, status=201)


@reading
async def index(request: Request) -> Response:
    await at_least(request)
    state = request.query_params.get("state")
    if state not in (None, *STATES):
        raise Invalid("'state' must be open, closed, complete or cancelled.", field="state")
    page = await services(request).read_model.task_groups(
        state=state, cursor=request.query_params.get("cursor"), limit=page_size(request)
    )
    return answer(page)


@reading
async def show(request: Request) -> Response:
    await at_least(request)
    return answer(await find_task_group(request, segment(request, "id")))


@writing
async def close(request: Request) -> Response:
    wanted = await document(request, Reason)
    task_group_id = resolve(leader(request).state, segment(request, "id"))
    committed = await leader(request).ask(
        CloseTaskGroup(**origin(request, wanted.reason), task_group_id=task_group_id)
    )
    return await _show(request, task_group_id, committed.sequence)


@writing
async def reopen(request: Request) -> Response:
    wanted = await document(request, Reason)
    task_group_id = resolve(leader(request).state, segment(request, "id"))
    committed = await leader(request).ask(
        ReopenTaskGroup(**origin(request, wanted.reason), task_group_id=task_group_id)
    )
    return await _show(request, task_group_id, committed.sequence)


@writing
async def cancel(request: Request) -> Response:
    wanted = await document(request, Cancellation)
    task_group_id = resolve(leader(request).state, segment(request, "id"))
    committed = await leader(request).ask(
        CancelTaskGroup(
            **origin(request, wanted.reason),
            task_group_id=task_group_id,
            cancel_running_tasks=wanted.cancel_running_tasks,
        )
    )
    return answer(committed.answer, sequence=committed.sequence)


@reading
async def progress(request: Request) -> Response:
    await at_least(request)
    group = await find_task_group(request, segment(request, "id"))
    read_model = services(request).read_model
    if "text/event-stream" in request.headers.get("accept", ""):
        return StreamingResponse(
            _progress_events(read_model, group.id),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )
    return answer(await read_model.progress(group.id))


async def _progress_events(
    read_model: ReadModel, task_group_id: TaskGroupId
) -> AsyncIterator[bytes]:
    """Every change of the progress, until no task is left unfinished."""
    last: ProgressView | None = None
    while True:
        now = await read_model.progress(task_group_id)
        if last is None or now.counts != last.counts or now.state != last.state:
            yield b"event: progress\ndata: " + msgspec.json.encode(now) + b"\n\n"
            last = now
        if now.finished == now.total:
            yield b"event: done\ndata: " + msgspec.json.encode(now) + b"\n\n"
            return
        sequence = read_model.position_seen
        await asyncio.sleep(PROGRESS_INTERVAL_SECONDS)
        try:
            await read_model.wait_for(sequence + 1, KEEP_ALIVE_SECONDS)
        except Unavailable:
            yield b": still here\n\n"


def resolve(state: State, text: str | int) -> TaskGroupId:
    """The id of a task group that is given by id, by name, or as group/name."""
    if isinstance(text, int) or (text.isascii() and text.isdigit()):
        found: TaskGroupId | None = int(text)
        if found not in state.task_groups:
            found = None
    else:
        found = state.names.get(text if "/" in text else f"default/{text}")
    if found is None:
        raise _unknown(text)
    return found


async def find_task_group(request: Request, text: str) -> TaskGroupView:
    """A task group as the read model shows it, by id, by name, or as group/name."""
    found = await services(request).read_model.task_group(text)
    if found is None:
        raise _unknown(text)
    return found


def _unknown(text: str | int) -> NotFound:
    return NotFound(f"There is no task group {text!r}. 'penstock group list' shows them.")


async def _show(
    request: Request, task_group_id: TaskGroupId, sequence: int, status: int = 200
) -> Response:
    """The task group as the write left it. The write counts, even when it cannot be shown yet."""
    read_model = services(request).read_model
    try:
        await read_model.wait_for(sequence, VIEW_SECONDS)
        view: object = await read_model.task_group(task_group_id)
    except Unavailable:
        group = leader(request).state.task_group(task_group_id)
        view = {
            "id": group.id,
            "name": group.name,
            "group": group.group,
            "state": group.state,
        }
    return answer(view, status=status, sequence=sequence)


def _name(given: str) -> str:
    # Digits alone would be taken for an id.
    if not _NAME.fullmatch(given) or given.isdigit():
        raise Invalid(
            f"{given[:128]!r} cannot be the name of a task group. Use 1 to 128 letters (a-z), "
            "digits, '_', '.' and '-', and not only digits.",
            field="name",
        )
    return given


def _priority(given: int | str) -> int:
    if isinstance(given, int):
        return given
    if given not in PRIORITY_NAMES:
        names = ", ".join(PRIORITY_NAMES)
        raise Invalid(f"'priority' must be a whole number or one of {names}.", field="priority")
    return PRIORITY_NAMES[given]
