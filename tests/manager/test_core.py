"""The manager's decisions: given what happened, what does it want done?"""

from tests.manager.scripted import batch

from penstock.events.exits import ExitCode, Signal, Unknown
from penstock.events.manager_protocol import AssignGroup, Held, SyncReply
from penstock.events.tasks import Attempt, AttemptResult, TaskStart
from penstock.events.worker_journal import Mark
from penstock.events.worker_protocol import EXIT_LEFT, Hello, Results
from penstock.manager.core import (
    CANCEL_BACKSTOP_SECONDS,
    DROP_GRACE_SECONDS,
    EXCESS_SECONDS,
    TIMEOUT_BACKSTOP_SECONDS,
    WITHOUT_WORKERS_SECONDS,
    Core,
)
from penstock.manager.endings import ADOPTED

NOW = 1_000_000_000


def _core(workers: int = 2) -> Core:
    core = Core(workers)
    for number in range(1, workers + 1):
        core.on_hello(Hello(worker=number, pid=100 + number))
    return core


def _given(core: Core) -> dict[int, list[int]]:
    """What `feed` gives to which worker."""
    return {
        worker.number: [task for one in batches for task in range(one.first, one.first + one.count)]
        for worker, batches in core.feed()
    }


def _results(*task_ids: int, seconds: float = 0.0, attempt: int = 1) -> Results:
    took = int(seconds * 1e6)
    return Results(
        number=1,
        results=[
            AttemptResult(task_id=task, attempt=attempt, started_at=NOW, ended_at=NOW + took)
            for task in task_ids
        ],
    )


def _reported(core: Core) -> list[AttemptResult]:
    contents = core.outbox.next()
    return contents.finished if contents is not None else []


def test_tasks_of_unknown_length_go_one_to_each_worker() -> None:
    core = _core()
    core.on_tasks([batch(1, 10)])
    assert _given(core) == {1: [1], 2: [2]}
    assert _given(core) == {}


def test_a_worker_of_short_tasks_gets_many_and_one_of_long_tasks_gets_one() -> None:
    core = _core()
    core.on_tasks([batch(1, 5000)])
    _given(core)
    core.on_results(core.workers[1], _results(1, seconds=0.00001))
    core.on_results(core.workers[2], _results(2, seconds=60))
    given = _given(core)
    assert len(given[1]) == 1024
    assert len(given[2]) == 1


def test_what_is_left_is_shared() -> None:
    core = _core()
    core.on_tasks([batch(1, 2)])
    _given(core)
    core.on_results(core.workers[1], _results(1, seconds=0.00001))
    core.on_results(core.workers[2], _results(2, seconds=0.00001))
    core.on_tasks([batch(3, 10)])
    assert _given(core) == {1: [3, 4, 5, 6, 7], 2: [8, 9, 10, 11, 12]}


def test_tasks_that_wait_behind_a_long_one_go_to_another_worker() -> None:
    core = _core()
    core.on_tasks([batch(1, 2)])
    _given(core)
    core.on_results(core.workers[1], _results(1, seconds=0.00001))
    core.on_tasks([batch(3, 3)])
    assert _given(core) == {1: [3, 4, 5]}
    started = [TaskStart(task_id=3, started_at=NOW)]
    returned = [Attempt(5, 1), Attempt(4, 1)]
    core.on_results(core.workers[1], Results(started=started, returned=returned))
    core.on_results(core.workers[2], _results(2, seconds=0.001))
    assert _given(core) == {2: [4, 5]}


def test_a_task_that_is_pushed_twice_is_held_once() -> None:
    core = _core()
    core.on_tasks([batch(1, 3)])
    core.on_tasks([batch(2, 3)])
    held = sorted(core.held(), key=lambda held: held.task_id)
    assert held == [Held(task, 1, False) for task in (1, 2, 3, 4)]
    assert len(core.buffer) == 4


def test_a_result_counts_once() -> None:
    core = _core()
    core.on_tasks([batch(1)])
    _given(core)
    assert len(core.on_results(core.workers[1], _results(1))) == 1
    assert core.on_results(core.workers[1], _results(1)) == []
    assert [result.task_id for result in _reported(core)] == [1]


