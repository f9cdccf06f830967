"""What the attendant does when nothing runs, and when it looks after a task."""

import threading
import time
from typing import Any

import pytest
from tests.worker.harness import batch

from penstock.worker import attendant as attendant_module
from penstock.worker.attendant import Attendant
from penstock.worker.loop import now
from penstock.worker.queue import Queue, Task


class _Connection:
    def __init__(self, *, away: bool) -> None:
        self.turn = threading.Lock()
        self.woken = 0
        self._away = away

    def manager_is_away(self) -> bool:
        return self._away

    def wake(self) -> None:
        self.woken += 1


class _Loop:
    greeting_wanted = False


class _Endless:
    timeout_seconds: float | None = None


def _attendant(queue: Queue, connection: _Connection) -> Attendant:
    anything: Any = connection
    loop: Any = _Loop()
    return Attendant(queue, anything, loop, _NoCommand(), 1)  # type: ignore[arg-type]


class _NoCommand:
    def trim_outputs(self) -> None:
        """No command runs."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendant_module, "LEAVE_AFTER_SECONDS", -1.0)


@pytest.mark.usefixtures("at_once")
def test_an_idle_worker_without_a_manager_leaves() -> None:
    queue, connection = Queue(None), _Connection(away=True)
    _attendant(queue, connection).look()
    assert queue.leaving
    assert connection.woken == 1


@pytest.mark.usefixtures("at_once")
def test_an_idle_worker_with_a_manager_sleeps() -> None:
    queue, connection = Queue(None), _Connection(away=False)
    assert _attendant(queue, connection).look() is None
    assert not queue.leaving
    assert queue.attendant_asleep


@pytest.mark.usefixtures("at_once")
def test_a_busy_worker_stays() -> None:
    queue, connection = Queue(None), _Connection(away=True)
    program: Any = _Endless()
    queue.current = Task(program, 1, 1, None, None)
    queue.current_since = 2**62
    assert _attendant(queue, connection).look() is not None
    assert not queue.leaving


def test_a_clock_that_is_set_forward_ends_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, connection = Queue(None), _Connection(away=False)
    program: Any = _Endless()
    program.timeout_seconds = 60.0
    queue.put(program, batch(1))
    with queue.lock:
        queue.begin(now())
    later = time.time_ns() + 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    _attendant(queue, connection).look()
    assert queue.stop is None
