"""The buffer: no task is lost, none is given twice, order is kept."""

from collections.abc import Iterable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.events.manager_protocol import TaskBatch
from penstock.manager.buffer import Buffer, Key, Source, Span, key_of, task_and_attempt


def _batch(first: int, count: int, attempt: int, rows: bool) -> TaskBatch:
    parameters = msgspec.json.encode([{"id": first + i} for i in range(count)]) if rows else b""
    return TaskBatch(
        task_group_id=1,
        first=first,
        count=count,
        attempt=attempt,
        spec=b"{}",
        array=True,
        first_index=first * 10,
        step=10,
        parameters=parameters,
    )


def _tasks(batch: TaskBatch) -> Iterable[tuple[Key, int, dict[str, int] | None]]:
    """Key, index and row of each task of a batch, as a worker understands it."""
    rows = msgspec.json.decode(batch.parameters) if batch.parameters else [None] * batch.count
    assert len(rows) == batch.count
    for i in range(batch.count):
        yield (
            key_of(batch.first + i, batch.attempt),
            batch.first_index + i * batch.step,
            rows[i],
        )


class BufferMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer()
        self.model: list[Key] = []
        self.with_workers: list[tuple[Key, Source]] = []
        self.next_task = 1

    @rule(count=st.integers(1, 20), attempt=st.integers(1, 3), rows=st.booleans())
    def push(self, count: int, attempt: int, rows: bool) -> None:
        source = Source(_batch(self.next_task, count, attempt, rows))
        self.buffer.put(Span(source, 0, count))
        self.model += [key_of(self.next_task + i, attempt) for i in range(count)]
        self.next_task += count

    @rule(count=st.integers(0, 30))
    def take(self, count: int) -> None:
        taken = self.buffer.take(count)
        keys = []
        for span in taken:
            for (key, index, row), expected in zip(_tasks(span.batch), span.keys, strict=True):
                task_id, _ = task_and_attempt(key)
                assert key == expected
                assert index == task_id * 10
                assert row is None or row == {"id": task_id}
                keys.append(key)
                self.with_workers.append((key, span.source))
        assert keys == self.model[:count]
        del self.model[:count]

    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.with_workers)))
        returned = self.with_workers[len(self.with_workers) - count :]
        del self.with_workers[len(self.with_workers) - count :]
        self.buffer.put_back(returned)
        self.model = [key for key, _ in returned] + self.model

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        wanted = set(data.draw(st.lists(st.sampled_from(self.model)))) if self.model else set()
        removed = self.buffer.remove(wanted | {key_of(10**9, 1)})
        assert sorted(removed) == sorted(wanted)
        self.model = [key for key in self.model if key not in wanted]

    @invariant()
    def nothing_is_lost(self) -> None:
        assert list(self.buffer.keys()) == self.model
        assert len(self.buffer) == len(self.model)


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.integers(1, 2**47), st.integers(1, 2**16 - 1))
def test_a_key_names_one_task_and_attempt(task_id: int, attempt: int) -> None:
    assert task_and_attempt(key_of(task_id, attempt)) == (task_id, attempt)
