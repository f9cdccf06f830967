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


class Files:
    """Gives each command files for its stdout and stderr. Used ones serve again when nobody can
    write to them any more: making them is a good part of the cost of a short command."""

    def __init__(self) -> None:
        self._spare: tuple[int, int] | None = None

    def take(self) -> tuple[int, int]:
        files, self._spare = self._spare, None
        return files or (_create("stdout"), _create("stderr"))

    def give_back(self, files: tuple[int, int], *, unused: bool) -> None:
        """`unused` means that no process has them open."""
        if unused:
            for descriptor in files:
                if os.lseek(descriptor, 0, os.SEEK_END):
                    os.ftruncate(descriptor, 0)
            self._spare = files
        else:
            os.close(files[0])
            os.close(files[1])


def _create(name: str) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    # A command may open its own /dev/stdout anew: with a position of its own it would overwrite.
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    return descriptor


def trim(descriptor: int) -> None:
    """Give back the memory between the beginning and the last part of the file."""
    end = (os.fstat(descriptor).st_size - KEPT_TAIL_BYTES) // _PAGE * _PAGE
    if end > HEAD_BYTES:
        length = end - HEAD_BYTES
        if _libc.fallocate(descriptor, _KEEP_SIZE_AND_PUNCH_HOLE, HEAD_BYTES, length):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def read(stdout: int, stderr: int) -> tuple[str, str, bool] | None:
    """Both streams as text within the inline limit, and whether something is missing; None when
    there is nothing."""
    sizes = os.lseek(stdout, 0, os.SEEK_END), os.lseek(stderr, 0, os.SEEK_END)
    if sizes == (0, 0):
        return None
    limits = _limits(*sizes)
    parts = [
        _read(descriptor, size, limit)
        for descriptor, size, limit in zip((stdout, stderr), sizes, limits, strict=True)
    ]
    cut = sizes[0] > limits[0] or sizes[1] > limits[1]
    return parts[0], parts[1], cut


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