def test_a_task_is_held_until_its_report_is_answered() -> None:
    core = _core()
    core.on_tasks([batch(1, 3)])
    _given(core)
    core.on_results(core.workers[1], _results(1))
    assert {(held.task_id, held.begun) for held in core.held()} == {
        (1, True),
        (2, True),
        (3, False),
    }
    core.outbox.next()
    core.on_answer()
    assert {held.task_id for held in core.held()} == {2, 3}


def test_a_report_that_is_not_answered_is_repeated_as_it_was() -> None:
    core = _core()
    core.on_tasks([batch(1, 2)])
    _given(core)
    core.on_results(core.workers[1], _results(1))
    first = core.outbox.next()
    core.on_results(core.workers[2], _results(2))
    assert core.outbox.next() == first
    core.on_answer()
    assert [result.task_id for result in _reported(core)] == [2]


def test_a_dead_worker_costs_only_the_task_that_it_ran() -> None:
    core = _core(1)
    core.on_tasks([batch(1, 1)])
    _given(core)
    core.on_results(core.workers[1], _results(1))
    core.on_tasks([batch(2, 5)])
    _given(core)
    core.on_death(1, Signal(9), Mark(4, 1, NOW, 0), _results(1, 2, 3).results, NOW + 5)
    reported = _reported(core)
    assert [(result.task_id, result.outcome) for result in reported] == [
        (1, "succeeded"),
        (2, "succeeded"),
        (3, "succeeded"),
        (4, "failed"),
    ]
    death = reported[-1]
    assert (death.cause, death.signal, death.started_at) == ("worker_death", 9, NOW)
    assert "SIGKILL" in death.message
    core.on_hello(Hello(worker=1, pid=200))
    core.workers[1].average_seconds = 0.001
    assert _given(core) == {1: [5, 6]}


def test_a_worker_that_dies_between_tasks_costs_none() -> None:
    core = _core(1)
    core.on_tasks([batch(1)])
    _given(core)
    core.on_death(1, Signal(9), None, [], NOW)
    assert core.outbox.next() is None
    assert len(core.buffer) == 1


def test_a_worker_of_an_earlier_manager_that_died_meanwhile_is_accounted_for() -> None:
    core = Core(1)
    core.on_death(1, Unknown(), Mark(7, 2, NOW, 0), _results(6).results, NOW)
    reported = _reported(core)
    assert [(result.task_id, result.attempt, result.cause) for result in reported] == [
        (6, 1, None),
        (7, 2, "worker_death"),
    ]
    assert {(held.task_id, held.attempt) for held in core.held()} == {(6, 1), (7, 2)}


def test_a_buffered_task_is_cancelled_at_once_and_a_running_one_at_its_worker() -> None:
    core = _core(1)
    core.on_tasks([batch(1, 2)])
    _given(core)
    core.on_cancel([Attempt(1, 1), Attempt(2, 1), Attempt(99, 1)], "not needed", 30.0, 0.0)
    reported = _reported(core)
    assert [(result.task_id, result.outcome) for result in reported] == [(2, "cancelled")]
    assert "not needed" in reported[0].message
    assert [cancel.tasks for cancel in core.cancellations()] == [[Attempt(1, 1)]]
    core.on_results(core.workers[1], _results(1))
    assert core.cancellations() == []


def test_a_cancelled_task_that_comes_back_unbegun_is_cancelled() -> None:
    core = _core(1)
    core.on_tasks([batch(1)])
    _given(core)
    core.on_cancel([Attempt(1, 1)], "", 30.0, 0.0)
    core.on_results(core.workers[1], Results(returned=[Attempt(1, 1)]))
    assert [(result.task_id, result.outcome) for result in _reported(core)] == [(1, "cancelled")]
    assert len(core.buffer) == 0


