"""A coordinator that says what a test wrote down, over real HTTP."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Received(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    peer: Any

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Script:
    """Answers each request with the next of `answers`; keeps what it received."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Answer] = []
        self.received: list[Received] = []

    def add(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        peer = request.transport and request.transport.get_extra_info("peername")
        self.received.append(
            Received(request.method, request.path_qs, dict(request.headers), body, peer)
        )
        return await self.answers.pop(0)(request)


def says(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            body=msgspec.json.encode(document),
            status=status,
            headers=headers,
            content_type="application/json",
        )

    return answer


def problem(
    status: int, code: str, detail: str, *, retry_after: str | None = None, **facts: Any
) -> Answer:
    document = {"type": "about:blank", "status": status, "code": code, "detail": detail, **facts}
    return says(document, status, {} if retry_after is None else {"Retry-After": retry_after})


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Break the connection after the request has arrived."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def streams(*pieces: bytes, then_break: bool = False) -> Answer:
    """Answer piece by piece; end the stream properly, or break it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if then_break:
            await hang_up(request)
        return response

    return answer


@contextlib.asynccontextmanager
async def serving(script: Script, port: int = 0) -> AsyncIterator[Script]:
    """Serve the script on loopback, on a free port unless one is given."""
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield script
    finally:
        await runner.cleanup()
