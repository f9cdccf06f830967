"""The log in memory, for tests of all that is built on it: fast, or seeded with faults.

`MemoryLog()` is a log without faults. With `Faults` and a seed, offers get lost, answers get lost,
offers arrive twice or long after the writer has given up on their answer, and everyone else may
run in between; the same seed gives the same story. `crash` lets a chosen append raise, before or
after its commit is stored. `reopen` gives another handle on the same commits, as a restarted or a
second process would have; it runs the same writer code as the real log (`append.py`).
"""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from penstock.errors import Corrupt, NotFound
from penstock.events import append
from penstock.events.append import FencedWriter, Offer, Refusal, Stored, Unanswered
from penstock.events.commit import Position, digest
from penstock.events.commit import follow as follow_commit
from penstock.events.log import Entry


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How likely each fault is, from 0 to 1, at each offer."""

    lost_offer: float = 0.0
    lost_answer: float = 0.0
    late_offer: float = 0.0
    """It arrives only after some other request, or never; its answer is lost."""
    repeated_offer: float = 0.0
    delay: float = 0.0
    """Everyone else who can run does so first."""


NO_FAULTS = Faults()


class _Crash(msgspec.Struct, frozen=True):
    when: Literal["before", "after"]
    error: BaseException
    at_append: int


class MemoryStorage:
    """What all handles on one log share: the commits, and offers that are still on the way."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.late: list[Offer] = []
        self._commits: list[Stored] = []
        self._bytes = 0
        self._epoch = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def take(self, offer: Offer) -> Refusal | None:
        if offer.place != len(self._commits) + 1:
            return Refusal(why="does not follow", description="wrong last sequence")
        if offer.epoch and offer.epoch != self._epoch:
            return Refusal(why="does not follow", description="wrong epoch")
        size = self._bytes + len(offer.body)
        if self.capacity_bytes is not None and size > self.capacity_bytes:
            return Refusal(why="full", description="maximum bytes exceeded")
        self._bytes = size
        self._commits.append(
            Stored(sequence=offer.place, body=offer.body, hash=offer.hash, election=not offer.epoch)
        )
        if not offer.epoch:
            self._epoch = offer.place
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()
        return None

    def at(self, sequence: int) -> Stored | None:
        if 1 <= sequence <= len(self._commits):
            return self._commits[sequence - 1]
        return None

    def last(self) -> int:
        return len(self._commits)

    async def changed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def damage(self, sequence: int, body: bytes) -> None:
        """Change a stored commit behind everyone's back."""
        stored = self._commits[sequence - 1]
        self._commits[sequence - 1] = msgspec.structs.replace(stored, body=body)

    def cut_off(self, after: int) -> None:
        """Forget what comes after a sequence, as a damaged file makes a server do."""
        del self._commits[after:]
        self._epoch = max((s.sequence for s in self._commits if s.election), default=0)


class MemoryLog:
    """Implements `Log` and, as the line to what is stored, `Storage`."""

    def __init__(
        self, storage: MemoryStorage | None = None, *, faults: Faults = NO_FAULTS, seed: int = 0
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.appends = 0
        """Offers made through this handle so far, elections included."""
        self._faults = faults
        self._random = random.Random(seed)
        self._faulty = faults != NO_FAULTS
        self._crash: _Crash | None = None

    def reopen(self, *, faults: Faults = NO_FAULTS, seed: int = 0) -> "MemoryLog":
        return MemoryLog(self.storage, faults=faults, seed=seed)

    def crash(
        self, when: Literal["before", "after"], error: BaseException, *, appends: int = 1
    ) -> None:
        """Raise `error` at the `appends`-th offer from now, before or after it is stored."""
        self._crash = _Crash(when, error, self.appends + appends)

    async def read(self, sequence: int) -> bytes:
        stored = self.storage.at(sequence)
        if stored is None:
            raise NotFound(f"The log has no commit at sequence {sequence}.", sequence=sequence)
        if digest(stored.body) != stored.hash:
            raise Corrupt(
                f"Commit at sequence {sequence} was changed after it was written.",
                sequence=sequence,
            )
        return stored.body

    async def follow(self, after: Position) -> AsyncIterator[Entry]:
        position = after
        while True:
            self.verify(position)
            stored = self.storage.at(position.sequence + 1)
            if stored is None:
                await self.storage.changed()
                continue
            commit, position = follow_commit(position, stored.sequence, stored.body, stored.hash)
            yield Entry(commit, position, len(stored.body))

    async def elect(self, node: str, url: str, after: Position, now: int) -> FencedWriter:
        self.verify(after)
        return await append.elect(self, node, url, after, now)

    def verify(self, position: Position) -> None:
        if position.sequence == 0:
            return
        stored = self.storage.at(position.sequence)
        if stored is None:
            raise Corrupt(
                f"The log ends at sequence {self.storage.last()}, but sequence "
                f"{position.sequence} was there before: it was cut off.",
                sequence=position.sequence,
            )
        if stored.hash != position.hash:
            raise Corrupt(
                f"The log holds another commit at sequence {position.sequence} than the one that "
                "was read there before.",
                sequence=position.sequence,
            )

    async def offer(self, offer: Offer) -> Refusal | None:
        self.appends += 1
        crash = self._crash if self._crash and self._crash.at_append == self.appends else None
        if crash is not None:
            self._crash = None
            if crash.when == "before":
                raise crash.error
        answer = (
            await self._offer_over_faulty_line(offer) if self._faulty else self.storage.take(offer)
        )
        if crash is not None:
            raise crash.error
        return answer

    async def look(self, sequence: int) -> Stored | None:
        if self._faulty:
            await self._disturb()
        return self.storage.at(sequence)

    async def end(self) -> int:
        return self.storage.last()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def expect(self, sequence: int) -> None:
        if self.storage.last() < sequence:
            raise Corrupt(
                f"The log ends at sequence {self.storage.last()}, but sequence {sequence} was "
                "there before: it was cut off.",
                sequence=sequence,
            )

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    async def _disturb(self) -> None:
        if self._happens(self._faults.delay):
            for _ in range(self._random.randint(1, 4)):
                await asyncio.sleep(0)
        for offer in [late for late in self.storage.late if self._random.random() < 0.5]:
            self.storage.late.remove(offer)
            self.storage.take(offer)

    async def _offer_over_faulty_line(self, offer: Offer) -> Refusal | None:
        await self._disturb()
        if self._happens(self._faults.lost_offer):
            raise Unanswered
        if self._happens(self._faults.late_offer):
            self.storage.late.append(offer)
            raise Unanswered
        answer = self.storage.take(offer)
        if self._happens(self._faults.repeated_offer):
            # The second copy is refused; it may be its answer that comes back.
            second = self.storage.take(offer)
            answer = self._random.choice((answer, second))
        if self._happens(self._faults.delay):
            await self._disturb()
        if self._happens(self._faults.lost_answer):
            raise Unanswered
        return answer
