"""Answers that say what went wrong, as the exceptions of `penstock.errors`."""

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock import errors

_STANDARD_MEMBERS = {"type", "title", "status", "detail", "instance", "code"}

_BY_STATUS: dict[int, type[errors.PenstockError]] = {
    400: errors.Invalid,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.Invalid,
    422: errors.Invalid,
    429: errors.Unavailable,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}
"""For answers that Penstock did not write, such as a proxy's."""


def _family(root: type[errors.PenstockError]) -> Iterator[type[errors.PenstockError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _family(kind)


_BY_CODE = {
    kind.code: kind
    for kind in _family(errors.PenstockError)
    if kind.__module__ == errors.PenstockError.__module__
}


def exception(status: int, body: bytes, url: str) -> errors.PenstockError:
    """The exception that an answer with an error status stands for."""
    try:
        problem: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        problem = None
    if not isinstance(problem, dict) or "code" not in problem:
        kind = _BY_STATUS.get(status, errors.PenstockError)
        text = body[:200].decode(errors="replace").strip()
        return kind(
            f"{url} answered with status {status} and without a reason"
            + (f" ({text})." if text else ".")
            + " Check that it is the address of a Penstock coordinator.",
            status=status,
        )
    facts = {str(name): value for name, value in problem.items() if name not in _STANDARD_MEMBERS}
    facts.pop("message", None)
    code = str(problem["code"])
    message = str(problem.get("detail") or problem.get("title") or "")
    kind = _BY_CODE.get(code, errors.PenstockError)
    failure = kind(message, **facts)
    if failure.code != code:
        failure.facts["code"] = code
    return failure
