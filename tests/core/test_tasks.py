"""The life of tasks."""

import signal
from collections import deque

import pytest
from tests.core.world import ACTOR, World, recount, submission

from penstock.coordinator.commands import (
    CancelTask,
    CloseTaskGroup,
    CreateTaskGroup,
    Initialise,
    LoseManager,
    PassTime,
    ReportTasks,
)
from penstock.coordinator.decisions import decide_round
from penstock.coordinator.decisions.managers import to_cancel, to_drop
from penstock.coordinator.submissions import array_chunks, list_chunks
from penstock.errors import Conflict, NotFound, Rejected
from penstock.events import (
    SECOND,
    Attempt,
    RetryPolicy,
    Span,
    TaskArray,
    TasksAssigned,
    TaskSpec,
    TasksRequeued,
    TaskStart,
)
from penstock.events.manager_protocol import Held
from penstock.projections import Closed, Complete


@pytest.fixture
def world() -> World:
    return World()


def test_a_task_that_is_submitted_while_a_manager_has_room_is_assigned_in_the_same_commit(
    world: World,
) -> None:
    world.join()
    before = len(world.bodies)
    world.submit()
    assert len(world.bodies) == before + 1
    assert [type(event).__name__ for event in world.commits()[-1].events] == [
        "TasksSubmitted",
        "TaskGroupAssigned",
        "TasksAssigned",
    ]


def test_a_million_task_array_is_one_range(world: World) -> None:
    array = TaskArray(template=TaskSpec(command=["true"]), count=1_000_000)
    [chunk] = array_chunks(array)
    world.send(submission(chunk))
    assert len(world.state.ranges) == 1
    assert len(world.bodies[-1]) < 500


def test_higher_priority_goes_first_then_the_older(world: World) -> None:
    world.submit(2)
    high = world.submit(1, command=["true"], priority="high")
    low = world.submit(1, command=["true"], priority=-5)
    world.join(capacity=3)
    assert world.held() == [1, 2, high]
    world.finish(1, 2, high)
    assert world.held() == [low]


def test_a_list_with_mixed_priorities_is_assigned_in_their_order(world: World) -> None:
    specs = [TaskSpec(command=["true"], priority=place % 3) for place in range(9)]
    [chunk] = list_chunks(specs)
    world.send(submission(chunk))
    world.join(capacity=3)
    assert world.held() == [3, 6, 9]


def test_a_late_report_of_an_older_attempt_changes_nothing(world: World) -> None:
    world.join()
    first = world.submit(1, command=["x"], retry=RetryPolicy(max_attempts=3, backoff_seconds=0))
    late = world.result(first)
    world.finish(first, outcome="failed", cause="exit_code", exit_code=1)
    assert world.state.tasks[first].attempt == 2
    commits = len(world.bodies)
    world.report(finished=[late])
    assert len(world.bodies) == commits


def test_a_report_counts_once_however_often_it_arrives(world: World) -> None:
    world.join()
    first = world.submit(2)
    results = [world.result(first), world.result(first)]
    world.report(finished=results)
    world.report(finished=results)
    assert world.state.task_groups[1].counts.succeeded == 1
    recount(world)


def test_a_manager_cannot_report_what_another_holds(world: World) -> None:
    world.join("m1")
    first = world.submit()
    world.join("m2")
    world.report("m2", finished=[world.result(first)])
    assert world.state.task_groups[1].counts.succeeded == 0


def test_a_start_is_recorded_unless_the_same_report_holds_the_end(world: World) -> None:
    world.join()
    first = world.submit(2)
    starts = [TaskStart(task_id=first + n, started_at=world.now) for n in range(2)]
    world.report(started=starts, finished=[world.result(first)])
    assert world.state.tasks[first + 1].state == "running"
    assert world.state.task_groups[1].counts.running == 1
    recount(world)


def test_a_failed_task_is_not_run_again_unless_asked_for(world: World) -> None:
    world.join()
    first = world.submit()
    world.finish(first, outcome="failed", cause="exit_code", exit_code=1)
    assert world.state.task_groups[1].counts.failed == 1


def test_a_retry_waits_for_its_backoff_and_then_runs_as_a_new_attempt(world: World) -> None:
    world.join()
    policy = RetryPolicy(max_attempts=2, backoff_seconds=10)
    first = world.submit(1, command=["x"], retry=policy)
    world.finish(first, outcome="failed", cause="exit_code", exit_code=1)
    assert world.state.task_groups[1].counts.waiting == 1
    world.now += 5 * SECOND
    world.send(PassTime(actor="timer"))
    assert world.held() == []
    world.now += 15 * SECOND
    world.send(PassTime(actor="timer"))
    assert world.held() == [first]
    world.finish(first, outcome="failed", cause="exit_code", exit_code=1)
    assert world.state.task_groups[1].counts.failed == 1
    recount(world)


