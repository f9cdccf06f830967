"""The log in NATS JetStream.

One commit is one message of the stream `LOG`. An append names the last sequence of the stream and
the sequence of the last message on the subject of elections; the server stores it only when both
are still so. `append.py` says why that is enough and what happens when an answer is lost.

Readers check everything: that sequences have no gaps, that each commit names the hash of the one
before it, and, whenever they begin or begin again, that the log still holds what they saw last.
The server does not: a damaged file makes it skip a message or cut off the stream without a word.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import TypeVar

import structlog

from penstock.errors import Corrupt, NotFound
from penstock.events import append
from penstock.events.append import FencedWriter, Offer, Refusal, Stored, Unanswered, backoff
from penstock.events.commit import SCHEMA, Position, digest
from penstock.events.commit import follow as follow_commit
from penstock.events.connection import Connection
from penstock.events.jetstream_api import (
    EXPECTED_LAST_SEQUENCE,
    EXPECTED_LAST_SUBJECT_SEQUENCE,
    EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    STORAGE_REFUSES,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    Refused,
    StreamAnswer,
    get_message,
    publish,
    stream_info,
)
from penstock.events.log import Entry
from penstock.events.pull import Pull, PullBroken, stream_sequence
from penstock.events.subjects import HEADER_EPOCH, HEADER_HASH, HEADER_SCHEMA, Subjects

logger = structlog.get_logger("penstock.log")

APPEND_TIMEOUT_SECONDS = 5.0
PATIENCE_SECONDS = 15.0
"""How long a replica that has not heard of its replacement may go on telling old facts."""

T = TypeVar("T")


class JetStreamStorage:
    """Implements `Storage`."""

    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self.connection = connection
        self.stream = subjects.log_stream
        self._commit_subject = subjects.log_commit
        self._leader_subject = subjects.log_leader

    async def offer(self, offer: Offer) -> Refusal | None:
        headers = {
            EXPECTED_LAST_SEQUENCE: str(offer.place - 1),
            HEADER_EPOCH: str(offer.epoch),
            HEADER_SCHEMA: str(SCHEMA),
            HEADER_HASH: offer.hash,
        }
        subject = self._leader_subject
        if offer.epoch:
            subject = self._commit_subject
            headers[EXPECTED_LAST_SUBJECT_SEQUENCE] = headers[HEADER_EPOCH]
            headers[EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT] = self._leader_subject
        answer = await publish(
            self.connection, subject, offer.body, headers, timeout_seconds=APPEND_TIMEOUT_SECONDS
        )
        problem = answer.error
        if problem is None:
            if answer.seq != offer.place:
                raise Corrupt(
                    f"A commit meant for sequence {offer.place} was stored at {answer.seq}.",
                    sequence=answer.seq,
                )
            return None
        if problem.err_code == WRONG_LAST_SEQUENCE:
            return Refusal(why="does not follow", description=problem.description)
        if problem.err_code in STORAGE_REFUSES:
            return Refusal(why="full", description=problem.description)
        return Refusal(why="other", description=f"{problem.err_code}: {problem.description}")

    async def look(self, sequence: int) -> Stored | None:
        """Asks the stream's leader: a replica might lag behind."""
        found = await self._until_answered(
            lambda: get_message(self.connection, self.stream, {"seq": sequence})
        )
        if found is None:
            return None
        return Stored(
            sequence=sequence,
            body=found.data,
            hash=found.header(HEADER_HASH),
            election=found.subject == self._leader_subject,
        )

    async def end(self) -> int:
        return (await self.info()).state.last_seq

    async def info(self) -> StreamAnswer:
        return await self._until_answered(lambda: stream_info(self.connection, self.stream))

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def expect(self, sequence: int) -> None:
        deadline = monotonic() + PATIENCE_SECONDS
        pauses = backoff()
        while True:
            info = await self.info()
            if info.state.last_seq >= sequence:
                return
            if info.config.get("num_replicas", 1) == 1 or monotonic() > deadline:
                raise Corrupt(
                    f"The log ends at sequence {info.state.last_seq}, but sequence {sequence} was "
                    "there before: it was cut off.",
                    sequence=sequence,
                )
            await asyncio.sleep(next(pauses))

    async def verify(self, position: Position) -> None:
        """Raise `Corrupt` unless the log holds at a position what was seen there."""
        if position.sequence == 0:
            return
        found = await self.look(position.sequence)
        if found is None:
            await self.expect(position.sequence)
            found = await self.look(position.sequence)
        if found is None:
            if (await self.info()).state.first_seq == position.sequence + 1:
                # Archived. The next commit names the hash of this one.
                return
            raise await self.missing(position.sequence)
        if digest(found.body) != position.hash:
            raise Corrupt(
                f"The log holds another commit at sequence {position.sequence} than the one that "
                "was read there before: it was cut off and written again.",
                sequence=position.sequence,
            )

    async def check_end(self, sequence: int) -> None:
        """Raise `Corrupt` when there is a next commit, but the server cannot deliver it."""
        if await self.end() > sequence and await self.look(sequence + 1) is None:
            raise await self.missing(sequence + 1)

    async def missing(self, sequence: int) -> Corrupt:
        first = (await self.info()).state.first_seq
        why = (
            f"it was removed, the log begins at {first}"
            if sequence < first
            else "the server cannot read it, its file was damaged"
        )
        return Corrupt(f"Commit at sequence {sequence} is missing: {why}.", sequence=sequence)

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        pauses = backoff()
        gone_since: float | None = None
        while True:
            await self.connection.ready()
            try:
                return await ask()
            except Unanswered:
                gone_since = None
            except Refused as refused:
                if refused.err_code != STREAM_NOT_FOUND:
                    logger.warning("the log cannot be read yet", why=refused.message)
                elif gone_since is None:
                    gone_since = monotonic()
                elif monotonic() - gone_since > PATIENCE_SECONDS:
                    raise Corrupt(
                        f"The stream {self.stream} does not exist. If this deployment is new, "
                        "create its streams; otherwise it was deleted: restore it.",
                        stream=self.stream,
                    ) from refused
            await asyncio.sleep(next(pauses))


