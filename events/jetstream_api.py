"""The part of JetStream's interface that Penstock uses, typed: requests and answers in JSON.

Written against the wire because nats-py hides error codes, waits on the wrong clock, and cannot
say several of the things that the log depends on.
"""

from typing import Any, TypeVar

import msgspec

from penstock.errors import Unavailable
from penstock.events.connection import Connection

EXPECTED_LAST_SEQUENCE = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID = "Nats-Msg-Id"
MESSAGE_TTL = "Nats-TTL"
BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"

CONSUMER_NOT_FOUND = 10014
MESSAGE_NOT_FOUND = 10037
STREAM_NAME_IN_USE = 10058
STREAM_NOT_FOUND = 10059
WRONG_LAST_SEQUENCE = 10071
STORAGE_REFUSES = frozenset({10002, 10023, 10028, 10047, 10077})
"""Account, server or stream limits are reached, or the disk is full: nothing was stored."""


class Problem(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    error: Problem | None = None


class Refused(Unavailable):
    """JetStream refused the request."""

    def __init__(self, subject: str, problem: Problem) -> None:
        super().__init__(f"JetStream refused {subject}: {problem.description}")
        self.err_code = problem.err_code


class Acknowledgement(Answer, frozen=True, kw_only=True):
    seq: int = 0


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    seq: int
    hdrs: bytes = b""
    data: bytes = b""
    time: str = ""

    def header(self, name: str) -> str:
        for line in self.hdrs.split(b"\r\n"):
            key, _, value = line.partition(b":")
            if key == name.encode():
                return value.strip().decode()
        return ""


class MessageAnswer(Answer, frozen=True, kw_only=True):
    message: StoredMessage | None = None


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] = {}


class StreamAnswer(Answer, frozen=True, kw_only=True):
    config: dict[str, Any] = {}
    state: StreamState = StreamState()
    ts: str = ""
    """The server's time."""


class ConsumerAnswer(Answer, frozen=True, kw_only=True):
    name: str = ""


AnyAnswer = TypeVar("AnyAnswer", bound=Answer)

_acknowledgements = msgspec.json.Decoder(Acknowledgement)


async def ask(
    connection: Connection,
    subject: str,
    body: object,
    kind: type[AnyAnswer],
    *,
    timeout_seconds: float = 5.0,
) -> AnyAnswer:
    """One request to the JetStream API. Raises `Refused` or `Unanswered`."""
    message = await connection.call(
        f"$JS.API.{subject}",
        b"" if body is None else msgspec.json.encode(body),
        timeout_seconds=timeout_seconds,
    )
    answer = msgspec.json.decode(message.data, type=kind)
    if answer.error is not None:
        raise Refused(subject, answer.error)
    return answer


async def publish(
    connection: Connection,
    subject: str,
    body: bytes,
    headers: dict[str, str],
    *,
    timeout_seconds: float = 5.0,
) -> Acknowledgement:
    """Publish into a stream; the answer may hold an error. Raises `Unanswered`."""
    message = await connection.call(subject, body, headers=headers, timeout_seconds=timeout_seconds)
    return _acknowledgements.decode(message.data)


async def stream_info(
    connection: Connection, stream: str, subjects_filter: str = ""
) -> StreamAnswer:
    body = {"subjects_filter": subjects_filter} if subjects_filter else None
    return await ask(connection, f"STREAM.INFO.{stream}", body, StreamAnswer)


async def get_message(
    connection: Connection, stream: str, query: dict[str, object]
) -> StoredMessage | None:
    """Ask the stream's leader: by `seq`, by `last_by_subj`, or by `seq` and `next_by_subj`."""
    try:
        answer = await ask(connection, f"STREAM.MSG.GET.{stream}", query, MessageAnswer)
    except Refused as refused:
        if refused.err_code == MESSAGE_NOT_FOUND:
            return None
        raise
    return answer.message
