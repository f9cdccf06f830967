"""Errors as HTTP answers: problem details (RFC 9457), with codes from one taxonomy.

This is the only place that knows HTTP status codes for errors.
"""

from typing import Any

import msgspec
from starlette.responses import Response

from penstock.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    NotFound,
    PenstockError,
    Rejected,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)

STATUS: list[tuple[type[PenstockError], int, str]] = [
    (TooLarge, 413, "Too large"),
    (Unsupported, 422, "Not supported"),
    (Invalid, 400, "Invalid request"),
    (Unauthenticated, 401, "Not authenticated"),
    (Forbidden, 403, "Forbidden"),
    (NotFound, 404, "Not found"),
    (Rejected, 409, "Does not fit the state"),
    (Conflict, 409, "Conflict"),
    (Unavailable, 503, "Unavailable"),
    (Corrupt, 500, "Corrupt"),
    (PenstockError, 500, "Error"),
]
RETRY_AFTER_SECONDS = 1


def problem(error: PenstockError) -> Response:
    document = details(error)
    status = document["status"]
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return _answer(document, headers)


def details(error: PenstockError) -> dict[str, Any]:
    """The problem details document of an error."""
    status, title = next(
        (status, title) for kind, status, title in STATUS if isinstance(error, kind)
    )
    return _document(status, title, error.message, error.code) | error.facts


def unexpected() -> Response:
    return _answer(
        _document(
            500,
            "Internal error",
            "Something went wrong in the coordinator. Its log says what; nothing was lost.",
            "internal",
        )
    )


def plain(status: int, detail: str) -> Response:
    """For what the framework itself refuses."""
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid")
    return _answer(_document(status, detail, detail, code))


def _document(status: int, title: str, detail: str, code: str) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
    }


def _answer(document: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(document),
        status_code=document["status"],
        headers=headers,
        media_type="application/problem+json",
    )
