"""What a command prints, kept in memory by the kernel, read when the command has ended.

Each stream is an anonymous file (memfd) of its own: no pipe to empty while the command runs, and
no limit that would block or kill it. The attendant gives back the middle of a file that grows too
long, so that memory stays bounded.
"""

import ctypes
import fcntl
import os

from penstock.events.spec import MAX_INLINE_OUTPUT

HEAD_BYTES = 16 * 1024
KEPT_TAIL_BYTES = 256 * 1024
_PAGE = 4096
_KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02
_CUT = "\n[...]\n"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


class OutputFiles:
    """Where one command at a time writes its stdout and stderr."""

    def __init__(self) -> None:
        self.stdout = _create("stdout")
        self.stderr = _create("stderr")
        self.file_actions = (
            (os.POSIX_SPAWN_DUP2, self.stdout, 1),
            (os.POSIX_SPAWN_DUP2, self.stderr, 2),
        )

    def read(self) -> tuple[str, str, bool] | None:
        """Both as text within the inline limit, and whether something is missing; None when the
        command wrote nothing."""
        sizes = os.lseek(self.stdout, 0, os.SEEK_END), os.lseek(self.stderr, 0, os.SEEK_END)
        if sizes == (0, 0):
            return None
        limits = _limits(*sizes)
        return (
            _read(self.stdout, sizes[0], limits[0]),
            _read(self.stderr, sizes[1], limits[1]),
            sizes[0] > limits[0] or sizes[1] > limits[1],
        )

    def trim(self) -> None:
        """Give back the memory between the beginning and the last part of long output."""
        _trim(self.stdout)
        _trim(self.stderr)

    def clear(self) -> None:
        os.ftruncate(self.stdout, 0)
        os.ftruncate(self.stderr, 0)

    def close(self) -> None:
        os.close(self.stdout)
        os.close(self.stderr)


def _create(name: str) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    # A command may open its own /dev/stdout anew: with a position of its own it would overwrite.
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    return descriptor


def _trim(descriptor: int) -> None:
    end = (os.fstat(descriptor).st_size - KEPT_TAIL_BYTES) // _PAGE * _PAGE
    if end > HEAD_BYTES:
        length = end - HEAD_BYTES
        if _libc.fallocate(descriptor, _KEEP_SIZE_AND_PUNCH_HOLE, HEAD_BYTES, length):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _limits(stdout: int, stderr: int) -> tuple[int, int]:
    """A stream that needs less than its half leaves the rest to the other."""
    half = MAX_INLINE_OUTPUT // 2
    if stdout <= half:
        return stdout, min(stderr, MAX_INLINE_OUTPUT - stdout)
    if stderr <= half:
        return min(stdout, MAX_INLINE_OUTPUT - stderr), stderr
    return half, half


def _read(descriptor: int, size: int, limit: int) -> str:
    if size <= limit:
        return _text(os.pread(descriptor, size, 0), limit)
    head = min(HEAD_BYTES, limit // 2)
    tail = limit - head
    return (
        _text(os.pread(descriptor, head, 0), head)
        + _CUT
        + _text(os.pread(descriptor, tail, size - tail), tail)
    )


def _text(content: bytes, limit: int) -> str:
    """Decoded; control characters, which JSON writes in six, are replaced when they abound."""
    text = content.decode(errors="replace")
    if len(text) * 8 > limit and not text.isprintable():
        unprintable = sum(map(text.count, _CONTROL))
        if unprintable * 8 > len(text):
            return text.translate(_REPLACED)
    return text


_CONTROL = [chr(code) for code in (*range(32), 127) if chr(code) not in "\t\n\r"]
_REPLACED = {ord(character): "�" for character in _CONTROL}
