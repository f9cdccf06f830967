"""Endpoints of tasks."""

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from penstock.coordinator.commands import CancelTask, Chunk
from penstock.coordinator.http.endpoint import (
    answer,
    at_least,
    body,
    decode,
    document,
    leader,
    origin,
    page_size,
    path_id,
    reading,
    services,
    wait_seconds,
    writing,
)
from penstock.coordinator.http.idempotency import idempotency_key
from penstock.coordinator.http.streams import submit_stream
from penstock.coordinator.http.submit import SubmissionView, submit_chunks
from penstock.coordinator.http.task_groups import Reason, find_task_group, resolve
from penstock.coordinator.specs import Specs
from penstock.coordinator.submissions import array_chunks, list_chunks
from penstock.errors import Invalid, NotFound, Unavailable
from penstock.events import TaskArray, TaskGroupId, TaskId, TaskSpec, digest
from penstock.events.spec import Document
from penstock.events.tasks import ENDED, TASK_STATES
from penstock.projections import State
from penstock.projections.read_models import TaskView

VIEW_SECONDS = 5.0

TaskGroupName = Annotated[str, Meta(min_length=1, max_length=300)]


class NewTasks(Document, frozen=True, kw_only=True):
    """What a user writes to submit tasks: exactly one of `task`, `tasks` and `array`."""

    task_group: TaskGroupId | TaskGroupName = "default"
    task: TaskSpec | None = None
    tasks: list[TaskSpec] | None = None
    array: TaskArray | None = None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    stdout: str
    stderr: str
    truncated: bool


@writing
async def submit(request: Request) -> Response:
    if request.headers.get("content-type", "").startswith("application/x-ndjson"):
        return await submit_stream(request)
    data = await body(request)
    wanted = decode(data, NewTasks)
    wait = wait_seconds(request)
    deadline = asyncio.get_running_loop().time() + wait
    if wait and wanted.task is None:
        raise Invalid("Only a single task can be waited for; use 'task'.", field="wait")
    chunks = _chunks(wanted)
    task_group_id = resolve(leader(request).state, wanted.task_group)
    submission, sequence = await submit_chunks(
        leader(request),
        chunks,
        task_group_id,
        idempotency_key(request),
        digest(data),
        origin(request),
        wait,
    )
    if wait and not submission.results:
        submission = await _wait_in_read_model(request, submission, deadline)
    return answer(submission, status=201, sequence=sequence)


def _chunks(wanted: NewTasks) -> list[Chunk]:
    """Everything is checked before anything is accepted."""
    given = [kind for kind in (wanted.task, wanted.tasks, wanted.array) if kind is not None]
    if len(given) != 1:
        raise Invalid("Set exactly one of 'task', 'tasks' and 'array'.")
    if wanted.array is not None:
        return list(array_chunks(wanted.array))
    specs = [wanted.task] if wanted.task is not None else wanted.tasks or []
    if not specs:
        raise Invalid("'tasks' is empty.", field="tasks")
    return list(list_chunks(specs))


async def _wait_in_read_model(
    request: Request, submission: SubmissionView, deadline: float
) -> SubmissionView:
    """For a repeated submission, whose task may have ended long ago, and for one that ended
    without having run."""
    left = max(0.0, deadline - asyncio.get_running_loop().time())
    view = await _ended_view(request, submission.ranges[0][0], left)
    results = [view] if view.state in ENDED else []
    return msgspec.structs.replace(submission, results=results)


@reading
async def show(request: Request) -> Response:
    await at_least(request)
    task_id = path_id(request)
    view = await _ended_view(request, task_id, wait_seconds(request))
    node = services(request).node
    place = await services(request).read_model.task_source(task_id)
    if place is not None and node.log is not None:
        specs = node.leader.specs if node.leader is not None else Specs(node.log)
        spec = await specs.spec(place.sequence, place.event, task_id)
        view = msgspec.structs.replace(view, spec=msgspec.Raw(spec))
    return answer(view)


async def _ended_view(request: Request, task_id: TaskId, wait: float) -> TaskView:
    """The task when it has ended, or as it is when the time is over."""
    read_model = services(request).read_model
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        seen = read_model.position_seen
        view = await _present_view(request, task_id)
        left = deadline - loop.time()
        if view.state in ENDED or left <= 0:
            return view
        try:
            await read_model.wait_for(seen + 1, left)
        except Unavailable:
            deadline = loop.time()


async def _present_view(request: Request, task_id: TaskId) -> TaskView:
    """The task, also when the log has it and the read model does not have it yet."""
    read_model = services(request).read_model
    view = await read_model.task(task_id)
    node = services(request).node
    if view is None and 0 < task_id < node.state.next_task_id:
        await read_model.wait_for(node.sequence, VIEW_SECONDS)
        view = await read_model.task(task_id)
    if view is None:
        raise NotFound(f"There is no task {task_id}.", task_id=task_id)
    return view


@reading
async def index(request: Request) -> Response:
    await at_least(request)
    state = request.query_params.get("state")
    if state not in (None, *TASK_STATES):
        raise Invalid(f"'state' must be one of {', '.join(TASK_STATES)}.", field="state")
    task_group_id = None
    if (text := request.query_params.get("task_group")) is not None:
        task_group_id = (await find_task_group(request, text)).id
    page = await services(request).read_model.tasks(
        task_group_id=task_group_id,
        state=state,
        cursor=request.query_params.get("cursor"),
        limit=page_size(request),
    )
    return answer(page)


@reading
async def output(request: Request) -> Response:
    await at_least(request)
    task_id = path_id(request)
    view = await _ended_view(request, task_id, 0)
    return answer(
        Output(
            stdout=view.stdout or "",
            stderr=view.stderr or "",
            truncated=view.output_truncated,
        )
    )


@writing
async def cancel(request: Request) -> Response:
    wanted = await document(request, Reason)
    task_id = path_id(request)
    committed = await leader(request).ask(
        CancelTask(**origin(request, wanted.reason), task_id=task_id)
    )
    read_model = services(request).read_model
    try:
        await read_model.wait_for(committed.sequence, VIEW_SECONDS)
        view = await read_model.task(task_id)
    except Unavailable:
        view = None
    return answer(
        view or _live_view(leader(request).state, task_id, committed.answer),
        sequence=committed.sequence,
    )


def _live_view(state: State, task_id: TaskId, task_group_id: TaskGroupId) -> TaskView:
    """A task as the leader knows it, when the read model does not tell."""
    live = state.tasks.get(task_id)
    return TaskView(
        id=task_id,
        task_group_id=task_group_id,
        state=live.state if live is not None else "cancelled",
        attempt=live.attempt if live is not None else 0,
        cancel_requested=live is not None and live.cancel_requested,
    )