class JetStreamLog:
    """Implements `Log`. Give each writer a connection of its own, closed when the role is lost."""

    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self._connection = connection
        self._storage = JetStreamStorage(connection, subjects)

    async def read(self, sequence: int) -> bytes:
        body = await self._read_directly(sequence)
        if body is not None:
            return body
        found = await self._storage.look(sequence) if sequence > 0 else None
        if found is None:
            if 0 < sequence <= await self.end():
                raise await self._storage.missing(sequence)
            raise NotFound(f"The log has no commit at sequence {sequence}.", sequence=sequence)
        return _checked(sequence, found.body, found.hash)

    async def end(self) -> int:
        return await self._storage.end()

    async def follow(self, after: Position) -> AsyncIterator[Entry]:
        position = after
        gap_after = -1
        pauses = backoff()
        while True:
            await self._storage.verify(position)
            try:
                pull = await Pull.open(
                    self._connection, self._storage.stream, position.sequence + 1
                )
            except (Unanswered, Refused) as problem:
                logger.warning("the log cannot be followed yet", why=problem.message)
                await asyncio.sleep(next(pauses))
                continue
            try:
                while True:
                    messages = await pull.take()
                    if not messages:
                        await self._storage.check_end(position.sequence)
                    for message in messages:
                        sequence = stream_sequence(message)
                        if sequence != position.sequence + 1 and gap_after != position.sequence:
                            gap_after = position.sequence
                            raise PullBroken("a commit was skipped, which may be a passing fault")
                        headers = message.headers or {}
                        commit, position = follow_commit(
                            position, sequence, message.data, headers.get(HEADER_HASH, "")
                        )
                        yield Entry(commit, position, len(message.data))
                    pauses = backoff()
            except PullBroken as broken:
                logger.info("following again", after=position.sequence, why=broken.message)
                await asyncio.sleep(next(pauses))
            finally:
                await pull.close()

    async def elect(self, node: str, url: str, after: Position, now: int) -> FencedWriter:
        await self._storage.verify(after)
        return await append.elect(self._storage, node, url, after, now)

    async def _read_directly(self, sequence: int) -> bytes | None:
        """Quick, but a replica that lags behind may answer that there is nothing."""
        try:
            message = await self._connection.call(
                f"$JS.API.DIRECT.GET.{self._storage.stream}", b'{"seq":%d}' % sequence
            )
        except Unanswered:
            return None
        headers = message.headers or {}
        if "Status" in headers:
            return None
        return _checked(sequence, message.data, headers.get(HEADER_HASH, ""))


def _checked(sequence: int, body: bytes, stored_hash: str) -> bytes:
    if digest(body) != stored_hash:
        raise Corrupt(
            f"Commit at sequence {sequence} was changed after it was written.", sequence=sequence
        )
    return body