@pytest.mark.parametrize(
    ("number", "deaths"),
    [(signal.SIGSEGV, 2), (signal.SIGBUS, 2), (signal.SIGKILL, 3), (signal.SIGABRT, 3), (None, 3)],
)
def test_a_task_that_kills_its_worker_is_given_up_after_so_many_deaths(
    world: World, number: int | None, deaths: int
) -> None:
    world.join()
    first = world.submit()
    for _ in range(deaths):
        assert world.held() == [first]
        world.finish(first, outcome="failed", cause="worker_death", signal=number, message="died")
    assert world.state.task_groups[1].counts.failed == 1
    [result] = world.last_events[0].tasks  # type: ignore[union-attr]
    assert result.message == f"Worker failed {deaths} times: died"  # type: ignore[union-attr]


def test_a_worker_that_was_asked_to_leave_never_counts_against_the_task(world: World) -> None:
    world.join()
    first = world.submit()
    for _ in range(5):
        world.finish(first, outcome="failed", cause="worker_death", signal=signal.SIGTERM)
    assert world.held() == [first]


def test_a_task_that_was_given_back_has_used_up_nothing(world: World) -> None:
    world.join()
    first = world.submit()
    for attempt in range(1, 30):
        world.report(returned=[Attempt(first, attempt)])
    assert world.held() == [first]
    assert world.state.tasks[first].attempt == 30


def test_the_tasks_of_a_lost_manager_go_to_another(world: World) -> None:
    world.join("m1", capacity=4)
    first = world.submit(4)
    world.join("m2", capacity=4)
    del world.capacities["m1"]
    world.send(LoseManager(actor="coordinator", manager_id="m1", reason="silent"))
    assert world.held("m1") == []
    assert world.held("m2") == [first + n for n in range(4)]
    assert all(task.attempt == 2 for task in world.state.tasks.values())


def test_a_push_that_got_lost_is_repeated_to_the_same_process(world: World) -> None:
    world.join()
    first = world.submit(2)
    answer = world.send(world.sync("m1", held=[Held(first, 1)]))
    assert answer.start == [Attempt(first + 1, 1)]


def test_what_a_restarted_manager_still_holds_is_adopted_and_the_rest_is_lost(
    world: World,
) -> None:
    world.join()
    first = world.submit(2)
    answer = world.send(world.sync("m1", incarnation="2", held=[Held(first, 1, True)]))
    assert answer.start == []
    assert to_drop(world.state, world.state.managers["m1"], [Held(first, 1)]) == []
    assert world.state.tasks[first].attempt == 1
    assert world.state.tasks[first + 1].attempt == 2
    assert any(isinstance(event, TasksRequeued) for event in world.last_events)


def test_a_manager_that_comes_back_too_late_drops_what_others_have(world: World) -> None:
    world.join("m1")
    first = world.submit()
    del world.capacities["m1"]
    world.send(LoseManager(actor="coordinator", manager_id="m1", reason="silent"))
    held = [Held(first, 1, True)]
    world.send(world.sync("m1", held=held))
    assert to_drop(world.state, world.state.managers["m1"], held) == [Attempt(first, 1)]


def test_cancelling_a_ready_task_in_the_middle_of_a_range_skips_it(world: World) -> None:
    first = world.submit(5)
    world.send(CancelTask(**ACTOR, task_id=first + 2))
    with pytest.raises(Rejected):
        world.send(CancelTask(**ACTOR, task_id=first + 2))
    world.join(capacity=10)
    assert world.held() == [first, first + 1, first + 3, first + 4]
    assigned = [event for event in world.last_events if isinstance(event, TasksAssigned)]
    assert [span for event in assigned for span in event.tasks] == [
        Span(first, 2),
        Span(first + 3, 2),
    ]
    world.finish(*world.held())
    assert not world.state.ranges
    recount(world)


def test_cancelling_the_next_and_the_last_task_of_a_range(world: World) -> None:
    first = world.submit(3)
    world.send(CancelTask(**ACTOR, task_id=first))
    world.send(CancelTask(**ACTOR, task_id=first + 2))
    recount(world)
    world.send(CancelTask(**ACTOR, task_id=first + 1))
    recount(world)
    assert not world.state.ranges


def test_cancelling_a_running_task_asks_its_manager_once(world: World) -> None:
    world.join()
    first = world.submit()
    world.send(CancelTask(**ACTOR, task_id=first, reason="wrong input"))
    commits = len(world.bodies)
    world.send(CancelTask(**ACTOR, task_id=first))
    assert len(world.bodies) == commits
    assert to_cancel(world.state, world.state.managers["m1"]) == [Attempt(first, 1)]
    world.finish(first, outcome="cancelled", cause="cancelled")
    assert world.state.task_groups[1].counts.cancelled == 1


def test_cancelling_a_task_that_waits_for_a_retry_ends_it(world: World) -> None:
    world.join()
    first = world.submit(1, command=["x"], retry=RetryPolicy(max_attempts=2))
    world.finish(first, outcome="failed", cause="exit_code")
    world.send(CancelTask(**ACTOR, task_id=first))
    assert world.state.task_groups[1].counts.cancelled == 1
    recount(world)


