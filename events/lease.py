"""Leadership lease: which coordinator should lead, for liveness only.

The lease is one message of the stream `LEASE` that the server forgets after `ttl_seconds` unless
its holder writes it again. Every write names the sequence of the message that it replaces, so of
two candidates the server admits one. What the lease does not do is keep a writer out: a holder
that was paused may wake up after its lease has lapsed and still believe in it. That is what the
epoch is for: the log refuses such a writer's commits (see `log.py`), and managers its pushes.

- **acquire**: takes the lease when there is none, when the last holder released it, or when it
  belongs to the same node: a coordinator that was restarted need not wait for its own lease to
  lapse. Otherwise someone else holds it, and the answer is no.
- **renew**: writes it again, with its time to live again, well before it lapses. No means that it
  is lost: leave the role.
- **remaining**: how long the lease surely holds, by this machine's monotonic clock, counted from
  before the request was sent. The server counts from when it stored the message, which is later.
  A holder stops deciding when nothing remains, without asking anyone.
- **release**: marks the lease as free, so that a standby takes over at once.
- **wait_for_change**: a standby waits here. It wakes when the lease is written or released, and
  at the latest after a third of the time to live: nobody announces that a lease has lapsed.

The stream is kept in memory: a lease is worth nothing after a few seconds, and a full disk should
not cost the leadership. A server that was restarted has therefore forgotten both. Whoever notices
creates the stream again, and a holder whose lease would still hold writes it anew, if nobody else
did so first.

An answer that got lost is looked up: every write carries a word of its own by which its writer
knows it again. The server's clock has a grain of one second, so a lease may last a second longer
than its time to live.
"""

import asyncio
import time
import uuid
from contextlib import suppress

import msgspec
import structlog
from nats.aio.msg import Msg

from penstock.errors import Invalid
from penstock.events.append import Unanswered, backoff
from penstock.events.connection import Connection
from penstock.events.jetstream_api import (
    EXPECTED_LAST_SUBJECT_SEQUENCE,
    MESSAGE_TTL,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    Problem,
    Refused,
    StoredMessage,
    get_message,
    publish,
)
from penstock.events.streams import restore_lease_stream
from penstock.events.subjects import Subjects

logger = structlog.get_logger("penstock.lease")

