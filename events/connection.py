"""The connection to NATS: one that comes back by itself and says when it was cut.

nats-py reconnects, but leaves whoever waits for an answer waiting: a request that was under way
when the line was cut gets no answer, ever. `Connection.call` fails such requests at once with
`Unanswered`, so that the caller can look up what became of them; `watch` tells readers that their
outstanding pulls are gone. Nothing is sent while the line is down: nats-py would keep it and send
it at some later time, when nobody expects it any more.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from penstock.errors import Unauthenticated, Unavailable
from penstock.events.append import Unanswered

logger = structlog.get_logger("penstock.nats")

RECONNECT_WAIT_SECONDS = 0.25
PING_INTERVAL_SECONDS = 10
NO_RESPONDERS = "503"


class Connection(Client):
    """A nats-py client whose requests end when the line is cut."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: set[Callable[[], None]] = set()
        self._answers: dict[str, asyncio.Future[Msg]] = {}
        self._answer_inbox = ""
        self._answer_subscription: Subscription | None = None
        self._calls = 0
        self._up = asyncio.Event()
        self.closed_for_good = asyncio.Event()
        """Set when the client will not reconnect any more: the process has to end."""
        self.last_problem: Exception | None = None

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        # nats-py looks at every character of every name: two thirds of the time of a replay.
        headers = {}
        for line in raw.decode("utf-8", "replace").split("\r\n"):
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip()] = value.strip()
        return headers

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever the line is cut. Returns how to stop that."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)

    async def ready(self) -> None:
        """Wait until connected. Raises `Unavailable` when that will never be."""
        while not self.is_connected:
            if self.is_closed:
                raise Unavailable(
                    f"The connection to NATS is closed: {self.last_problem or 'by this process'}."
                )
            self._up.clear()
            await self._up.wait()

    async def call(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = 5.0,
    ) -> Msg:
        """Send a request and return the answer. Raises `Unanswered`."""
        if not self.is_connected:
            raise Unanswered
        if self._answer_subscription is None:
            self._answer_inbox = self.new_inbox()
            self._answer_subscription = await self.subscribe(
                f"{self._answer_inbox}.*",
                cb=self._answered,
                pending_msgs_limit=0,
                pending_bytes_limit=0,
            )
        self._calls += 1
        key = str(self._calls)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Msg] = loop.create_future()
        self._answers[key] = answer
        timer = loop.call_later(timeout_seconds, _give_up, answer)
        try:
            await self.publish(
                subject, payload, reply=f"{self._answer_inbox}.{key}", headers=headers
            )
            message = await answer
        except nats.errors.Error as error:
            raise Unanswered from error
        finally:
            timer.cancel()
            del self._answers[key]
        if message.headers and message.headers.get("Status") == NO_RESPONDERS:
            raise Unanswered("Nothing at NATS answers this request: JetStream is not ready.")
        return message

    async def _answered(self, message: Msg) -> None:
        answer = self._answers.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _line_was_cut(self) -> None:
        for answer in self._answers.values():
            _give_up(answer)
        for callback in list(self._watchers):
            callback()

    async def on_disconnected(self) -> None:
        if not self.is_closed:
            logger.warning("disconnected", problem=_describe(self.last_problem))
        self._line_was_cut()

    async def on_reconnected(self) -> None:
        logger.info("reconnected")
        self._up.set()

    async def on_closed(self) -> None:
        self.closed_for_good.set()
        self._up.set()
        self._line_was_cut()

    async def on_error(self, error: Exception) -> None:
        self.last_problem = error
        if self.is_connected:
            logger.warning("error", problem=_describe(error))
        else:
            logger.debug("cannot connect", problem=_describe(error))


def _give_up(answer: asyncio.Future[Msg]) -> None:
    if not answer.done():
        answer.set_exception(Unanswered())


def _describe(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}" if error is not None else ""


async def connect(url: str, name: str, *, within_seconds: float = 30.0) -> Connection:
    """Connect, or raise `Unavailable` when no server answers in time.

    Later losses of the connection are mended for as long as the process lives. `url` may hold
    several addresses, separated by commas. `name` is shown in NATS' own monitoring, and is part of
    the inbox subjects, so that permissions can be limited to it.
    """
    connection = Connection()
    refused = asyncio.get_running_loop().create_future()

    async def on_error(error: Exception) -> None:
        if "authorization" in str(error).lower() and not refused.done():
            refused.set_result(error)
        await connection.on_error(error)

    attempt = asyncio.ensure_future(
        connection.connect(
            [address.strip() for address in url.split(",")],
            name=name,
            error_cb=on_error,
            disconnected_cb=connection.on_disconnected,
            reconnected_cb=connection.on_reconnected,
            closed_cb=connection.on_closed,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_SECONDS,  # type: ignore[arg-type]
            ping_interval=PING_INTERVAL_SECONDS,
            inbox_prefix=f"_INBOX.{re.sub('[^A-Za-z0-9_-]', '_', name)}",
        )
    )
    try:
        await asyncio.wait(
            {attempt, refused}, timeout=within_seconds, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        if not attempt.done():
            attempt.cancel()
            with suppress(asyncio.CancelledError):
                await attempt
            await connection.close()
    if attempt.cancelled():
        if refused.done():
            raise Unauthenticated("NATS refuses these credentials. Check PENSTOCK_NATS_URL.")
        raise Unavailable(
            f"No NATS server answers within {within_seconds:g} s "
            f"({_describe(connection.last_problem)}). Check PENSTOCK_NATS_URL."
        )
    attempt.result()
    return connection
