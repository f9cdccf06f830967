"""The description of the HTTP interface (OpenAPI 3.1), made from the types that decode requests."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from penstock.coordinator.http.operation import Operation
from penstock.coordinator.http.problems import STATUS

_REFERENCE = "#/components/schemas/{name}"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, and what to do next (RFC 9457). Facts about the case are further fields."""

    type: str
    title: str
    status: int
    detail: str
    code: str


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    types = [kind for one in operations for kind in (one.body, one.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=_REFERENCE)
    by_type = dict(zip([*map(id, types), id(Problem)], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": "Runs campaigns of tasks on your own machines, on a durable log.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": one.handler.__module__.rpartition(".")[2] + "_" + one.handler.__name__,
        "summary": one.summary,
        "parameters": _parameters(one),
        "responses": _responses(one, by_type),
    }
    if one.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_type[id(one.body)]}},
        }
    if not one.needs_token:
        described["security"] = []
    return described


def _parameters(one: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    in_query = [
        {
            "name": query.name,
            "in": "query",
            "required": False,
            "schema": query.schema,
            "description": query.meaning,
        }
        for query in one.query
    ]
    return [*in_path, *in_query]


def _responses(one: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    schema = by_type[id(one.answer)] if one.answer is not None else {}
    responses: dict[str, Any] = {
        str(one.status): {
            "description": one.summary,
            "content": {media_type: {"schema": schema} for media_type in one.media_types},
        }
    }
    problem = {"application/problem+json": {"schema": by_type[id(Problem)]}}
    for _, status, title in STATUS:
        known = responses.setdefault(str(status), {"description": title, "content": {}})
        known["content"] |= problem
    return responses
