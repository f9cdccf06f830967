"""A progress bar with rate and time left, on stderr: stdout belongs to results.

Without a terminal it is a line every few seconds.
"""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cli import durations, show

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_EVERY_SECONDS = 5.0


class ProgressBar:
    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._began = time.monotonic()
        self._last_line = self._began
        self._last_done = -1
        self._bar: Progress | None = None
        self._row: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeRemainingColumn as TimeLeft

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=32),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeLeft(),
                TextColumn("{task.fields[note]}"),
                console=show.console(stderr=True),
            )
            self._bar.start()
            self._row = self._bar.add_task(self._what, total=self._total, rate="", note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._last_done >= 0 and error is None:
            self._line(self._last_done, "")

    def update(self, done: int, note: str = "", per_second: float | None = None) -> None:
        now = time.monotonic()
        if per_second is None:
            per_second = done / max(now - self._began, 0.001)
        if self._bar is not None and self._row is not None:
            rate = f"{show.count(round(per_second))}/s"
            self._bar.update(self._row, completed=done, rate=rate, note=note)
        elif now - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = now
            self._line(done, note)
        self._last_done = done

    def _line(self, done: int, note: str) -> None:
        seconds = time.monotonic() - self._began
        of = "" if self._total is None else f"/{show.count(self._total)}"
        rate = show.count(round(done / max(seconds, 0.001)))
        text = f"{self._what}: {show.count(done)}{of} in {durations.show(seconds)} ({rate}/s)"
        show.note(f"{text} {note}".rstrip())
