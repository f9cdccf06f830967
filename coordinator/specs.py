"""The specs of queued tasks, which stay in the log until they are needed.

A bounded cache keeps those that were submitted or used last; the log is the overflow.
"""

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from penstock.errors import Corrupt
from penstock.events import Log, TasksSubmitted, decode
from penstock.events.manager_protocol import TaskBatch
from penstock.events.tasks import NO_JSON

CACHE_BYTES = 32 * 1024 * 1024
BATCH_BYTES = 256 * 1024

_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class _Specs(msgspec.Struct, frozen=True):
    event: TasksSubmitted
    listed: list[msgspec.Raw]
    parameters: list[msgspec.Raw]
    size: int


class Specs:
    def __init__(self, log: Log, cache_bytes: int = CACHE_BYTES) -> None:
        self._log = log
        self._limit = cache_bytes
        self._size = 0
        self._cache: OrderedDict[tuple[int, int], _Specs] = OrderedDict()

    def remember(self, event: TasksSubmitted, sequence: int, index: int) -> _Specs:
        """Keep the specs of an event that is `index` in the commit at `sequence`."""
        specs = _Specs(
            event=event,
            listed=_list_decoder.decode(event.specs) if event.specs is not NO_JSON else [],
            parameters=(
                _list_decoder.decode(event.parameters) if event.parameters is not NO_JSON else []
            ),
            # An entry costs more than its text: each part is an object of its own.
            size=500
            + len(bytes(event.template))
            + 2 * len(bytes(event.specs))
            + 2 * len(bytes(event.parameters)),
        )
        replaced = self._cache.pop((sequence, index), None)
        self._size += specs.size - (replaced.size if replaced is not None else 0)
        self._cache[sequence, index] = specs
        while self._size > self._limit and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            self._size -= dropped.size
        return specs

    async def batches(
        self, sequence: int, index: int, first: int, count: int, attempt: int
    ) -> list[TaskBatch]:
        """Tasks `first` to `first + count - 1`, ready to be pushed."""
        specs = await self._find(sequence, index)
        event = specs.event
        start = first - event.first
        if not specs.listed:
            return _array_batches(specs, start, count, attempt)
        group = event.task_group_id
        listed = specs.listed
        return [
            TaskBatch(
                task_group_id=group,
                first=first + place,
                attempt=attempt,
                spec=bytes(listed[start + place]),
            )
            for place in range(count)
        ]

    async def spec(self, sequence: int, index: int, task_id: int) -> bytes:
        """The JSON of one task's spec; for an array, its template."""
        specs = await self._find(sequence, index)
        if not specs.listed:
            return bytes(specs.event.template)
        return bytes(specs.listed[task_id - specs.event.first])

    async def _find(self, sequence: int, index: int) -> _Specs:
        known = self._cache.get((sequence, index))
        if known is not None:
            self._cache.move_to_end((sequence, index))
            return known
        commit = decode(await self._log.read(sequence), sequence)
        event = commit.events[index]
        if not isinstance(event, TasksSubmitted):
            raise Corrupt(
                f"Event {index} at sequence {sequence} holds no specs.", sequence=sequence
            )
        return self.remember(event, sequence, index)


def _array_batches(specs: _Specs, start: int, count: int, attempt: int) -> list[TaskBatch]:
    """One batch, unless its parameters are too many for a message."""
    event = specs.event
    return [
        TaskBatch(
            task_group_id=event.task_group_id,
            first=event.first + place,
            count=size,
            attempt=attempt,
            spec=bytes(event.template),
            array=True,
            first_index=event.first_index + place * event.step,
            step=event.step,
            parameters=rows,
        )
        for place, size, rows in _rows(specs.parameters, start, count)
    ]


def _rows(
    parameters: list[msgspec.Raw], start: int, count: int
) -> Iterator[tuple[int, int, bytes]]:
    """Runs of tasks as (place, count, JSON list of their parameters)."""
    if not parameters:
        yield start, count, b""
        return
    parts: list[bytes] = []
    size = 0
    for place in range(start, start + count):
        row = bytes(parameters[place])
        if parts and size + len(row) > BATCH_BYTES:
            yield place - len(parts), len(parts), b"[" + b",".join(parts) + b"]"
            parts, size = [], 0
        parts.append(row)
        size += len(row) + 1
    yield start + count - len(parts), len(parts), b"[" + b",".join(parts) + b"]"
