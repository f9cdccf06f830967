"""Events for integrators: the log again, one message for each event, on a subject of its own.

`penstock.events.<entity>.<entity id>.<event tag>` carries the event's JSON. Each event is there
exactly once and in the order of the log, although the process that publishes them can be killed
at any moment and another one may publish at the same time:

- Every message says which event of which commit it holds. Whoever publishes reads the last one and
  goes on with the event after it; there is no other record of how far it has come.
- Messages go in atomic batches, and each batch names the sequence that the stream must end at. The
  stream takes all of a batch or nothing, and of two publishers it takes one. The other one, like
  one whose answer was lost, reads the last message again and goes on from there.

The stream forgets old messages. When it has forgotten all of them, publishing resumes at the first
commit that is younger than that: its events, had they been published, would still be there.
"""

import asyncio
import uuid
from collections import deque
from datetime import datetime, timedelta

import msgspec
import structlog
from nats.errors import Error as NatsError

from penstock.errors import Corrupt, PenstockError
from penstock.events.append import Unanswered, backoff
from penstock.events.commit import START, Position, decode, digest
from penstock.events.connection import Connection
from penstock.events.derivation import Derived, derive
from penstock.events.feed import Feed
from penstock.events.jetstream_api import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    EXPECTED_LAST_SEQUENCE,
    WRONG_LAST_SEQUENCE,
    Problem,
    Refused,
    StreamAnswer,
    get_message,
    publish,
    stream_info,
)
from penstock.events.log import Log
from penstock.events.subjects import HEADER_HASH, HEADER_INDEX, HEADER_SEQUENCE, Subjects

logger = structlog.get_logger("penstock.events")

