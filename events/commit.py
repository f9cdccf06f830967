"""A commit: the events that happen together, as one message of the log.

Each commit names the hash of the one before it, and its own hash travels in a header. A reader
that follows the counter and the hashes notices a commit that was changed, lost, added or moved.
"""

import hashlib
from typing import TypeAlias

import msgspec

from penstock.errors import Corrupt
from penstock.events.event import Timestamp
from penstock.events.managers import LeaderElected, ManagerOffline, ManagerOnline, ManagerRegistered
from penstock.events.task_groups import (
    GroupCreated,
    TaskGroupAssigned,
    TaskGroupCancelled,
    TaskGroupClosed,
    TaskGroupCompleted,
    TaskGroupCreated,
    TaskGroupReleased,
    TaskGroupReopened,
)
from penstock.events.tasks import (
    TaskCancellationRequested,
    TasksAssigned,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
)

AnyEvent: TypeAlias = (
    LeaderElected
    | GroupCreated
    | TaskGroupCreated
    | TaskGroupClosed
    | TaskGroupReopened
    | TaskGroupCancelled
    | TaskGroupCompleted
    | TaskGroupAssigned
    | TaskGroupReleased
    | TasksSubmitted
    | TasksAssigned
    | TasksStarted
    | TasksFinished
    | TasksRequeued
    | TasksCancelled
    | TaskCancellationRequested
    | ManagerRegistered
    | ManagerOnline
    | ManagerOffline
)

SCHEMA = 1
MAX_COMMIT_BYTES = 512 * 1024
GENESIS = ""
"""What the first commit names as the hash before it."""


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`counter` starts at 1 and has no gaps. `epoch` is 0 in the commit that elects a leader."""

    id: str
    counter: int
    previous: str
    epoch: int = 0
    at: Timestamp
    events: list[AnyEvent]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reader has come: a place in the log, and what it must look like there."""

    sequence: int = 0
    counter: int = 0
    hash: str = GENESIS


START = Position()

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Commit)


def encode(commit: Commit) -> bytes:
    return _encoder.encode(commit)


def decode(body: bytes, sequence: int) -> Commit:
    """Decode a stored commit. An event of an unknown kind stops the reader: it must not guess."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"Commit at sequence {sequence} cannot be read by this version: {error}. "
            "Upgrade this process if a newer version wrote it; otherwise the log was damaged.",
            sequence=sequence,
        ) from error


def digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def follow(
    position: Position, sequence: int, body: bytes, stored_hash: str
) -> tuple[Commit, Position]:
    """Decode the commit that comes after `position`, or raise `Corrupt` when it does not."""
    actual = digest(body)
    if actual != stored_hash:
        raise Corrupt(
            f"Commit at sequence {sequence} was changed after it was written.", sequence=sequence
        )
    if sequence != position.sequence + 1:
        raise Corrupt(
            f"The log jumps from sequence {position.sequence} to {sequence}: commits are missing.",
            sequence=sequence,
        )
    commit = decode(body, sequence)
    if commit.previous != position.hash or commit.counter != position.counter + 1:
        raise Corrupt(
            f"Commit at sequence {sequence} does not continue the one before it "
            f"(counter {commit.counter} after {position.counter}).",
            sequence=sequence,
        )
    return commit, Position(sequence=sequence, counter=commit.counter, hash=actual)


class _Assembled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit whose events are encoded already. Field by field the same as `Commit`."""

    id: str
    counter: int
    previous: str
    epoch: int = 0
    at: Timestamp
    events: list[msgspec.Raw]


def encode_event(event: AnyEvent) -> bytes:
    return _encoder.encode(event)


def assemble(
    after: Position, *, commit_id: str, epoch: int, at: Timestamp, events: list[bytes]
) -> bytes:
    """Encode the commit that follows `after`, from events that `encode_event` encoded."""
    return _encoder.encode(
        _Assembled(
            id=commit_id,
            counter=after.counter + 1,
            previous=after.hash,
            epoch=epoch,
            at=at,
            events=[msgspec.Raw(event) for event in events],
        )
    )
