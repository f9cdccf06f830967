"""The log in NATS JetStream.

One commit is one message of the stream `LOG`. The server itself keeps writers apart: every append
names the last sequence of the stream and the sequence of the last election, and the server stores
it only when both still hold. Only one append is under way at a time, and it names a sequence that
was really acknowledged: a predicted one would not keep a replaced writer out.

What became of an append that got no clear answer is found out by looking at the place that it was
meant for, at the stream's leader, for as long as that takes. An append is sent again only when
nothing stands there, with the same expectation, so that at most one copy can ever be stored.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from time import monotonic

import structlog

from penstock.errors import Conflict, Corrupt, Deposed, Invalid, LogFull, NotFound
from penstock.events.commit import (
    MAX_COMMIT_BYTES,
    SCHEMA,
    Position,
    build,
    decode,
    digest,
)
from penstock.events.commit import follow as follow_commit
from penstock.events.connection import Connection, Unanswered
from penstock.events.jetstream_api import (
    EXPECTED_LAST_SEQUENCE,
    EXPECTED_LAST_SUBJECT_SEQUENCE,
    EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    STORAGE_REFUSES,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    Problem,
    Refused,
    StoredMessage,
    StreamAnswer,
    backoff,
    get_message,
    publish,
    stream_info,
)
from penstock.events.log import Entry
from penstock.events.managers import LeaderElected
from penstock.events.pull import Pull, PullBroken, stream_sequence
from penstock.events.subjects import HEADER_EPOCH, HEADER_HASH, HEADER_SCHEMA, Subjects

logger = structlog.get_logger("penstock.log")

APPEND_TIMEOUT_SECONDS = 5.0
PATIENCE_SECONDS = 15.0
"""How long a replica that has not heard of its replacement may go on telling old facts."""


class Occupied(Conflict):
    """Another commit stands where this one was meant to be."""

    def __init__(self, found: StoredMessage) -> None:
        super().__init__()
        self.found = found


class JetStreamLog:
    """Implements `Log`. Use one connection for each writer, and close it when the role is lost."""

    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self._connection = connection
        self._subjects = subjects
        self._stream = subjects.log_stream

    async def read(self, sequence: int) -> bytes:
        # A direct get is quick, but a replica that lags behind may answer it.
        for pause in backoff():
            try:
                message = await self._connection.call(
                    f"$JS.API.DIRECT.GET.{self._stream}", b'{"seq":%d}' % sequence
                )
                break
            except Unanswered:
                await self._connection.ready()
                await asyncio.sleep(pause)
        headers = message.headers or {}
        if "Status" not in headers:
            body, stored_hash = message.data, headers.get(HEADER_HASH, "")
        else:
            found = await self.look(sequence)
            if found is None:
                if sequence in range(1, await self.end() + 1):
                    raise await self._missing(sequence)
                raise NotFound(f"The log has no commit at sequence {sequence}.", sequence=sequence)
            body, stored_hash = found.data, found.header(HEADER_HASH)
        if digest(body) != stored_hash:
            raise Corrupt(
                f"Commit at sequence {sequence} was changed after it was written.",
                sequence=sequence,
            )
        return body

    async def end(self) -> int:
        return (await self.info()).state.last_seq

    async def follow(self, after: Position) -> AsyncIterator[Entry]:
        position = after
        gap_at = -1
        pauses = backoff()
        while True:
            await self.verify(position)
            try:
                pull = await Pull.open(self._connection, self._stream, position.sequence + 1)
            except (Unanswered, Refused) as problem:
                logger.warning("cannot follow the log yet", problem=problem.message)
                await asyncio.sleep(next(pauses))
                continue
            try:
                while True:
                    for message in await pull.take():
                        sequence = stream_sequence(message)
                        if sequence != position.sequence + 1 and gap_at != position.sequence:
                            # The server may have skipped it for a passing reason: ask once more.
                            gap_at = position.sequence
                            raise PullBroken("A commit was skipped.")
                        commit, position = follow_commit(
                            position,
                            sequence,
                            message.data,
                            (message.headers or {}).get(HEADER_HASH, ""),
                        )
                        yield Entry(commit, position, len(message.data))
                    pauses = backoff()
            except PullBroken as broken:
                logger.info("following the log again", after=position.sequence, why=broken.message)
                await asyncio.sleep(next(pauses))
            finally:
                await pull.close()

    async def elect(self, node: str, url: str, after: Position, now: int) -> "JetStreamWriter":
        await self.verify(after)
        elected = LeaderElected(at=now, actor=f"coordinator:{node}", node=node, url=url)
        body = build(after, 0, [elected], uuid.uuid4().hex, now)
        place = after.sequence + 1
        stored_hash = digest(body)
        headers = {
            EXPECTED_LAST_SEQUENCE: str(after.sequence),
            HEADER_EPOCH: "0",
            HEADER_SCHEMA: str(SCHEMA),
            HEADER_HASH: stored_hash,
        }
        try:
            await self.store(self._subjects.log_leader, body, headers, place)
        except Occupied as occupied:
            raise Conflict(
                f"The log goes on after sequence {after.sequence}: read on, then decide again.",
                sequence=after.sequence,
            ) from occupied
        position = Position(sequence=place, counter=after.counter + 1, hash=stored_hash)
        return JetStreamWriter(self, self._subjects, position)

    async def store(self, subject: str, body: bytes, headers: dict[str, str], place: int) -> None:
        """Put a commit at exactly one place; return when it stands there.

        Raises `Occupied` when another commit does, `LogFull` when the storage refuses, `Corrupt`
        when the log has become shorter or the place cannot be read.
        """
        pauses = backoff()
        refusals = 0
        while True:
            problem: Problem | None = None
            try:
                answer = await publish(
                    self._connection, subject, body, headers, timeout_seconds=APPEND_TIMEOUT_SECONDS
                )
                if answer.error is None:
                    if answer.seq == place:
                        return
                    raise Corrupt(
                        f"A commit meant for sequence {place} was stored at {answer.seq}.",
                        sequence=answer.seq,
                    )
                problem = answer.error
            except Unanswered as unanswered:
                logger.warning("append was not answered", place=place, why=unanswered.message)
            found = await self.look(place)
            if found is not None:
                if found.data == body:
                    return
                raise Occupied(found)
            if problem is not None:
                if problem.err_code in STORAGE_REFUSES:
                    raise LogFull(
                        f"The log's storage refuses to grow ({problem.description}). "
                        "Nothing was lost; make room, then try again."
                    )
                refusals += 1
                await self._check_refusal(problem, place, refusals)
            await asyncio.sleep(next(pauses))

    async def _check_refusal(self, problem: Problem, place: int, refusals: int) -> None:
        """Nothing stands at the place, and still the server refuses. Should we go on trying?"""
        if problem.err_code != WRONG_LAST_SEQUENCE:
            logger.warning(
                "append was refused", place=place, code=problem.err_code, why=problem.description
            )
            return
        last = await self.end()
        if last >= place:
            found = await self.look(place)
            if found is None:
                raise await self._missing(place)
            return
        if last < place - 1:
            await self._wait_for(place - 1)
        elif refusals >= 10:
            raise Corrupt(
                f"The log refuses a commit at sequence {place}, although it ends right before: "
                "the election that permits it is no longer in the log.",
                sequence=place,
            )

    async def look(self, sequence: int) -> StoredMessage | None:
        """What stands at a sequence, from the stream's leader, for as long as the answer takes."""
        pauses = backoff()
        missing_since: float | None = None
        while True:
            await self._connection.ready()
            try:
                return await get_message(self._connection, self._stream, {"seq": sequence})
            except (Unanswered, Refused) as problem:
                missing_since = self._stream_is_there(problem, missing_since)
            await asyncio.sleep(next(pauses))

    async def info(self) -> StreamAnswer:
        pauses = backoff()
        missing_since: float | None = None
        while True:
            await self._connection.ready()
            try:
                return await stream_info(self._connection, self._stream)
            except (Unanswered, Refused) as problem:
                missing_since = self._stream_is_there(problem, missing_since)
            await asyncio.sleep(next(pauses))

    def _stream_is_there(
        self, problem: Unanswered | Refused, missing_since: float | None
    ) -> float | None:
        """Since when the server has been saying that there is no log. Raises when for too long."""
        if not (isinstance(problem, Refused) and problem.err_code == STREAM_NOT_FOUND):
            return None
        if missing_since is None:
            return monotonic()
        if monotonic() - missing_since > PATIENCE_SECONDS:
            raise Corrupt(
                f"The stream {self._stream} does not exist. If this deployment is new, create its "
                "streams; otherwise it was deleted: restore it.",
                stream=self._stream,
            )
        return missing_since

    async def verify(self, position: Position) -> None:
        """Raise `Corrupt` unless the log holds at a position what was seen there."""
        if position.sequence == 0:
            return
        found = await self.look(position.sequence)
        if found is None:
            await self._wait_for(position.sequence)
            found = await self.look(position.sequence)
        if found is None:
            state = (await self.info()).state
            if state.first_seq == position.sequence + 1:
                # Archived: the next commit names the hash of this one.
                return
            raise await self._missing(position.sequence)
        if digest(found.data) != position.hash:
            raise Corrupt(
                f"The log holds another commit at sequence {position.sequence} than the one that "
                "was read there before: it was cut off and written again.",
                sequence=position.sequence,
            )

    async def _wait_for(self, sequence: int) -> None:
        """Raise `Corrupt` when the log ends before a sequence that it is known to have had."""
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

    async def _missing(self, sequence: int) -> Corrupt:
        state = (await self.info()).state
        why = (
            "it was removed; the log begins at " + str(state.first_seq)
            if sequence < state.first_seq
            else "the server cannot read it: its file was damaged"
        )
        return Corrupt(f"Commit at sequence {sequence} is missing: {why}.", sequence=sequence)


