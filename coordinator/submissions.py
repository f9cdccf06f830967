"""From what users send to commands: validated, encoded, and cut to the size of a commit."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.coordinator.commands import Chunk
from penstock.errors import Invalid, TooLarge
from penstock.events import RetryPolicy, SpecRun, TaskArray, TaskSpec
from penstock.events.spec import validate
from penstock.events.tasks import NO_JSON

CHUNK_BYTES = 256 * 1024
"""Two of these fit into a commit, together with what follows from them."""
MAX_SPEC_BYTES = 128 * 1024

_encode = msgspec.json.Encoder().encode


def list_chunks(specs: Iterable[TaskSpec], offset: int = 0) -> Iterator[Chunk]:
    """Cut a list of specs into commands."""
    parts: list[bytes] = []
    runs = _Runs()
    keys: dict[str, int] = {}
    size = 0
    for place, spec in enumerate(specs, offset):
        encoded = _encoded(spec, "task", place)
        if parts and size + len(encoded) > CHUNK_BYTES:
            yield _list_chunk(parts, runs.end(), keys, place - len(parts))
            parts, runs, keys, size = [], _Runs(), {}, 0
        if spec.key is not None:
            if spec.key in keys:
                raise Invalid(f"task {place}: its key is used twice in this list.", field="key")
            keys[spec.key] = len(parts)
        runs.add(spec)
        parts.append(encoded)
        size += len(encoded) + 1
    if parts:
        yield _list_chunk(parts, runs.end(), keys, place + 1 - len(parts))


def _encoded(spec: TaskSpec, what: str, place: int | None = None) -> bytes:
    """The JSON of a valid spec."""
    try:
        validate(spec)
        encoded = _encode(spec)
        if len(encoded) > MAX_SPEC_BYTES:
            raise TooLarge(
                f"A spec may have {MAX_SPEC_BYTES // 1024} KiB. Put large inputs into files.",
                limit_bytes=MAX_SPEC_BYTES,
            )
    except Invalid as error:
        where = what if place is None else f"{what} {place}"
        raise type(error)(f"{where}: {error.message}", **error.facts) from None
    return encoded


class _Runs:
    """Finds runs of tasks that share what the coordinator needs to know."""

    def __init__(self) -> None:
        self._runs: list[SpecRun] = []
        self._count = 0
        self._terms: tuple[int, float | None, RetryPolicy | None] = (0, None, None)

    def add(self, spec: TaskSpec) -> None:
        terms = (spec.priority_value, spec.timeout_seconds, spec.retry)
        if terms != self._terms:
            self.end()
            self._terms = terms
        self._count += 1

    def end(self) -> list[SpecRun]:
        if self._count:
            self._runs.append(SpecRun(self._count, *self._terms))
            self._count = 0
        return self._runs


def _list_chunk(
    parts: list[bytes], runs: list[SpecRun], keys: dict[str, int], offset: int
) -> Chunk:
    return Chunk(count=len(parts), runs=runs, specs=_list(parts), task_keys=keys, offset=offset)


def array_chunks(array: TaskArray) -> Iterator[Chunk]:
    """Cut an array into commands: one, unless it has a long table of parameters."""
    template = array.template
    encoded = _encoded(template, "template")
    if template.key is not None:
        raise Invalid(
            "template: 'key' would be the same for every task. Use the header Idempotency-Key "
            "for the whole array.",
            field="key",
        )
    if (array.count is None) == (array.parameters is None):
        raise Invalid("array: set exactly one of 'count' and 'parameters'.", field="count")
    last = array.first_index + array.step * (array.size - 1)
    if abs(last) >= 2**53:
        raise Invalid("array: indexes must stay below 2^53.", field="step")
    if array.count is not None:
        yield _array_chunk(array, encoded, 0, array.count, NO_JSON)
        return
    rows = array.parameters or []
    if not rows:
        raise Invalid("array: 'parameters' has no rows.", field="parameters")
    start = 0
    parts: list[bytes] = []
    size = 0
    for place, row in enumerate(rows):
        _check_row(row, rows[0], place)
        part = _encode(row)
        if len(part) > MAX_SPEC_BYTES:
            raise TooLarge(
                f"row {place}: a row may have {MAX_SPEC_BYTES // 1024} KiB.",
                limit_bytes=MAX_SPEC_BYTES,
            )
        if parts and size + len(part) > CHUNK_BYTES:
            yield _array_chunk(array, encoded, start, len(parts), _list(parts))
            start, parts, size = place, [], 0
        parts.append(part)
        size += len(part) + 1
    yield _array_chunk(array, encoded, start, len(parts), _list(parts))


def _check_row(row: dict[str, Any], first: dict[str, Any], place: int) -> None:
    if row.keys() != first.keys():
        raise Invalid(f"array: row {place} has other columns than row 0.", field="parameters")
    if "index" in row:
        raise Invalid("array: a column cannot be called 'index'.", field="parameters")


def _list(parts: list[bytes]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def _array_chunk(
    array: TaskArray, template: bytes, start: int, count: int, parameters: msgspec.Raw
) -> Chunk:
    spec = array.template
    return Chunk(
        count=count,
        runs=[SpecRun(count, spec.priority_value, spec.timeout_seconds, spec.retry)],
        template=msgspec.Raw(template),
        parameters=parameters,
        first_index=array.first_index + start * array.step,
        step=array.step,
        offset=start,
    )
