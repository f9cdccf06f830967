"""The specs of queued tasks, which stay in the log until they are needed.

A bounded cache keeps those that were submitted or used last; the log is the overflow.
"""

from collections import OrderedDict

import msgspec

from penstock.errors import Corrupt
from penstock.events import Log, TasksSubmitted, decode
from penstock.events.manager_protocol import TaskBatch
from penstock.events.tasks import NO_JSON

CACHE_BYTES = 32 * 1024 * 1024

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
            size=500 + 2 * len(bytes(event.specs)) + 2 * len(bytes(event.parameters)),
        )
        self._cache[sequence, index] = specs
        self._size += specs.size
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
            rows = specs.parameters[start : start + count]
            return [
                TaskBatch(
                    task_group_id=event.task_group_id,
                    first=first,
                    count=count,
                    attempt=attempt,
                    spec=bytes(event.template),
                    array=True,
                    first_index=event.first_index + start * event.step,
                    step=event.step,
                    parameters=b"[" + b",".join(map(bytes, rows)) + b"]" if rows else b"",
                )
            ]
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
