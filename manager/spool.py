"""Results on disk, from before a worker may forget them until the coordinator has them.

Plain writes: they survive the death of the manager, which is all they are for; when the machine
dies, its workers die too, and the coordinator runs the tasks again. Results leave in the order in
which they came, so a file can go when as many results were answered as had come by its end.
"""

import errno
import os
import struct
from collections import deque
from pathlib import Path

import msgspec
import structlog

from penstock.events.tasks import AttemptResult
from penstock.events.worker_protocol import Results

logger = structlog.get_logger("penstock.manager")

FILE_BYTES = 1024 * 1024
_LENGTH = struct.Struct("<I")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Results)


class Spool:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._added = 0
        self._answered = 0
        self._closed: deque[tuple[Path, int]] = deque()
        """Full files, and how many results had come by the end of each."""
        names = sorted(directory.glob("*.results"))
        self._number = int(names[-1].stem) if names else 0
        self._path = directory
        self._descriptor = -1
        self._size = 0
        self._leftovers = names
        self._open_next()

    def recover(self) -> list[AttemptResult]:
        """The results of an earlier manager, in order. They count as added again."""
        results: list[AttemptResult] = []
        for path in self._leftovers:
            results += _read(path)
            self._closed.append((path, len(results)))
        self._added = len(results)
        return results

    def add(self, results: list[AttemptResult]) -> None:
        if results:
            self.add_encoded(_encoder.encode(Results(results=results)), len(results))

    def add_encoded(self, message: bytes, count: int) -> None:
        """`message` is an encoded `Results`."""
        self._added += count
        record = _LENGTH.pack(len(message)) + message
        try:
            if os.write(self._descriptor, record) < len(record):
                os.ftruncate(self._descriptor, self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            # Better to go on without: only a death of the manager now would cost a second run.
            logger.error("results_not_kept_on_disk", error=str(error))
            return
        self._size += len(record)
        if self._size >= FILE_BYTES:
            self._begin_next()

    def answered(self, count: int) -> None:
        """The coordinator has the next `count` results."""
        self._answered += count
        while self._closed and self._closed[0][1] <= self._answered:
            self._closed.popleft()[0].unlink(missing_ok=True)
        if self._answered == self._added and self._size:
            os.ftruncate(self._descriptor, 0)
            self._size = 0

    def close(self) -> None:
        os.close(self._descriptor)
        if self._answered == self._added:
            self._path.unlink(missing_ok=True)

    def _begin_next(self) -> None:
        full, descriptor, end = self._path, self._descriptor, self._added
        try:
            self._open_next()
        except OSError as error:
            logger.error("next_results_file_not_made", error=str(error))
            return
        self._closed.append((full, end))
        os.close(descriptor)

    def _open_next(self) -> None:
        path = self._directory / f"{self._number + 1:012}.results"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._number += 1
        self._path = path
        self._size = 0


def _read(path: Path) -> list[AttemptResult]:
    """All that can be read. A result that cannot costs a second run; the manager must start."""
    results: list[AttemptResult] = []
    try:
        content = path.read_bytes()
    except OSError as error:
        logger.error("results_unreadable", path=str(path), error=str(error))
        return results
    at = 0
    while at + _LENGTH.size <= len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if not length or at + length > len(content):
            # The manager died while it wrote this; the worker still has it. Or the machine did.
            break
        try:
            results += _decoder.decode(content[at : at + length]).results
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            logger.error("results_unreadable", path=str(path), at=at, error=str(error))
        at += length
    return results
