"""The tasks that a manager holds and has not given to a worker.

They come in batches of one spec and leave in smaller ones. A `Source` is a batch as it came; the
buffer holds spans of sources and cuts them only when a worker takes a part.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import TypeAlias

import msgspec

from penstock.events.event import TaskId
from penstock.events.manager_protocol import TaskBatch

Key: TypeAlias = int
"""A task and its attempt, as one number: consecutive tasks of a batch are a `range` of keys."""

_ATTEMPT_BITS = 16


def key_of(task_id: TaskId, attempt: int) -> Key:
    return task_id << _ATTEMPT_BITS | attempt


def task_and_attempt(key: Key) -> tuple[TaskId, int]:
    return key >> _ATTEMPT_BITS, key & ((1 << _ATTEMPT_BITS) - 1)


class _Limits(msgspec.Struct):
    timeout_seconds: float | None = None


_limits = msgspec.json.Decoder(_Limits)
_rows = msgspec.json.Decoder(list[msgspec.Raw])


class Source:
    """A batch as the coordinator sent it, from which any part can be cut."""

    __slots__ = ("_rows", "_timeout", "batch")

    def __init__(self, batch: TaskBatch) -> None:
        self.batch = batch
        self._rows: list[msgspec.Raw] | None = None
        self._timeout: _Limits | None = None

    def keys(self, start: int, end: int) -> range:
        first = key_of(self.batch.first, self.batch.attempt)
        step = 1 << _ATTEMPT_BITS
        return range(first + start * step, first + end * step, step)

    def offset(self, key: Key) -> int:
        return (key >> _ATTEMPT_BITS) - self.batch.first

    def cut(self, start: int, end: int) -> TaskBatch:
        batch = self.batch
        if start == 0 and end == batch.count:
            return batch
        parameters = b""
        if batch.parameters:
            if self._rows is None:
                self._rows = _rows.decode(batch.parameters)
            parameters = msgspec.json.encode(self._rows[start:end])
        return TaskBatch(
            task_group_id=batch.task_group_id,
            first=batch.first + start,
            count=end - start,
            attempt=batch.attempt,
            spec=batch.spec,
            array=batch.array,
            first_index=batch.first_index + start * batch.step,
            step=batch.step,
            parameters=parameters,
        )

    @property
    def timeout_seconds(self) -> float | None:
        if self._timeout is None:
            try:
                self._timeout = _limits.decode(self.batch.spec)
            except (msgspec.DecodeError, RecursionError):
                # The worker will say what is wrong with the spec.
                self._timeout = _Limits()
        return self._timeout.timeout_seconds


class Span(msgspec.Struct, frozen=True):
    """Tasks `start` to `end` of a source."""

    source: Source
    start: int
    end: int

    @property
    def keys(self) -> range:
        return self.source.keys(self.start, self.end)

    @property
    def batch(self) -> TaskBatch:
        return self.source.cut(self.start, self.end)


class Buffer:
    """First come, first served; what comes back from a worker goes first."""

    def __init__(self) -> None:
        self._spans: deque[Span] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def keys(self) -> Iterable[Key]:
        for span in self._spans:
            yield from span.keys

    def put(self, span: Span) -> None:
        self._spans.append(span)
        self._count += span.end - span.start

    def put_back(self, keys: Iterable[tuple[Key, Source]]) -> None:
        """Tasks that a worker had, in their order, become the first again."""
        spans: list[Span] = []
        for key, source in keys:
            at = source.offset(key)
            if spans and spans[-1].source is source and spans[-1].end == at:
                spans[-1] = Span(source, spans[-1].start, at + 1)
            else:
                spans.append(Span(source, at, at + 1))
        self._spans.extendleft(reversed(spans))
        self._count += sum(span.end - span.start for span in spans)

    def take(self, count: int) -> list[Span]:
        """The first tasks, at most `count`."""
        taken: list[Span] = []
        spans = self._spans
        while count > 0 and spans:
            span = spans.popleft()
            size = span.end - span.start
            if size > count:
                middle = span.start + count
                spans.appendleft(Span(span.source, middle, span.end))
                span = Span(span.source, span.start, middle)
                size = count
            taken.append(span)
            count -= size
            self._count -= size
        return taken

    def take_last(self, count: int) -> list[Key]:
        """Forget the last tasks, at most `count`; return them in their order."""
        taken: list[Key] = []
        spans = self._spans
        while count > 0 and spans:
            span = spans.pop()
            middle = max(span.start, span.end - count)
            if middle > span.start:
                spans.append(Span(span.source, span.start, middle))
            keys = span.source.keys(middle, span.end)
            taken += reversed(keys)
            count -= len(keys)
        self._count -= len(taken)
        taken.reverse()
        return taken

    def remove(self, keys: Collection[Key]) -> list[Key]:
        """Forget these tasks; return those that were here."""
        removed: list[Key] = []
        kept: deque[Span] = deque()
        for span in self._spans:
            start = span.start
            for key in span.keys:
                if key in keys:
                    at = span.source.offset(key)
                    removed.append(key)
                    if at > start:
                        kept.append(Span(span.source, start, at))
                    start = at + 1
            if start == span.start:
                kept.append(span)
            elif start < span.end:
                kept.append(Span(span.source, start, span.end))
        self._spans = kept
        self._count -= len(removed)
        return removed

    def clear(self) -> list[Key]:
        keys = list(self.keys())
        self._spans.clear()
        self._count = 0
        return keys
