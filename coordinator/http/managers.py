"""Endpoints of managers."""

import uuid
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from penstock.coordinator.commands import RegisterManager
from penstock.coordinator.http.endpoint import (
    answer,
    at_least,
    document,
    leader,
    origin,
    reading,
    services,
    writing,
)
from penstock.coordinator.http.task_groups import Word
from penstock.errors import NotFound
from penstock.events import Device
from penstock.events.spec import Document
from penstock.events.subjects import token
from penstock.projections.read_models import Page


class NewManager(Document, frozen=True, kw_only=True):
    """What a manager says of itself when it registers."""

    manager_id: str | None = None
    groups: Annotated[list[Word], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["default"]
    )
    tags: list[Word] = []
    labels: list[Word] = []
    worker_count: Annotated[int, Meta(ge=0, le=100_000)]
    device: Device = Device()


class Registered(msgspec.Struct, frozen=True):
    manager_id: str


@writing
async def register(request: Request) -> Response:
    wanted = await document(request, NewManager)
    manager_id = token(wanted.manager_id or f"m-{uuid.uuid4().hex[:12]}", "The manager id")
    committed = await leader(request).ask(
        RegisterManager(
            **origin(request),
            manager_id=manager_id,
            groups=wanted.groups,
            tags=wanted.tags,
            labels=wanted.labels,
            worker_count=wanted.worker_count,
            device=wanted.device,
        )
    )
    return answer(Registered(committed.answer), status=201, sequence=committed.sequence)


@reading
async def index(request: Request) -> Response:
    await at_least(request)
    return answer(Page(await services(request).read_model.managers()))


@reading
async def show(request: Request) -> Response:
    await at_least(request)
    manager_id = request.path_params["id"]
    found = await services(request).read_model.manager(manager_id)
    if found is None:
        raise NotFound(f"There is no manager {manager_id!r}. 'penstock manager list' shows them.")
    return answer(found)
