"""Whatever happens in whatever order: each task is in one place, and none is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.manager.scripted import batch

from penstock.events.exits import Signal
from penstock.events.manager_protocol import SyncReply
from penstock.events.tasks import Attempt, AttemptResult
from penstock.events.worker_journal import Mark
from penstock.events.worker_protocol import Hello, Results
from penstock.manager.buffer import Key, key_of, task_and_attempt
from penstock.manager.core import Core

WORKERS = 3


class CoreMachine(RuleBasedStateMachine):
    """The worker's side is played here: each worker holds what it was given, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core(WORKERS)
        self.pid = 100
        self.now = 0
        self.at_workers: dict[int, list[Key]] = {}
        self.pushed: set[Key] = set()
        self.settled: list[Key] = []
        self.next_task = 1
        for number in range(1, WORKERS + 1):
            self.hire(number)

    def hire(self, number: int) -> None:
        self.pid += 1
        self.core.on_hello(Hello(worker=number, pid=self.pid))
        self.at_workers[number] = []

    @rule(count=st.integers(1, 30), attempt=st.integers(1, 2))
    def push(self, count: int, attempt: int) -> None:
        one = batch(self.next_task, count, attempt)
        self.core.on_tasks([one])
        self.pushed |= {key_of(self.next_task + i, attempt) for i in range(count)}
        self.next_task += count

    @rule()
    def feed(self) -> None:
        for worker, batches in self.core.feed():
            for one in batches:
                self.at_workers[worker.number] += [
                    key_of(one.first + i, one.attempt) for i in range(one.count)
                ]

    @rule(data=st.data(), number=st.integers(1, WORKERS), seconds=st.sampled_from([0, 0.01, 9]))
    def results(self, data: st.DataObject, number: int, seconds: float) -> None:
        held = self.at_workers[number]
        done = data.draw(st.integers(0, len(held)))
        returned = data.draw(st.integers(0, len(held) - done))
        results = [_result(key, seconds) for key in held[:done]]
        back = [Attempt(*task_and_attempt(key)) for key in held[len(held) - returned :]]
        self.at_workers[number] = held[done : len(held) - returned]
        message = Results(number=1, results=results, returned=back[::-1])
        assert len(self.core.on_results(self.core.workers[number], message)) >= done

    @rule(data=st.data(), number=st.integers(1, WORKERS))
    def death(self, data: st.DataObject, number: int) -> None:
        held = self.at_workers[number]
        done = data.draw(st.integers(0, len(held)))
        mark = None
        if done < len(held) and data.draw(st.booleans()):
            mark = Mark(*task_and_attempt(held[done]), 5, 5)
        results = [_result(key, 0) for key in held[:done]]
        self.core.on_death(number, Signal(9), mark, results, 10)
        self.hire(number)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        wanted = data.draw(st.lists(st.sampled_from(sorted(self.pushed)))) if self.pushed else []
        tasks = [Attempt(*task_and_attempt(key)) for key in wanted]
        self.core.on_cancel(tasks, "", 30.0, 0.0)

    @rule(seconds=st.integers(0, 5))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        self.core.on_time(self.now)

    @rule()
    def synchronise_and_change_nothing(self) -> None:
        self.core.on_sync_reply(SyncReply(epoch=1), 0.0)

    @precondition(lambda self: self.core.outbox)
    @rule()
    def answer(self) -> None:
        contents = self.core.outbox.next()
        assert contents is not None
        self.core.on_answer()
        self.settled += [key_of(result.task_id, result.attempt) for result in contents.finished]
        self.settled += [key_of(task.task_id, task.attempt) for task in contents.returned]

    @invariant()
    def each_task_is_in_one_place(self) -> None:
        assert len(self.settled) == len(set(self.settled))
        held = {key_of(held.task_id, held.attempt) for held in self.core.held()}
        assert held | set(self.settled) == self.pushed
        assert held.isdisjoint(self.settled)
        for number, keys in self.at_workers.items():
            assert list(self.core.workers[number].held) == keys

    def teardown(self) -> None:
        """Let everything come to its end: nothing may be left over."""
        for _ in range(10_000):
            if self.pushed == set(self.settled):
                break
            self.feed()
            for number, held in self.at_workers.items():
                message = Results(number=1, results=[_result(key, 0) for key in held])
                self.core.on_results(self.core.workers[number], message)
                self.at_workers[number] = []
            if self.core.outbox:
                self.answer()
        assert self.pushed == set(self.settled)
        assert len(self.settled) == len(set(self.settled))


def _result(key: Key, seconds: float) -> AttemptResult:
    task_id, attempt = task_and_attempt(key)
    return AttemptResult(
        task_id=task_id, attempt=attempt, started_at=1, ended_at=1 + int(seconds * 1e6)
    )


TestCore = CoreMachine.TestCase
TestCore.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
