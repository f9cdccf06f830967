"""An operation of the HTTP interface: its route, and what its description is made of."""

from typing import Any

import msgspec

from penstock.coordinator.http.endpoint import Handler


class Query(msgspec.Struct, frozen=True):
    """A parameter in the address."""

    name: str
    schema: dict[str, Any]
    meaning: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    handler: Handler
    summary: str
    body: Any = None
    """The type of the request's document."""
    answer: Any = None
    """The type of the answer's document; None for one without a fixed form."""
    status: int = 200
    query: tuple[Query, ...] = ()
    media_types: tuple[str, ...] = ("application/json",)
    """In what forms it answers."""
    needs_token: bool = True


AT_LEAST = Query(
    "at_least",
    {"type": "integer", "minimum": 0},
    "Answer only when the read model holds this sequence of the log.",
)
CURSOR = Query("cursor", {"type": "string"}, "The field 'next' of the page before.")
LIMIT = Query("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "Length of a page.")
WAIT = Query(
    "wait",
    {"type": "number", "minimum": 0, "maximum": 300},
    "Seconds to wait for the end of the task.",
)
