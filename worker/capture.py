"""What a handler prints, kept for its result. A task that prints nothing pays nothing."""

import io
from collections.abc import Iterable

HEAD_CHARACTERS = 16 * 1024
TAIL_CHARACTERS = 16 * 1024


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer`, for those who print bytes."""

    def __init__(self, text: "Capture") -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        self._text.write(content.decode(errors="replace"))
        return len(content)


class Capture(io.TextIOBase):
    """Takes the place of `sys.stdout` or `sys.stderr`. Keeps the beginning and the end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.parts: list[str] = []
        self._size = 0
        self._cut = False
        self.buffer = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def fileno(self) -> int:
        """Where programs that a handler starts write to: the worker's own log."""
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.parts.append(text)
        self._size += len(text)
        if self._size > 4 * (HEAD_CHARACTERS + TAIL_CHARACTERS):
            self._shorten()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def _shorten(self) -> None:
        text = "".join(self.parts)
        if len(text) > HEAD_CHARACTERS + TAIL_CHARACTERS:
            self._cut = True
            self.parts = [text[:HEAD_CHARACTERS], text[-TAIL_CHARACTERS:]]
        self._size = sum(map(len, self.parts))

    def take(self) -> tuple[str, bool]:
        """What was printed since the last time, and whether something is missing from it."""
        self._shorten()
        cut = self._cut
        text = "\n[...]\n".join(self.parts) if cut else "".join(self.parts)
        self.parts, self._size, self._cut = [], 0, False
        return text, cut
