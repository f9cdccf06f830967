"""Appending: fences, and what to do when an answer is lost. The same for every kind of storage.

The storage itself keeps writers apart: every offer names the place that it is meant for, which is
the one after the last sequence, and the election that permits it, which must be the latest. The
storage takes it only when both hold. Only one offer is under way at a time, and it aims right
behind a commit that was really acknowledged: a predicted place would not keep a replaced writer
out, because the usurper's first commit stands exactly where the other one predicted its own.

What became of an offer that got no clear answer is found out by looking at its place, for as long
as that takes. It is made again only when nothing stands there, and for the same place, so that at
most one copy can ever be stored.
"""

import uuid
from collections.abc import Iterator
from typing import Literal, Protocol

import msgspec
import structlog

from penstock.errors import Conflict, Corrupt, Deposed, Invalid, LogFull, Unavailable
from penstock.events.commit import (
    MAX_COMMIT_BYTES,
    Position,
    assemble,
    decode,
    digest,
    encode_event,
)
from penstock.events.event import Timestamp
from penstock.events.managers import LeaderElected

logger = structlog.get_logger("penstock.log")

REFUSALS_BELIEVED = 10
"""After so many refusals that nothing in the log explains, it is not a passing disturbance."""


class Unanswered(Unavailable):
    """The storage gave no answer. Whether the request was carried out is not known."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A commit for one place. `epoch` is 0 for an election, which needs no permission."""

    body: bytes
    hash: str
    place: int
    epoch: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    why: Literal["does not follow", "full", "other"]
    description: str = ""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    sequence: int
    body: bytes
    hash: str
    election: bool


class Storage(Protocol):
    async def offer(self, offer: Offer) -> Refusal | None:
        """Store a commit at its place. Raises `Unanswered` when the outcome is not known."""
        ...

    async def look(self, sequence: int) -> Stored | None:
        """What stands at a sequence; waits for as long as the storage cannot be reached."""
        ...

    async def end(self) -> int: ...

    async def pause(self, seconds: float) -> None:
        """Wait before trying again."""
        ...

    async def expect(self, sequence: int) -> None:
        """Raise `Corrupt` when the log ends before a sequence that it is known to have had."""
        ...


class Occupied(Conflict):
    """Another commit stands where this one was meant to be."""

    def __init__(self, found: Stored) -> None:
        super().__init__()
        self.found = found


def backoff(first_seconds: float = 0.02, most_seconds: float = 1.0) -> Iterator[float]:
    pause = first_seconds
    while True:
        yield pause
        pause = min(pause * 2, most_seconds)


async def store(storage: Storage, offer: Offer) -> None:
    """Put a commit at its place; return when it stands there.

    Raises `Occupied` when another commit does, `LogFull` when the storage refuses, `Corrupt` when
    the log has become shorter or the place cannot be read.
    """
    pauses = backoff()
    refusals = 0
    while True:
        refusal: Refusal | None = None
        try:
            refusal = await storage.offer(offer)
            if refusal is None:
                return
        except Unanswered as unanswered:
            logger.warning("append was not answered", place=offer.place, why=unanswered.message)
        # Also after a clear refusal: an earlier try may have been stored, its answer lost.
        found = await storage.look(offer.place)
        if found is not None:
            if found.body == offer.body:
                return
            raise Occupied(found)
        if refusal is not None:
            refusals += 1
            await _explain_refusal(storage, offer, refusal, refusals)
        await storage.pause(next(pauses))


async def _explain_refusal(storage: Storage, offer: Offer, refusal: Refusal, refusals: int) -> None:
    """Nothing stands at the place, and still the storage refuses. Return to try again."""
    if refusal.why == "full":
        raise LogFull(
            f"The log's storage refuses to grow ({refusal.description}). "
            "Nothing was lost; make room, then try again."
        )
    if refusal.why == "other":
        logger.warning("append was refused", place=offer.place, why=refusal.description)
        return
    await storage.expect(offer.place - 1)
    if refusals < REFUSALS_BELIEVED:
        return
    if await storage.end() >= offer.place:
        raise Corrupt(
            f"The commit at sequence {offer.place} cannot be read: its file was damaged.",
            sequence=offer.place,
        )
    raise Corrupt(
        f"The log refuses a commit at sequence {offer.place}, although it ends right before: "
        "the election that permits it is no longer in the log.",
        sequence=offer.place,
    )


async def elect(
    storage: Storage, node: str, url: str, after: Position, now: Timestamp
) -> "FencedWriter":
    elected = LeaderElected(at=now, actor=f"coordinator:{node}", node=node, url=url)
    body = assemble(
        after, commit_id=uuid.uuid4().hex, epoch=0, at=now, events=[encode_event(elected)]
    )
    offer = Offer(body=body, hash=digest(body), place=after.sequence + 1, epoch=0)
    try:
        await store(storage, offer)
    except Occupied as occupied:
        raise Conflict(
            f"The log goes on after sequence {after.sequence}: read on, then decide again.",
            sequence=after.sequence,
        ) from occupied
    return FencedWriter(
        storage, Position(sequence=offer.place, counter=after.counter + 1, hash=offer.hash)
    )


class FencedWriter:
    """Implements `LogWriter`."""

    def __init__(self, storage: Storage, elected: Position) -> None:
        self._storage = storage
        self._epoch = elected.sequence
        self._position = elected
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
        last = self._position
        offer = Offer(body=body, hash=digest(body), place=last.sequence + 1, epoch=self._epoch)
        # Stays so unless the outcome is known: after a cancellation the commit may or may not be
        # stored, and nothing may be built on either.
        self._usable = False
        try:
            await store(self._storage, offer)
        except Occupied as occupied:
            raise self._explain(occupied.found) from occupied
        except LogFull:
            self._refused.add(offer.hash)
            self._usable = True
            raise
        self._position = Position(sequence=offer.place, counter=last.counter + 1, hash=offer.hash)
        self._usable = True
        return self._position

    def _explain(self, found: Stored) -> Deposed | Corrupt:
        if found.election:
            names = [
                event.node
                for event in decode(found.body, found.sequence).events
                if isinstance(event, LeaderElected)
            ]
            return Deposed(
                f"Coordinator {' '.join(names)} leads since sequence {found.sequence}. "
                "What was not acknowledged was not done.",
                epoch=found.sequence,
            )
        if found.hash in self._refused:
            return Deposed(
                f"A commit that was refused for want of space stands at sequence {found.sequence} "
                "after all. Read the log, then be elected again."
            )
        return Corrupt(
            f"A foreign commit stands at sequence {found.sequence}: someone else writes the log.",
            sequence=found.sequence,
        )