TTL_SECONDS = 3


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the lease says. `word` is made anew for every write."""

    node: str
    url: str = ""
    word: str
    released: bool = False


class Lease:
    """One node's view of the lease."""

    def __init__(
        self,
        connection: Connection,
        subjects: Subjects,
        node: str,
        url: str = "",
        *,
        ttl_seconds: int = TTL_SECONDS,
    ) -> None:
        if ttl_seconds < 1:
            raise Invalid("A lease lasts at least one second.")
        self.node = node
        self.ttl_seconds = ttl_seconds
        self._connection = connection
        self._subjects = subjects
        self._url = url
        self._sequence = 0
        self._until = 0.0

    @property
    def remaining(self) -> float:
        """Seconds for which the lease surely holds; 0 when it is not ours."""
        return max(0.0, self._until - time.monotonic())

    async def holder(self) -> Holder | None:
        """Who holds the lease now. Raises `Unanswered`."""
        stored = await self._stored()
        holder = _decode(stored)
        return None if holder is None or holder.released else holder

    async def acquire(self) -> bool:
        """Take the lease if it is free. Raises `Unanswered` when NATS cannot be asked."""
        stored = await self._stored()
        holder = _decode(stored)
        if holder is not None and not holder.released and holder.node != self.node:
            return False
        return await self._write(0 if stored is None else stored.seq, give_up_at=None)

    async def renew(self) -> bool:
        """Hold the lease for another `ttl_seconds`. False means that it is lost."""
        if self.remaining <= 0:
            self._until = 0.0
            return False
        return await self._write(self._sequence, give_up_at=self._until)

    async def release(self) -> None:
        """Let a standby take over at once. Does nothing when the lease is not ours."""
        if self.remaining <= 0:
            return
        self._until = 0.0
        body = self._body(uuid.uuid4().hex, released=True)
        try:
            await self._publish(body, self._sequence, self.ttl_seconds)
        except Unanswered:
            logger.warning("the lease was not released: it lapses by itself", node=self.node)

    async def wait_for_change(self) -> None:
        """Wait until it is worth trying to acquire the lease again."""
        changed = asyncio.Event()

        async def written(_: Msg) -> None:
            changed.set()

        await self._connection.ready()
        subscription = await self._connection.subscribe(self._subjects.lease, cb=written)
        try:
            async with asyncio.timeout(self.ttl_seconds / 3):
                # Look before waiting: it may have been released before we began to listen. And
                # look again after a change: a renewal is one as well.
                while await self.holder() is not None:
                    await changed.wait()
                    changed.clear()
        except (TimeoutError, Unanswered):
            return
        finally:
            if not self._connection.is_closed:
                await subscription.unsubscribe()

    async def _write(self, expected: int, give_up_at: float | None) -> bool:
        """Write the lease in place of message `expected`. Without a clear answer, look it up."""
        pauses = backoff(0.02, 0.2)
        sent: dict[str, float] = {}
        while True:
            now = time.monotonic()
            if give_up_at is not None and now >= give_up_at:
                self._until = 0.0
                return False
            word = uuid.uuid4().hex
            sent[word] = now
            timeout_seconds = 1.0 if give_up_at is None else min(1.0, give_up_at - now)
            try:
                sequence, problem = await self._publish(self._body(word), expected, timeout_seconds)
                if problem is None:
                    self._hold(sequence, now)
                    return True
                if problem.err_code == WRONG_LAST_SEQUENCE:
                    # Perhaps by an earlier try of ours whose answer was lost.
                    stored = await self._stored()
                    holder = _decode(stored)
                    if stored is not None and holder is not None and holder.word in sent:
                        self._hold(stored.seq, sent[holder.word])
                        return True
                    if stored is not None or expected == 0:
                        self._until = 0.0
                        return False
                    expected = 0
                    continue
                logger.warning("the lease was not written", why=problem.description)
            except Unanswered:
                if give_up_at is None:
                    raise
                with suppress(Unanswered, TimeoutError):
                    # Nobody answers either when the stream is gone; looking creates it again.
                    async with asyncio.timeout(give_up_at - time.monotonic()):
                        await self._stored()
            await asyncio.sleep(next(pauses))

    def _hold(self, sequence: int, since: float) -> None:
        self._sequence = sequence
        self._until = since + self.ttl_seconds

    def _body(self, word: str, *, released: bool = False) -> bytes:
        return msgspec.json.encode(
            Holder(node=self.node, url=self._url, word=word, released=released)
        )

    async def _publish(
        self, body: bytes, expected: int, timeout_seconds: float
    ) -> tuple[int, Problem | None]:
        answer = await publish(
            self._connection,
            self._subjects.lease,
            body,
            {EXPECTED_LAST_SUBJECT_SEQUENCE: str(expected), MESSAGE_TTL: f"{self.ttl_seconds}s"},
            timeout_seconds=timeout_seconds,
        )
        return answer.seq, answer.error

    async def _stored(self) -> StoredMessage | None:
        try:
            return await get_message(
                self._connection,
                self._subjects.lease_stream,
                {"last_by_subj": self._subjects.lease},
            )
        except Refused as refused:
            if refused.err_code != STREAM_NOT_FOUND:
                raise Unanswered(refused.message) from refused
        try:
            await restore_lease_stream(self._connection, self._subjects)
        except Refused as refused:
            raise Unanswered(refused.message) from refused
        return None


def _decode(stored: StoredMessage | None) -> Holder | None:
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored.data, type=Holder)
    except msgspec.DecodeError:
        # A newer version's: it holds until it lapses.
        return Holder(node="?", word="?")
