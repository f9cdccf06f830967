"""The life of a task group."""

import pytest
from tests.core.world import ACTOR, World

from penstock.coordinator.commands import (
    CancelTaskGroup,
    CloseTaskGroup,
    CreateTaskGroup,
    ReopenTaskGroup,
)
from penstock.errors import Conflict, NotFound, Rejected
from penstock.projections import Cancelled, Closed, Complete


@pytest.fixture
def world() -> World:
    return World()


def test_a_deployment_starts_with_a_default_group_and_task_group(world: World) -> None:
    assert world.state.groups == {"default"}
    assert world.state.task_groups[1].name == "default"


def test_a_name_is_unique_within_its_group(world: World) -> None:
    first = world.send(CreateTaskGroup(**ACTOR, name="nightly"))
    with pytest.raises(Conflict) as raised:
        world.send(CreateTaskGroup(**ACTOR, name="nightly"))
    assert raised.value.facts == {"task_group_id": first}


def test_a_repeated_creation_with_the_same_key_is_answered_with_the_first(world: World) -> None:
    first = world.send(CreateTaskGroup(**ACTOR, name="nightly", key="k"))
    assert world.send(CreateTaskGroup(**ACTOR, name="nightly", key="k")) == first


def test_a_task_group_needs_an_existing_group(world: World) -> None:
    with pytest.raises(NotFound):
        world.send(CreateTaskGroup(**ACTOR, name="nightly", group="physics"))


def test_a_closed_group_takes_no_tasks_until_it_is_reopened(world: World) -> None:
    world.submit()
    world.send(CloseTaskGroup(**ACTOR, task_group_id=1))
    with pytest.raises(Rejected):
        world.submit()
    world.send(ReopenTaskGroup(**ACTOR, task_group_id=1))
    world.submit()
    assert world.state.task_groups[1].counts.total == 2


def test_a_closed_group_completes_with_its_last_task(world: World) -> None:
    world.join()
    first = world.submit(2)
    world.send(CloseTaskGroup(**ACTOR, task_group_id=1))
    world.finish(first)
    assert isinstance(world.state.task_groups[1].lifecycle, Closed)
    world.finish(first + 1, outcome="failed", cause="exit_code")
    assert isinstance(world.state.task_groups[1].lifecycle, Complete)


def test_an_empty_group_completes_when_it_is_closed(world: World) -> None:
    world.send(CloseTaskGroup(**ACTOR, task_group_id=1))
    assert isinstance(world.state.task_groups[1].lifecycle, Complete)


def test_closing_twice_changes_nothing(world: World) -> None:
    world.submit()
    world.send(CloseTaskGroup(**ACTOR, task_group_id=1))
    commits = len(world.bodies)
    world.send(CloseTaskGroup(**ACTOR, task_group_id=1))
    assert len(world.bodies) == commits


@pytest.mark.parametrize("ending", [CancelTaskGroup, CloseTaskGroup])
def test_nothing_leads_out_of_an_ended_group(world: World, ending: type) -> None:
    world.send(ending(**ACTOR, task_group_id=1))
    for command in (ReopenTaskGroup, CloseTaskGroup, CancelTaskGroup):
        with pytest.raises(Rejected):
            world.send(command(**ACTOR, task_group_id=1))


def test_cancelling_ends_what_waits_and_asks_what_runs_to_end(world: World) -> None:
    world.join(capacity=3)
    first = world.submit(10)
    answer = world.send(CancelTaskGroup(**ACTOR, task_group_id=1, reason="enough"))
    assert (answer.ready_cancelled, answer.running_cancelled) == (7, 3)
    group = world.state.task_groups[1]
    assert isinstance(group.lifecycle, Cancelled)
    assert (group.counts.cancelled, group.counts.assigned) == (7, 3)
    assert all(task.cancel_requested for task in world.state.tasks.values())
    world.finish(first, first + 1, first + 2, outcome="cancelled", cause="cancelled")
    assert group.counts.cancelled == 10
    assert not world.state.ranges


def test_running_tasks_may_be_left_to_end_by_themselves(world: World) -> None:
    world.join(capacity=3)
    first = world.submit(10)
    answer = world.send(CancelTaskGroup(**ACTOR, task_group_id=1, cancel_running_tasks=False))
    assert (answer.running_cancelled, answer.running_not_cancellable) == (0, 3)
    world.finish(first)
    assert world.state.task_groups[1].counts.succeeded == 1


def test_an_unknown_task_group_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.send(CloseTaskGroup(**ACTOR, task_group_id=77))
