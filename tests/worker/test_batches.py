"""How a worker keeps, gives back and repeats what it holds."""

import os
import signal
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.worker.harness import WorkerUnderTest, batch, wait_for_end

from penstock.events.tasks import Attempt
from penstock.events.worker_journal import JournalReader
from penstock.events.worker_protocol import EXIT_LEFT, Results, Stop
from penstock.worker.loop import Loop
from penstock.worker.queue import Queue, StopRequest, Task

SLEEP = {"handler": "sample_handlers:sleep", "arguments": [600]}


def test_many_short_tasks_come_back_in_few_messages(one_worker: WorkerUnderTest) -> None:
    one_worker.run(1, 2000, handler="sample_handlers:nothing")
    assert list(one_worker.results) == list(range(1, 2001))
    assert one_worker.number < 100


def test_tasks_that_wait_behind_a_long_one_are_given_back(one_worker: WorkerUnderTest) -> None:
    one_worker.send(batch(1, handler="sample_handlers:nothing"), batch(2, **SLEEP), batch(3, 2))
    one_worker.until(lambda: len(one_worker.returned) == 2)
    assert one_worker.returned == [Attempt(4, 1), Attempt(3, 1)]
    assert list(one_worker.results) == [1]
    assert list(one_worker.started) == [2]


def test_tasks_that_arrive_behind_a_long_one_are_given_back_too(
    one_worker: WorkerUnderTest,
) -> None:
    one_worker.begin(1, **SLEEP)
    one_worker.send(batch(2))
    one_worker.until(lambda: one_worker.returned)
    assert one_worker.returned == [Attempt(2, 1)]


def test_results_are_repeated_until_acknowledged(one_worker: WorkerUnderTest) -> None:
    one_worker.run(1, handler="sample_handlers:nothing")
    one_worker.send(acknowledged=one_worker.number)
    one_worker.run(2, handler="sample_handlers:nothing")
    one_worker.begin(3, **SLEEP)
    one_worker.results.clear()
    one_worker.restart_sockets()
    one_worker.until(lambda: one_worker.hellos and 2 in one_worker.results)
    assert one_worker.hellos[0].held == [Attempt(2, 1), Attempt(3, 1)]
    assert list(one_worker.results) == [2]
    one_worker.cancel(3)
    one_worker.until(lambda: 3 in one_worker.results)


def test_a_new_manager_is_told_again_what_has_started(one_worker: WorkerUnderTest) -> None:
    start = one_worker.begin(1, **SLEEP)
    one_worker.send(acknowledged=one_worker.number)
    one_worker.run_back(2)
    one_worker.started.clear()
    one_worker.restart_sockets()
    one_worker.until(lambda: one_worker.hellos and one_worker.started)
    assert one_worker.started == {1: start}


def test_an_idle_worker_says_hello_to_a_new_manager(one_worker: WorkerUnderTest) -> None:
    one_worker.restart_sockets()
    one_worker.until(lambda: one_worker.hellos)
    assert one_worker.hellos[0].held == []
    assert one_worker.run(1, handler="sample_handlers:nothing").outcome == "succeeded"


def test_the_journal_of_a_killed_worker_says_what_it_did(one_worker: WorkerUnderTest) -> None:
    one_worker.run(1, handler="sample_handlers:echo", arguments=["kept"])
    one_worker.begin(2, **SLEEP)
    os.kill(one_worker.process.pid, signal.SIGKILL)
    one_worker.process.wait()
    journal = JournalReader.read(one_worker.place.journal(1, one_worker.process.pid))
    assert journal is not None
    assert journal.mark is not None
    assert (journal.mark.task_id, journal.mark.attempt) == (2, 1)
    assert journal.mark.started_at == one_worker.started[2].started_at
    assert [(result.task_id, result.result["args"]) for result in journal.results] == [
        (1, ["kept"])
    ]


class _Silence:
    """A connection on which nothing arrives."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.sent: list[bytes] = []

    def report(self, message: bytes) -> None:
        self.sent.append(message)


class _Counted:
    """A program that counts how often it is run, and cancels the task after its own."""

    timeout_seconds = None

    def __init__(self, queue: Queue) -> None:
        self.ran: list[int] = []
        self._queue = queue

    def execute(self, task: Task) -> None:
        self.ran.append(task.task_id)
        self._queue.cancelled[task.task_id + 1, 1] = "too many"


def test_a_waiting_task_that_is_cancelled_does_not_begin() -> None:
    queue = Queue(None)
    program = _Counted(queue)
    queue.put(program, batch(1, 4))
    communication = _Silence()
    loop = Loop(queue, communication, None, 1, 1)  # type: ignore[arg-type]
    loop.run_waiting()
    loop.flush()
    assert program.ran == [1, 3]
    (message,) = communication.sent
    results = msgspec.msgpack.decode(message, type=Results).results
    outcomes = [result.outcome for result in results]
    assert outcomes == ["succeeded", "cancelled", "succeeded", "cancelled"]
    assert results[1].message == "Cancelled before it began: too many"


class _SetsTheClock:
    """A program during which someone sets the clock back by an hour."""

    timeout_seconds = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def execute(self, task: Task) -> None:
        real = time.time_ns() - 3600 * 10**9
        self._monkeypatch.setattr(time, "time_ns", lambda: real)


def test_a_task_during_which_the_clock_is_set_back_takes_no_negative_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = Queue(None)
    communication = _Silence()
    queue.put(_SetsTheClock(monkeypatch), batch(1, 2))
    loop = Loop(queue, communication, None, 1, 1)  # type: ignore[arg-type]
    before = time.time_ns() // 1000
    loop.run_waiting()
    loop.flush()
    results = msgspec.msgpack.decode(communication.sent[0], type=Results).results
    for result in results:
        assert before <= result.started_at <= result.ended_at


def test_the_wish_that_a_task_ends_does_not_hit_the_next() -> None:
    queue = Queue(None)
    queue.put(_Counted(queue), batch(1, 2))
    first = queue.begin(0)
    assert first is not None
    queue.stop = StopRequest(first, "cancelled", "Cancelled.", 30.0)
    assert queue.begin(1) is not first
    assert queue.stop is None


def test_results_are_settled_when_they_are_acknowledged() -> None:
    queue = Queue(None)
    queue.put(_Counted(queue), batch(1, 2))
    loop = Loop(queue, _Silence(), None, 1, 1)  # type: ignore[arg-type]
    assert queue.settled
    loop.run_waiting()
    assert not queue.settled
    loop.flush()
    assert not queue.settled
    queue.acknowledge(1)
    assert queue.settled


def test_a_stopped_worker_ends_its_task_and_says_so(one_worker: WorkerUnderTest) -> None:
    start = one_worker.begin(1, command=["sleep", "600"])
    one_worker.publish(Stop(graceful=False))
    one_worker.until(lambda: 1 in one_worker.results)
    result = one_worker.results[1]
    assert (result.outcome, result.cause) == ("failed", "executor_lost")
    assert one_worker.process.wait(10) == EXIT_LEFT
    wait_for_end(start.pid)


def test_a_worker_that_is_stopped_gracefully_finishes_its_task(
    one_worker: WorkerUnderTest, tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"
    one_worker.begin(1, command=["sh", "-c", f"until [ -e {go_on} ]; do sleep 0.05; done"])
    one_worker.publish(Stop(graceful=True))
    go_on.touch()
    one_worker.until(lambda: 1 in one_worker.results)
    assert one_worker.results[1].outcome == "succeeded"
    assert one_worker.process.wait(10) == EXIT_LEFT
