"""The log: the one truth, behind one small interface.

A log is read by anyone and written by one. A writer is made by an election: the commit that holds
`LeaderElected` must follow exactly the last commit that the candidate has read, and its sequence
is the writer's epoch. Every later append names the sequence that it follows and that epoch; the
log refuses it otherwise. A writer that was replaced can therefore never append again.

An append whose answer got lost is ambiguous. It is never simply repeated: the writer reads what
stands at the place it aimed at. Its own commit there means success, an election means that it was
deposed, nothing means that the same commit may be sent again to the same place (see `append`).
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from penstock.events.commit import Commit, Position


class Entry(msgspec.Struct, frozen=True):
    """A commit as read from the log, proven to follow the one before it."""

    commit: Commit
    position: Position
    size: int
    """Bytes of the encoded commit."""


class LogWriter(Protocol):
    """The right to append, from one election until the next."""

    @property
    def epoch(self) -> int: ...

    @property
    def position(self) -> Position:
        """The end of the log, as this writer left it."""
        ...

    async def append(self, body: bytes) -> Position:
        """Append one encoded commit that follows `position`; return where it is once durable.

        Raises `Deposed` when another writer was elected, `LogFull` when the storage refuses,
        `Corrupt` when a foreign commit stands where ours should be. Waits for as long as the log
        cannot be reached. Only one append may be under way.
        """
        ...


class Log(Protocol):
    async def read(self, sequence: int) -> bytes:
        """The encoded commit at a sequence. Raises `NotFound`."""
        ...

    async def end(self) -> int:
        """The last sequence, 0 when the log is empty."""
        ...

    def follow(self, after: Position) -> AsyncIterator[Entry]:
        """Every commit after a position, in order, for ever, as it is appended.

        Raises `Corrupt` when a commit is missing or does not fit, and when the log is shorter than
        `after` or does not hold at `after` what the reader saw there.
        """
        ...

    async def elect(self, node: str, url: str, after: Position, now: int) -> LogWriter:
        """Become the writer. `after` must be the end of the log: otherwise raises `Conflict`, and
        the candidate has to read on."""
        ...
