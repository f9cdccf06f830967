"""Results on disk, from before a worker may forget them until the coordinator has them.

Plain writes: they survive the death of the manager, which is all they are for; when the machine
dies, its workers die too, and the coordinator runs the tasks again. Results leave in the order in
which they came, so a file can go when as many results were answered as had come by its end.
"""

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
        try:
            os.write(self._descriptor, _LENGTH.pack(len(message)) + message)
        except OSError as error:
            # Better to go on without: only a death of the manager now would cost a second run.
            logger.error("results_not_kept_on_disk", error=str(error))
            return
        self._size += _LENGTH.size + len(message)
        if self._size >= FILE_BYTES:
            self._closed.append((self._path, self._added))
            os.close(self._descriptor)
            self._open_next()

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

    def _open_next(self) -> None:
        self._number += 1
        self._path = self._directory / f"{self._number:012}.results"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = 0


def _read(path: Path) -> list[AttemptResult]:
    content = path.read_bytes()
    results: list[AttemptResult] = []
    at = 0
    while at + _LENGTH.size <= len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if at + length > len(content):
            # The manager died while it wrote this; the worker still has it.
            break
        results += _decoder.decode(content[at : at + length]).results
        at += length
    return results