class JetStreamWriter:
    """Implements `LogWriter`."""

    def __init__(self, log: JetStreamLog, subjects: Subjects, elected: Position) -> None:
        self._log = log
        self._subject = subjects.log_commit
        self._leader_subject = subjects.log_leader
        self._epoch = elected.sequence
        self._position = elected
        self._headers = {
            EXPECTED_LAST_SUBJECT_SEQUENCE: str(self._epoch),
            EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT: self._leader_subject,
            HEADER_EPOCH: str(self._epoch),
            HEADER_SCHEMA: str(SCHEMA),
        }
        self._refused: set[str] = set()
        self._usable = True

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def position(self) -> Position:
        return self._position

    async def append(self, body: bytes) -> Position:
        if not self._usable:
            raise Deposed(
                "This writer has ended, or an append of it is under way or was broken off. "
                "Read the log, then be elected again."
            )
        if len(body) > MAX_COMMIT_BYTES:
            raise Invalid(f"A commit of {len(body)} bytes is larger than {MAX_COMMIT_BYTES}.")
        place = self._position.sequence + 1
        stored_hash = digest(body)
        headers = self._headers | {
            EXPECTED_LAST_SEQUENCE: str(place - 1),
            HEADER_HASH: stored_hash,
        }
        # Stays so unless the outcome is known: after a cancellation the commit may or may not be
        # stored, and nothing may be built on either.
        self._usable = False
        try:
            await self._log.store(self._subject, body, headers, place)
        except Occupied as occupied:
            raise self._explain(occupied.found) from occupied
        except LogFull:
            self._refused.add(stored_hash)
            self._usable = True
            raise
        self._position = Position(
            sequence=place, counter=self._position.counter + 1, hash=stored_hash
        )
        self._usable = True
        return self._position

    def _explain(self, found: StoredMessage) -> Deposed | Corrupt:
        if found.subject == self._leader_subject:
            [elected] = decode(found.data, found.seq).events
            node = elected.node if isinstance(elected, LeaderElected) else ""
            return Deposed(
                f"Coordinator {node} leads since sequence {found.seq}. "
                "What was not acknowledged was not done.",
                epoch=found.seq,
                node=node,
            )
        if digest(found.data) in self._refused:
            return Deposed(
                f"A commit that was refused for want of space stands at sequence {found.seq} after "
                "all. Read the log, then be elected again.",
            )
        return Corrupt(
            f"A foreign commit stands at sequence {found.seq}: someone else writes to the log.",
            sequence=found.seq,
        )