def test_a_worker_that_does_not_cancel_is_killed_and_the_task_is_cancelled() -> None:
    core = _core(1)
    core.on_tasks([batch(1)])
    _given(core)
    core.on_cancel([Attempt(1, 1)], "enough", 30.0, 0.0)
    mark = Mark(1, 1, NOW, 0)
    late = 30.0 + CANCEL_BACKSTOP_SECONDS
    assert core.overdue(lambda _: mark, late - 1) == []
    assert core.overdue(lambda _: Mark(2, 1, NOW, 0), late + 1) == []
    assert core.overdue(lambda _: mark, late + 1) == [core.workers[1]]
    core.on_death(1, Signal(9), mark, [], NOW)
    (result,) = _reported(core)
    assert (result.outcome, result.cause) == ("cancelled", "cancelled")
    assert result.message.startswith("Cancelled: enough;")


def test_a_worker_that_does_not_time_out_is_killed_and_the_task_timed_out() -> None:
    core = _core(1)
    core.on_tasks([batch(1, timeout_seconds=60)])
    _given(core)
    # Only the monotonic clock counts: the other may have been set by years meanwhile.
    mark = Mark(1, 1, 5, 7_000_000)
    late = 7 + 60 + TIMEOUT_BACKSTOP_SECONDS
    assert core.overdue(lambda _: mark, late - 0.001) == []
    assert core.overdue(lambda _: mark, late + 0.001) == [core.workers[1]]
    core.on_death(1, Signal(9), mark, [], NOW)
    assert [(result.outcome, result.cause) for result in _reported(core)] == [("failed", "timeout")]


def test_a_clock_that_was_set_back_makes_no_negative_times() -> None:
    core = _core(1)
    core.on_tasks([batch(1, 2)])
    _given(core)
    core.on_results(core.workers[1], _results(1, seconds=-3600))
    assert core.workers[1].average_seconds == 0
    _given(core)
    core.on_death(1, Signal(9), Mark(2, 1, NOW, 0), [], NOW - 10)
    assert [result.ended_at - result.started_at for result in _reported(core)][1] == 0


def test_a_synchronisation_drops_and_cancels() -> None:
    core = _core(1)
    core.on_tasks([batch(1, 4)])
    _given(core)
    core.on_results(core.workers[1], _results(1))
    _given(core)
    group = AssignGroup(task_group_id=1, name="g", task_prefetch_count=7)
    core.on_sync_reply(
        SyncReply(
            epoch=2,
            task_group=group,
            drop=[Attempt(1, 1), Attempt(2, 1), Attempt(3, 1)],
            cancel=[Attempt(4, 1)],
        ),
        0.0,
    )
    assert {held.task_id for held in core.held()} == {4}
    told = {cancel.grace_seconds: cancel.tasks for cancel in core.cancellations()}
    assert told == {30.0: [Attempt(4, 1)], DROP_GRACE_SECONDS: [Attempt(2, 1), Attempt(3, 1)]}
    assert core.capacity == 1 + 7
    assert _reported(core) == []


def test_a_dropped_task_is_ended_again_and_again_and_its_cancellation_forgotten() -> None:
    core = _core(1)
    core.on_tasks([batch(1)])
    _given(core)
    core.on_cancel([Attempt(1, 1)], "enough", 30.0, 0.0)
    core.on_sync_reply(SyncReply(epoch=2, drop=[Attempt(1, 1)]), 100.0)
    for now in (100.0, 101.0, 109.0):
        assert core.overdue(lambda _: Mark(1, 1, NOW, 0), now) == []
        (told,) = core.cancellations()
        assert (told.tasks, told.reason) == ([Attempt(1, 1)], "")
    assert core.overdue(lambda _: Mark(1, 1, NOW, 0), 111.0) == [core.workers[1]]
    assert core.cancellations() == []
    core.on_death(1, Signal(9), Mark(1, 1, NOW, 0), [], NOW)
    assert not core.outbox
    assert core.held() == []


