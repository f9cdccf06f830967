"""Errors as HTTP answers: problem details (RFC 9457), with codes from one taxonomy.

This is the only place that knows HTTP status codes for errors.
"""

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
    status, title = next(
        (status, title) for kind, status, title in STATUS if isinstance(error, kind)
    )
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return _answer(status, title, error.message, error.code, error.facts, headers)


def unexpected() -> Response:
    return _answer(
        500,
        "Internal error",
        "Something went wrong in the coordinator. Its log says what; nothing was lost.",
        "internal",
        {},
        {},
    )


def plain(status: int, detail: str) -> Response:
    """For what the framework itself refuses."""
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid")
    return _answer(status, detail, detail, code, {}, {})


def _answer(
    status: int,
    title: str,
    detail: str,
    code: str,
    facts: dict[str, object],
    headers: dict[str, str],
) -> Response:
    document = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        **facts,
    }
    return Response(
        msgspec.json.encode(document),
        status_code=status,
        headers=headers,
        media_type="application/problem+json",
    )
