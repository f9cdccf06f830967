"""One kept-alive connection to a coordinator, that survives the coordinator's restarts.

Requests that follow one another share one connection; requests that are under way together have
one each. What failed in a way that may pass is tried again (see `retries`). A stream that breaks
is taken up where it stopped.
"""

import asyncio
import io
import random
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import aiohttp
import msgspec
import yarl

from penstock.client.address import Address
from penstock.client.problems import exception
from penstock.client.retries import RetryLimits, retry_after, wait_seconds
from penstock.errors import Deposed, Invalid, LogFull, PenstockError, Unavailable

LARGE_BODY_BYTES = 512 * 1024
MAX_CONNECTIONS = 100
PROBLEM_LINE = b'{"problem":'
"""How the last line of a stream begins when the coordinator could not go on."""


class Reply(msgspec.Struct, frozen=True):
    body: bytes
    sequence: int
    """Where a write stands in the log; 0 for a read."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    parameters: Mapping[str, str] = {}
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    repeatable: bool = False
    """May be carried out twice: it changes nothing, or carries an idempotency key."""
    wait_seconds: float = 0.0
    """How long the coordinator was asked to wait before it answers."""


class _ProblemLine(msgspec.Struct, frozen=True):
    problem: msgspec.Raw


class _Broken(Exception):
    """A try that failed in a way that may pass."""

    def __init__(
        self, error: PenstockError, *, sent: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.sent = sent
        self.retry_after_seconds = retry_after_seconds


class Connection:
    def __init__(self, address: Address, limits: RetryLimits, timeout_seconds: float) -> None:
        self.address = address
        self.last_write = 0
        """The highest sequence that a write was answered with."""
        self._limits = limits
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None
        self._answered = False

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def request(self, request: Request) -> Reply:
        """Send a request until it is answered. An error answer is raised as what it stands for."""
        retry = _Retry(self._limits)
        while True:
            try:
                return await self._try(request)
            except _Broken as broken:
                if broken.sent and not request.repeatable:
                    raise broken.error from broken
                await retry.pause(broken, self._answered)

    async def lines(
        self, next_request: Callable[[], Request], *, endless: bool
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a streamed answer. When it breaks, `next_request` says how to go on.

        An `endless` stream is taken up again also when the coordinator ends it.
        """
        retry = _Retry(self._limits)
        while True:
            try:
                async with aclosing(self._try_lines(next_request())) as lines:
                    async for line in lines:
                        retry.begin_again()
                        yield line
                if not endless:
                    return
                raise _Broken(self._lost(), sent=True)
            except _Broken as broken:
                await retry.pause(broken, self._answered)

    async def _try(self, request: Request) -> Reply:
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds + request.wait_seconds)
        try:
            async with self._open(request, timeout) as response:
                body = await response.read()
                self._answered = True
                if response.status >= 400:
                    raise self._failure(response.status, body, response.headers.get("Retry-After"))
                sequence = int(response.headers.get("Penstock-Sequence", "0"))
                self.last_write = max(self.last_write, sequence)
                return Reply(body, sequence)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._broken(error) from error

    async def _try_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_seconds)
        try:
            async with self._open(request, timeout) as response:
                self._answered = True
                if response.status >= 400:
                    raise self._failure(
                        response.status, await response.read(), response.headers.get("Retry-After")
                    )
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line.startswith(PROBLEM_LINE):
                            raise self._said(line)
                        yield line
                if rest:
                    yield rest
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._broken(error) from error

    def _open(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> "aiohttp.client._RequestContextManager":
        if self._session is None:
            headers = {"Accept": "application/json"}
            if self.address.token is not None:
                headers["Authorization"] = f"Bearer {self.address.token}"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=headers,
            )
        target = self.address.url + request.path
        if request.parameters:
            target += "?" + urllib.parse.urlencode(request.parameters)
        try:
            url = yarl.URL(target, encoded=True)
        except ValueError as error:
            raise Invalid(f"{self.address.url!r} is not an address: {error}.") from error
        body: bytes | io.BytesIO | None = request.body
        if request.body is not None and len(request.body) > LARGE_BODY_BYTES:
            # As a file it is sent piece by piece, and does not hold up the event loop.
            body = io.BytesIO(request.body)
        return self._session.request(
            request.method,
            url,
            data=body,
            headers=request.headers,
            timeout=timeout,
            allow_redirects=False,
        )

    def _said(self, line: bytes) -> Exception:
        """What the last line of a stream that came to a bad end stands for."""
        try:
            line = bytes(msgspec.json.decode(line, type=_ProblemLine).problem)
        except msgspec.DecodeError:
            return self._lost()
        return self._failure(500, line)

    def _failure(self, status: int, body: bytes, pause: str | None = None) -> Exception:
        error = exception(status, body, self.address.url)
        if isinstance(error, LogFull):
            return error
        if isinstance(error, Unavailable | Deposed):
            # A gateway speaks for a coordinator that may have done what it was asked to.
            sent = status in (502, 504)
            return _Broken(error, sent=sent, retry_after_seconds=retry_after(pause))
        return error

    def _broken(self, error: Exception) -> _Broken:
        if isinstance(error, aiohttp.InvalidURL):
            raise Invalid(f"{self.address.url!r} is not an address.") from error
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            unreachable = Unavailable(
                f"No coordinator answers at {self.address.url}. "
                "Start one with 'penstock up', or set PENSTOCK_URL.",
                url=self.address.url,
            )
            return _Broken(unreachable, sent=False)
        return _Broken(self._lost(), sent=True)

    def _lost(self) -> Unavailable:
        return Unavailable(
            f"The connection to {self.address.url} was lost before the answer came. "
            "See what is there before you repeat the request.",
            url=self.address.url,
        )


class _Retry:
    """The tries of one request."""

    def __init__(self, limits: RetryLimits) -> None:
        self._limits = limits
        self.begin_again()

    def begin_again(self) -> None:
        self._attempt = 0
        self._since = asyncio.get_running_loop().time()

    async def pause(self, broken: _Broken, answered: bool) -> None:
        """Wait until it is time for the next try, or raise when there is no more time."""
        self._attempt += 1
        limits = self._limits
        wait = wait_seconds(
            self._attempt,
            asyncio.get_running_loop().time() - self._since,
            limits.retry_seconds if answered else limits.first_answer_seconds,
            random.random(),
            broken.retry_after_seconds,
        )
        if wait is None:
            raise broken.error from broken
        await asyncio.sleep(wait)