def test_a_manager_without_workers_gives_everything_back_until_one_comes() -> None:
    core = _core(1)
    core.on_tasks([batch(1, 3)])
    core.on_death(1, Signal(9), None, [], NOW)
    core.on_time(0.0)
    core.on_time(WITHOUT_WORKERS_SECONDS - 1)
    assert not core.outbox
    core.on_time(WITHOUT_WORKERS_SECONDS)
    assert core.capacity == 0
    core.on_tasks([batch(4)])
    contents = core.outbox.next()
    assert contents is not None
    assert contents.returned == [Attempt(task, 1) for task in (1, 2, 3, 4)]
    core.on_hello(Hello(worker=1, pid=7))
    assert core.capacity > 0
    core.on_tasks([batch(5)])
    assert _given(core) == {1: [5]}


def test_more_than_the_manager_can_soon_run_is_given_back_from_the_end() -> None:
    core = _core(2)
    core.on_tasks([batch(1, 2)])
    _given(core)
    for number in (1, 2):
        core.on_results(core.workers[number], _results(number, seconds=0.00001))
    assert core.capacity == 4096
    core.on_tasks([batch(10, 50), batch(100, 4000)])
    core.on_time(0.0)
    core.on_time(10.0)
    assert len(core.buffer) == 4050
    for worker in core.workers.values():
        worker.average_seconds = 10.0
    assert core.capacity == 6
    core.on_time(20.0)
    assert len(core.buffer) == 4050
    core.on_time(20.0 + EXCESS_SECONDS)
    contents = core.outbox.next()
    assert contents is not None
    returned = [task.task_id for task in contents.returned]
    assert returned == [*range(16, 60), *range(100, 4100)]
    assert _given(core) == {1: [10], 2: [11]}
    core.on_time(100.0)
    core.on_time(200.0)
    assert len(core.buffer) == 4


def test_one_long_task_among_short_ones_gives_nothing_back() -> None:
    core = _core(1)
    core.on_tasks([batch(1, 1000)])
    core.workers[1].average_seconds = 10.0
    core.on_time(0.0)
    core.workers[1].average_seconds = 0.00001
    core.on_time(1.0)
    core.workers[1].average_seconds = 10.0
    core.on_time(2.0)
    assert len(core.buffer) == 1000


def test_nobody_knows_how_an_adopted_worker_died() -> None:
    core = Core(1)
    core.on_hello(Hello(worker=1, pid=5, held=[Attempt(1, 1)]))
    core.on_death(1, ADOPTED, Mark(1, 1, NOW, 0), [], NOW)
    assert [result.message for result in _reported(core)] == [
        "The worker died; how is not known, because this manager had adopted it."
    ]


def test_adopted_tasks_that_did_not_begin_are_returned_because_nobody_knows_their_spec() -> None:
    core = Core(1)
    core.on_hello(Hello(worker=1, pid=5, held=[Attempt(1, 1), Attempt(2, 1)]))
    core.on_death(1, Unknown(), Mark(1, 1, NOW, 0), [], NOW)
    contents = core.outbox.next()
    assert contents is not None
    assert [result.task_id for result in contents.finished] == [1]
    assert contents.returned == [Attempt(2, 1)]


def test_a_stopping_manager_returns_what_did_not_begin() -> None:
    core = _core(1)
    core.on_tasks([batch(1, 3)])
    _given(core)
    core.stopping = True
    core.give_back_buffer()
    core.on_death(1, ExitCode(EXIT_LEFT), Mark(1, 1, NOW, 0), [], NOW)
    contents = core.outbox.next()
    assert contents is not None
    assert contents.returned == [Attempt(2, 1), Attempt(3, 1)]
    assert [(result.task_id, result.cause) for result in contents.finished] == [
        (1, "executor_lost")
    ]
    assert core.capacity == 0


def test_capacity_follows_the_length_of_tasks() -> None:
    core = _core(2)
    assert core.capacity == 6
    core.on_tasks([batch(1, 2)])
    _given(core)
    core.on_results(core.workers[1], _results(1, seconds=0.00001))
    assert core.capacity == 4096
    core.on_results(core.workers[2], _results(2, seconds=10))
    assert core.capacity == 6
