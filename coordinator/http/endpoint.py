"""What every endpoint does: authenticate, read the request, answer, turn errors into problems."""

import functools
import hmac
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.coordinator.http.forward import Forwarder
from penstock.coordinator.http.problems import problem, unexpected
from penstock.coordinator.leader import Leader
from penstock.coordinator.node import Node
from penstock.errors import Invalid, NotLeader, PenstockError, TooLarge, Unauthenticated
from penstock.projections.read_models import ReadModel

logger = structlog.get_logger("penstock.http")

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_PAGE = 1000
MAX_WAIT_SECONDS = 300.0
AT_LEAST_SECONDS = 10.0
SEQUENCE_HEADER = "Penstock-Sequence"

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What endpoints work with."""

    node: Node
    read_model: ReadModel
    forwarder: Forwarder
    tokens: Mapping[str, str]
    """Who may speak: name by token."""


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def reading(handler: Handler) -> Handler:
    """An endpoint that any coordinator can answer."""
    return _endpoint(handler, leader_only=False)


def writing(handler: Handler) -> Handler:
    """An endpoint that only the leader can answer: another one passes the request on."""
    return _endpoint(handler, leader_only=True)


def _endpoint(handler: Handler, *, leader_only: bool) -> Handler:
    @functools.wraps(handler)
    async def handle(request: Request) -> Response:
        try:
            request.state.actor = authenticate(request)
            if leader_only and services(request).node.leader is None:
                return await services(request).forwarder.forward(request)
            return await handler(request)
        except PenstockError as error:
            return problem(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            logger.exception("request_failed", method=request.method, path=request.url.path)
            return unexpected()

    return handle


def authenticate(request: Request) -> str:
    """Who asks. Raises `Unauthenticated`."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        for token, name in services(request).tokens.items():
            if hmac.compare_digest(token.encode(), given.strip().encode()):
                return name
    raise Unauthenticated


def leader(request: Request) -> Leader:
    found = services(request).node.leader
    if found is None:
        raise NotLeader
    return found


def origin(request: Request, reason: str = "") -> dict[str, str]:
    """Who asks, and by which request: what every command says."""
    return {
        "actor": f"user:{request.state.actor}",
        "cause": request.headers.get("x-request-id", "")[:64] or uuid.uuid4().hex,
        "reason": reason,
    }


async def body(request: Request) -> bytes:
    """The whole body, within limits."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _too_large()
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large() -> TooLarge:
    return TooLarge(
        f"The body is larger than {MAX_BODY_BYTES // 2**20} MiB. Send the tasks as a stream "
        "(application/x-ndjson), as an array, or in several requests.",
        limit_bytes=MAX_BODY_BYTES,
    )


def decode(data: bytes, kind: type[T]) -> T:
    """Decode a JSON document, strictly."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"The request does not fit: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The body is not valid JSON: {error}.") from error


async def document(request: Request, kind: type[T]) -> T:
    """The body as a document; an empty body stands for an empty document."""
    return decode(await body(request) or b"{}", kind)


def answer(value: Any, *, status: int = 200, sequence: int | None = None) -> Response:
    headers = {SEQUENCE_HEADER: str(sequence)} if sequence is not None else None
    return Response(
        _encoder.encode(value), status_code=status, headers=headers, media_type="application/json"
    )


def whole_number(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise Invalid(f"'{name}' must be a whole number, not {text!r}.", field=name) from None
    if not low <= value <= high:
        raise Invalid(f"'{name}' must be between {low} and {high}.", field=name)
    return value


def path_id(request: Request, name: str = "id") -> int:
    text = request.path_params[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Invalid(f"{text!r} is not an id: ids are whole numbers.", field=name)
    return int(text)


def page_size(request: Request) -> int:
    return whole_number(request, "limit", 100, 1, MAX_PAGE)


def wait_seconds(request: Request) -> float:
    text = request.query_params.get("wait")
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        raise Invalid(f"'wait' must be a number of seconds, not {text!r}.", field="wait") from None
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise Invalid(f"'wait' must be between 0 and {MAX_WAIT_SECONDS:g}.", field="wait")
    return seconds


async def at_least(request: Request) -> None:
    """Wait until the read model has come as far as the caller wants to see."""
    wanted = whole_number(request, "at_least", 0, 0, 2**63 - 1)
    if wanted:
        await services(request).read_model.wait_for(wanted, AT_LEAST_SECONDS)