def test_an_unknown_task_is_not_found_and_an_ended_one_cannot_be_cancelled(world: World) -> None:
    world.join()
    first = world.submit()
    world.finish(first)
    with pytest.raises(Rejected):
        world.send(CancelTask(**ACTOR, task_id=first))
    with pytest.raises(NotFound):
        world.send(CancelTask(**ACTOR, task_id=first + 100))


def test_a_repeated_submission_is_answered_with_the_first_ids(world: World) -> None:
    [chunk] = list_chunks([TaskSpec(command=["true"])] * 3)
    first = world.send(submission(chunk, key="key", digest="digest"))
    again = world.send(submission(chunk, key="key", digest="digest"))
    assert again.ranges == first.ranges
    assert again.duplicate
    assert world.state.task_groups[1].counts.total == 3


def test_the_same_key_for_another_submission_is_a_conflict(world: World) -> None:
    [chunk] = list_chunks([TaskSpec(command=["true"])])
    world.send(submission(chunk, key="key", digest="one"))
    with pytest.raises(Conflict):
        world.send(submission(chunk, key="key", digest="another"))


def test_a_long_submission_that_was_cut_off_goes_on_where_it_stopped(world: World) -> None:
    specs = [TaskSpec(command=["x" * 1000])] * 1000
    chunks = list(list_chunks(specs))
    assert len(chunks) > 2
    world.send(submission(chunks[0], key="key", digest="d"))
    answers = [world.send(submission(chunk, key="key", digest="d")) for chunk in chunks]
    assert answers[0].duplicate
    assert not answers[1].duplicate
    assert world.state.task_groups[1].counts.total == 1000


def test_a_task_key_names_one_task(world: World) -> None:
    [chunk] = list_chunks([TaskSpec(command=["true"], key="volume-7")])
    first = world.send(submission(chunk))
    again = world.send(submission(chunk))
    assert again.ranges == first.ranges
    assert again.duplicate


def test_an_overdue_task_is_ended_when_its_manager_does_not(world: World) -> None:
    world.join()
    first = world.submit(1, command=["x"], timeout_seconds=10)
    world.report(started=[TaskStart(task_id=first, started_at=world.now)])
    world.now += 100 * SECOND
    world.send(PassTime(actor="timer"))
    assert world.state.task_groups[1].counts.failed == 1
    assert not world.state.managers["m1"].tasks
    recount(world)


def test_a_manager_serves_only_groups_that_it_is_eligible_for(world: World) -> None:
    gpu = world.send(CreateTaskGroup(**ACTOR, name="training", tags=["gpu"]))
    world.submit(1, group=gpu, command=["train"])
    world.join("plain")
    assert world.held("plain") == []
    world.join("strong", tags=["gpu", "linux"])
    assert len(world.held("strong")) == 1


def test_an_idle_manager_moves_to_the_group_with_the_highest_priority(world: World) -> None:
    low = world.send(CreateTaskGroup(**ACTOR, name="low", priority=1))
    high = world.send(CreateTaskGroup(**ACTOR, name="high", priority=9))
    world.submit(1, group=low, command=["x"])
    world.submit(1, group=high, command=["x"])
    world.join(capacity=1)
    assert world.state.managers["m1"].task_group_id == high
    world.finish(*world.held())
    assert world.state.managers["m1"].task_group_id == low
    assert world.state.task_groups[high].managers == set()


def test_a_group_with_a_limit_gets_no_more_managers(world: World) -> None:
    limited = world.send(CreateTaskGroup(**ACTOR, name="limited", max_managers=1))
    world.submit(10, group=limited, command=["x"])
    world.join("m1", capacity=1)
    world.join("m2", capacity=1)
    assert world.state.task_groups[limited].managers == {"m1"}


def test_a_wrong_clock_of_the_manager_does_not_make_a_task_overdue(world: World) -> None:
    world.join()
    first = world.submit(1, command=["x"], timeout_seconds=10)
    world.report(started=[TaskStart(task_id=first, started_at=world.now - 1000 * SECOND)])
    world.now += SECOND
    world.send(PassTime(actor="timer"))
    assert world.state.tasks[first].state == "running"


def test_deadlines_of_tasks_that_have_ended_do_not_pile_up(world: World) -> None:
    world.join(capacity=100)
    for _ in range(50):
        first = world.submit(100, command=["x"], timeout_seconds=86_400)
        ids = range(first, first + 100)
        world.report(started=[TaskStart(task_id=task, started_at=world.now) for task in ids])
        world.finish(*ids)
    assert len(world.state.deadlines) < 2000


def test_a_group_that_a_crash_left_closed_is_completed_at_the_next_start(world: World) -> None:
    world.join()
    first = world.submit()
    world.send(CloseTaskGroup(**ACTOR, task_group_id=1))
    result = world.result(first)
    queue = deque([(ReportTasks(actor="m", manager_id="m1", finished=[result]), None)])
    [events] = decide_round(world.state, queue, {}, 99, world.now).commits
    assert len(events) == 2
    world.replace_state(world.replayed_with(events[:1]))
    assert isinstance(world.state.task_groups[1].lifecycle, Closed)
    world.send(Initialise(actor="coordinator"))
    assert isinstance(world.state.task_groups[1].lifecycle, Complete)