MAX_BATCH_MESSAGES = 500
"""The server takes 1000 at most."""
MAX_BATCH_BYTES = 4 * 1024 * 1024
READ_AHEAD_BYTES = 1024 * 1024
"""What is read at once is derived at once, and the coordinator does nothing else meanwhile."""
GATHERING_SECONDS = 0.1


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go on: after a position of the log, without the first `skip` events."""

    after: Position
    skip: int
    stream_sequence: int


class _NotThere(PenstockError):
    """The stream did not take a batch. Read its last message and go on from there."""


class EventsPublisher:
    def __init__(self, connection: Connection, subjects: Subjects, log: Log) -> None:
        self._connection = connection
        self._subjects = subjects
        self._log = log
        self._stream = subjects.events_stream
        self._pauses = backoff()

    async def run(self) -> None:
        """Publish for ever. Raises `Corrupt` when the stream and the log do not belong together."""
        while True:
            await self._connection.ready()
            try:
                await self._publish_from(await self.find_place())
            except (_NotThere, Unanswered, Refused) as problem:
                logger.info("publishing_resumes", why=problem.message)
                await asyncio.sleep(next(self._pauses))

    async def find_place(self) -> Place:
        """Where the stream ends, in terms of the log."""
        info = await stream_info(self._connection, self._stream)
        last = info.state.last_seq
        stored = None
        if info.state.messages:
            stored = await get_message(self._connection, self._stream, {"seq": last})
        if stored is None:
            after = await self._before_first_unforgotten(info) if last else START
            return Place(after=after, skip=0, stream_sequence=last)
        sequence, index = int(stored.header(HEADER_SEQUENCE)), int(stored.header(HEADER_INDEX))
        body = await self._log.read(sequence)
        if digest(body) != stored.header(HEADER_HASH):
            raise Corrupt(
                f"{self._stream} holds events of another commit {sequence} than the log does: "
                "the log was cut off and written again.",
                sequence=sequence,
            )
        commit = decode(body, sequence)
        if index + 1 < len(commit.events):
            return Place(after=_before(body, sequence), skip=index + 1, stream_sequence=last)
        position = Position(sequence=sequence, counter=commit.counter, hash=digest(body))
        return Place(after=position, skip=0, stream_sequence=last)

    async def _before_first_unforgotten(self, info: StreamAnswer) -> Position:
        """The position right before the first commit that the stream would still remember."""
        horizon = datetime.fromisoformat(info.ts) - timedelta(
            microseconds=info.config.get("max_age", 0) / 1000
        )
        state = (await stream_info(self._connection, self._subjects.log_stream)).state
        low, high = state.first_seq, state.last_seq + 1
        while low < high:
            middle = (low + high) // 2
            stored = await get_message(self._connection, self._subjects.log_stream, {"seq": middle})
            if stored is None:
                raise Corrupt(f"Commit at sequence {middle} is missing.", sequence=middle)
            if datetime.fromisoformat(stored.time) > horizon:
                high = middle
            else:
                low = middle + 1
        if low > state.last_seq:
            body = await self._log.read(state.last_seq)
            counter = decode(body, state.last_seq).counter
            return Position(sequence=state.last_seq, counter=counter, hash=digest(body))
        return _before(await self._log.read(low), low)

    async def _publish_from(self, place: Place) -> None:
        waiting: deque[Derived] = deque()
        skip, stream_sequence = place.skip, place.stream_sequence
        gathering_seconds = 0.0
        async with Feed(self._log, place.after, READ_AHEAD_BYTES) as feed:
            while True:
                entries, _ = await feed.take(gathering_seconds)
                for entry in entries:
                    waiting.extend(derive(self._subjects, entry)[skip:])
                    skip = 0
                while waiting:
                    batch = _take_batch(waiting)
                    await self._publish(batch, stream_sequence)
                    stream_sequence += len(batch)
                    self._pauses = backoff()
                # A batch costs the server much more than a message of it. Under load let some
                # commits gather; the first one after a rest is published at once.
                gathering_seconds = GATHERING_SECONDS

    async def _publish(self, batch: list[Derived], stream_sequence: int) -> None:
        """Publish all of a batch at the end of the stream, or nothing."""
        first, last = batch[0], batch[-1]
        expectation = {EXPECTED_LAST_SEQUENCE: str(stream_sequence)}
        if first is last:
            answer = await publish(
                self._connection, first.subject, first.body, first.headers | expectation
            )
        else:
            batch_id = uuid.uuid4().hex
            for number, message in enumerate(batch[:-1], start=1):
                headers = message.headers | {BATCH_ID: batch_id, BATCH_SEQUENCE: str(number)}
                if number == 1:
                    headers |= expectation
                if not self._connection.is_connected:
                    raise Unanswered
                try:
                    await self._connection.publish(message.subject, message.body, headers=headers)
                except NatsError as error:
                    raise Unanswered from error
            closing = {
                BATCH_ID: batch_id,
                BATCH_SEQUENCE: str(len(batch)),
                BATCH_COMMIT: "1",
            }
            answer = await publish(
                self._connection, last.subject, last.body, last.headers | closing
            )
        _check(answer.error, answer.seq, stream_sequence + len(batch))


def _check(problem: Problem | None, sequence: int, expected: int) -> None:
    if problem is not None:
        if problem.err_code != WRONG_LAST_SEQUENCE:
            logger.warning("events_were_refused", code=problem.err_code, why=problem.description)
        raise _NotThere(f"The stream did not take the events: {problem.description}.")
    if sequence != expected:
        raise _NotThere(f"The events ended at {sequence} instead of {expected}.")


def _take_batch(waiting: deque[Derived]) -> list[Derived]:
    batch = [waiting.popleft()]
    size = len(batch[0].body)
    while waiting and len(batch) < MAX_BATCH_MESSAGES:
        size += len(waiting[0].body)
        if size > MAX_BATCH_BYTES:
            break
        batch.append(waiting.popleft())
    return batch


def _before(body: bytes, sequence: int) -> Position:
    """The position that the commit at a sequence follows."""
    commit = decode(body, sequence)
    return Position(sequence=sequence - 1, counter=commit.counter - 1, hash=commit.previous)
