"""Reading a stream fast and in order, with bounded memory.

A `Pull` is an ephemeral consumer without acknowledgements: the reader keeps its own position. It
asks for messages in advance, and asks again when half of them have been taken, so that the server
never waits for the reader while there is something to read, and never has more on the way than
two requests allow. Asking again happens only when the reader takes: a reader that stops takes up
no memory.

Once after every delivery, when the server says that it has nothing more for now, the reader gets an
empty list. It can then check that there really is nothing more.

A pull breaks when the line is cut, the consumer is gone or the server falls silent. It is then
thrown away, and the reader opens another one from its own position.
"""

import asyncio
from collections.abc import Callable

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from penstock.errors import Unavailable
from penstock.events.append import Unanswered
from penstock.events.connection import Connection
from penstock.events.jetstream_api import Answer, ConsumerAnswer, Refused, ask

BATCH_MESSAGES = 4096
BATCH_BYTES = 4 * 1024 * 1024
EXPIRES_SECONDS = 60
HEARTBEAT_SECONDS = 2
SILENCE_SECONDS = 2.5 * HEARTBEAT_SECONDS
INACTIVE_SECONDS = 300
HEARTBEAT = "100"
NANOSECONDS = 1_000_000_000

_REQUEST = msgspec.json.encode(
    {
        "batch": BATCH_MESSAGES,
        "max_bytes": BATCH_BYTES,
        "expires": EXPIRES_SECONDS * NANOSECONDS,
        "idle_heartbeat": HEARTBEAT_SECONDS * NANOSECONDS,
    }
)


class PullBroken(Unavailable):
    """The reading was interrupted. Open another pull."""


def stream_sequence(message: Msg) -> int:
    """Where a delivered message stands in its stream, from its reply subject."""
    tokens = message.reply.split(".")
    return int(tokens[5] if len(tokens) < 11 else tokens[7])


class Pull:
    def __init__(self, connection: Connection, stream: str, name: str) -> None:
        self._connection = connection
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self._stream = stream
        self._name = name
        self._inbox = connection.new_inbox()
        self._subscription: Subscription | None = None
        self._arrived: list[Msg] = []
        self._expected = 0
        self._waiter: asyncio.Future[None] | None = None
        self._broken = ""
        self._heard = False
        self._nothing_more = False
        self._said_so = False
        self._silence: asyncio.TimerHandle | None = None
        self._unwatch: Callable[[], None] | None = None

    @classmethod
    async def open(
        cls, connection: Connection, stream: str, first_sequence: int, filter_subject: str = ""
    ) -> "Pull":
        """Raises `Unanswered` or `Refused`."""
        config: dict[str, object] = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(first_sequence, 1),
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_SECONDS * NANOSECONDS,
        }
        if filter_subject:
            config["filter_subject"] = filter_subject
        made = await ask(
            connection,
            f"CONSUMER.CREATE.{stream}",
            {"stream_name": stream, "config": config},
            ConsumerAnswer,
        )
        pull = cls(connection, stream, made.name)
        pull._unwatch = connection.watch(lambda: pull._break("the line was cut"))
        try:
            pull._subscription = await connection.subscribe(
                pull._inbox, cb=pull._receive, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except NatsError as error:
            pull._unwatch()
            raise Unanswered from error
        return pull

    async def take(self) -> list[Msg]:
        """Whatever has arrived, or nothing once it is known that there is no more for now.

        Raises `PullBroken`.
        """
        while not self._arrived:
            if self._broken:
                raise PullBroken(f"Reading {self._stream} was interrupted: {self._broken}.")
            if self._nothing_more and not self._said_so:
                self._said_so = True
                return []
            if self._expected <= BATCH_MESSAGES // 2:
                await self._ask_for_more()
                continue
            await self._wait()
        taken, self._arrived = self._arrived, []
        if self._expected <= BATCH_MESSAGES // 2 and not self._broken:
            await self._ask_for_more()
        return taken

    async def close(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        if self._silence is not None:
            self._silence.cancel()
        try:
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            await ask(
                self._connection,
                f"CONSUMER.DELETE.{self._stream}.{self._name}",
                None,
                Answer,
                timeout_seconds=1.0,
            )
        except (NatsError, Unanswered, Refused):
            # The server removes an unused consumer by itself.
            return

    async def _ask_for_more(self) -> None:
        self._expected += BATCH_MESSAGES
        try:
            await self._connection.publish(self._next_subject, _REQUEST, reply=self._inbox)
        except NatsError as error:
            self._break(str(error))

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if self._silence is None:
            self._heard = True
            self._silence = loop.call_later(SILENCE_SECONDS, self._check_silence)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _check_silence(self) -> None:
        self._silence = None
        if not self._heard:
            self._break("the server fell silent")
        elif self._waiter is not None:
            self._heard = False
            self._silence = asyncio.get_running_loop().call_later(
                SILENCE_SECONDS, self._check_silence
            )

    async def _receive(self, message: Msg) -> None:
        self._heard = True
        if message.subject != self._inbox:
            self._expected -= 1
            self._nothing_more = self._said_so = False
            self._arrived.append(message)
            self._wake()
            return
        headers = message.headers or {}
        if headers.get("Status") == HEARTBEAT:
            self._nothing_more = True
            self._wake()
            return
        unused = headers.get("Nats-Pending-Messages", "")
        if unused.isdigit():
            self._expected -= int(unused)
            self._wake()
        else:
            self._break(headers.get("Description", "") or f"status {headers.get('Status')}")

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
