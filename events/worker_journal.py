"""What a worker leaves behind when it dies.

A worker shares a small file in memory with its manager. Before a task it marks the task there;
after it, it puts the result there, and it stays until the manager has it on its own disk. When the
worker is killed at any moment, the manager reads the file: results that were not sent yet are not
lost, the marked task is the one that was running, and all others had not begun.

The file holds the mark and two areas for results. One is written while the other waits for its
acknowledgement. Results that fit into neither are not kept here: the tasks run again if the worker
dies before it could send them.
"""

import mmap
import os
import struct
from typing import Self

import msgspec
import structlog

from penstock.events.event import TaskId, Timestamp
from penstock.events.tasks import AttemptResult

logger = structlog.get_logger("penstock.events")

AREA_BYTES = 512 * 1024

_MARK = struct.Struct("<QIQQ")
_COUNTS = struct.Struct("<II")
_COUNTS_AT = (32, 40)
_AREA_AT = (64, 64 + AREA_BYTES)
_SIZE = 64 + 2 * AREA_BYTES

_results = msgspec.msgpack.Decoder(list[AttemptResult])


def array_header(count: int) -> bytes:
    """The beginning of a msgpack array whose elements follow, already encoded."""
    return b"\xdd" + count.to_bytes(4, "big")


class Mark(msgspec.Struct, frozen=True):
    """The task that a worker had in hand."""

    task_id: TaskId
    attempt: int
    started_at: Timestamp
    began_microseconds: int
    """The same moment on the monotonic clock, which all processes of a machine share."""


class JournalWriter:
    """The worker's side."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            # A hole that the disk cannot fill would kill the worker with SIGBUS later on.
            os.posix_fallocate(descriptor, 0, _SIZE)
            self.memory = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self._area = 0
        self._used = 0
        self._count = 0
        self._waits_for = 0

    def mark(
        self, task_id: TaskId, attempt: int, started_at: Timestamp, began_microseconds: int
    ) -> None:
        _MARK.pack_into(self.memory, 0, task_id, attempt, started_at, began_microseconds)

    def clear_mark(self) -> None:
        _MARK.pack_into(self.memory, 0, 0, 0, 0, 0)

    def add(self, encoded: bytes) -> None:
        used = self._used
        end = used + len(encoded)
        if end > AREA_BYTES:
            return
        at = _AREA_AT[self._area]
        self.memory[at + used : at + end] = encoded
        self._used = end
        self._count += 1
        # The counts come last: what they cover is whole, whenever the worker dies.
        _COUNTS.pack_into(self.memory, _COUNTS_AT[self._area], end, self._count)

    def sent(self, number: int, acknowledged: int) -> None:
        """All results up to batch `number` were sent, and those up to `acknowledged` arrived."""
        if acknowledged < self._waits_for:
            return
        self._waits_for = number
        self._area = 1 - self._area
        self._used = self._count = 0
        _COUNTS.pack_into(self.memory, _COUNTS_AT[self._area], 0, 0)


class JournalReader:
    """The manager's side: reads what a living worker writes and what a dead one left."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def read(cls, path: str) -> Self | None:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        return cls(content) if len(content) == _SIZE else None

    @property
    def mark(self) -> Mark | None:
        mark = Mark(*_MARK.unpack_from(self._content, 0))
        return mark if mark.attempt else None

    @property
    def results(self) -> list[AttemptResult]:
        results: list[AttemptResult] = []
        for counts_at, area_at in zip(_COUNTS_AT, _AREA_AT, strict=True):
            used, count = _COUNTS.unpack_from(self._content, counts_at)
            area = array_header(count) + self._content[area_at : area_at + used]
            try:
                results += _results.decode(area)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                # What a machine leaves behind that lost its power need not be whole.
                logger.error("journal_unreadable", error=str(error))
        return results


def read_mark(path: str) -> Mark | None:
    """The task that a living worker has in hand."""
    try:
        with open(path, "rb") as file:
            content = file.read(_MARK.size)
    except FileNotFoundError:
        return None
    mark = Mark(*_MARK.unpack(content)) if len(content) == _MARK.size else None
    return mark if mark and mark.attempt else None
