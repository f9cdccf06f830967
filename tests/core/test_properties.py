"""What holds for every history, however strange."""

import contextlib
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.world import ACTOR, World, normal, recount, submission

from penstock.coordinator.commands import (
    AnyCommand,
    CancelTask,
    CancelTaskGroup,
    Chunk,
    CloseTaskGroup,
    CreateTaskGroup,
    LoseManager,
    PassTime,
    ReopenTaskGroup,
    ReportTasks,
)
from penstock.coordinator.submissions import array_chunks, list_chunks
from penstock.errors import PenstockError
from penstock.events import (
    SECOND,
    Attempt,
    AttemptResult,
    RetryPolicy,
    TaskArray,
    TasksCancelled,
    TasksFinished,
    TaskSpec,
    TaskStart,
)
from penstock.events.manager_protocol import Held
from penstock.projections import State, apply, decode_state, encode_state

MANAGERS = ["m1", "m2", "m3"]


def random_history(seed: int, steps: int) -> World:
    """A world after random commands: sensible ones, stale ones, repeated ones and nonsense."""
    dice = random.Random(seed)
    world = World()
    for manager_id in MANAGERS:
        world.join(manager_id, capacity=dice.randrange(8))
    for _ in range(steps):
        world.now += dice.choice([0, 1, SECOND, 30 * SECOND, 3600 * SECOND])
        for manager_id in MANAGERS:
            if manager_id in world.capacities:
                world.capacities[manager_id] = dice.randrange(8)
        commands = [random_command(dice, world) for _ in range(dice.randrange(4))]
        for _ in range(dice.choice([1, 1, 1, 2])):
            with contextlib.suppress(PenstockError):
                world.send(*commands)
    return world


def random_command(dice: random.Random, world: World) -> AnyCommand:
    group = dice.choice([*world.state.task_groups, 99])
    task = dice.randrange(1, max(2, world.state.next_task_id + 1))
    manager = dice.choice(MANAGERS)
    kind = dice.randrange(12)
    if kind == 0:
        name = f"g{dice.randrange(4)}"
        return CreateTaskGroup(**ACTOR, name=name, priority=dice.randrange(3))
    if kind in (1, 2):
        key = f"k{dice.randrange(5)}" if dice.random() < 0.3 else ""
        return submission(random_submission(dice), group, key, "d")
    if kind == 3:
        return CancelTask(**ACTOR, task_id=task)
    if kind == 4 and dice.random() < 0.3:
        return CancelTaskGroup(
            **ACTOR, task_group_id=group, cancel_running_tasks=dice.random() < 0.5
        )
    if kind == 5:
        closing = dice.choice([CloseTaskGroup, ReopenTaskGroup])
        return closing(**ACTOR, task_group_id=group)
    if kind == 6:
        world.capacities.pop(manager, None)
        return LoseManager(actor="coordinator", manager_id=manager, reason="silent")
    if kind == 7:
        held = [t for t in world.held(manager) if dice.random() < 0.7]
        world.capacities[manager] = dice.randrange(8)
        return world.sync(
            manager,
            incarnation=str(dice.randrange(3)),
            held=[Held(t, world.state.tasks[t].attempt, dice.random() < 0.5) for t in held],
        )
    if kind == 8:
        return PassTime(actor="timer")
    return random_report(dice, world, manager)


def random_submission(dice: random.Random) -> Chunk:
    policy = RetryPolicy(max_attempts=dice.randrange(1, 4)) if dice.random() < 0.5 else None
    spec = {
        "command": ["true"],
        "retry": policy,
        "timeout_seconds": dice.choice([None, 10.0]),
        "priority": dice.randrange(3),
    }
    if dice.random() < 0.5:
        array = TaskArray(template=TaskSpec(**spec), count=dice.randrange(1, 12))
        return next(array_chunks(array))
    specs = [
        TaskSpec(**(spec | {"priority": dice.randrange(3)})) for _ in range(dice.randrange(1, 6))
    ]
    return next(list_chunks(specs))


def random_report(dice: random.Random, world: World, manager: str) -> ReportTasks:
    candidates = [*world.held(manager), dice.randrange(1, 50)]
    chosen = [task for task in candidates if dice.random() < 0.5]
    attempts = {
        task: world.state.tasks[task].attempt if task in world.state.tasks else 1 for task in chosen
    }
    results = []
    for task in chosen:
        outcome = dice.choice(["succeeded", "succeeded", "failed", "cancelled"])
        cause = dice.choice(["exit_code", "worker_death", "timeout", "executor_lost"])
        results.append(
            AttemptResult(
                task_id=task,
                attempt=max(1, attempts[task] - (dice.random() < 0.1)),
                outcome=outcome,
                cause={"failed": cause, "cancelled": "cancelled"}.get(outcome),
                ended_at=world.now,
            )
        )
    return ReportTasks(
        actor=f"manager:{manager}",
        manager_id=manager,
        started=[
            TaskStart(task_id=task, attempt=attempts[task], started_at=world.now)
            for task in chosen
            if dice.random() < 0.4
        ],
        finished=[result for result in results if dice.random() < 0.8] * dice.choice([1, 2]),
        returned=[Attempt(task, attempts[task]) for task in chosen if dice.random() < 0.1],
    )


histories = st.builds(random_history, seed=st.integers(0, 2**32), steps=st.integers(0, 40))
several = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@several
@given(histories)
def test_a_replay_equals_the_live_state(world: World) -> None:
    assert normal(world.replayed(), world.now) == normal(world.state, world.now)


@several
@given(histories)
def test_every_number_that_the_state_keeps_is_right(world: World) -> None:
    recount(world)


@several
@given(histories, st.randoms(use_true_random=False))
def test_a_snapshot_and_the_tail_equal_the_fold(world: World, dice: random.Random) -> None:
    cut = dice.randrange(len(world.bodies) + 1)
    state = State()
    for sequence, commit in enumerate(world.commits(), 1):
        if sequence == cut:
            state = decode_state(encode_state(state))
        apply(state, commit, sequence)
    assert normal(state, world.now) == normal(world.state, world.now)


@several
@given(histories)
def test_every_prefix_is_a_legal_state(world: World) -> None:
    prefix = World()
    prefix.state = State()
    for sequence, commit in enumerate(world.commits(), 1):
        apply(prefix.state, commit, sequence)
        recount(prefix)


@several
@given(histories)
def test_every_task_ends_at_most_once(world: World) -> None:
    ended: set[int] = set()
    for commit in world.commits():
        for event in commit.events:
            ids: list[int] = []
            if isinstance(event, TasksFinished):
                ids = [result.task_id for result in event.tasks]
            elif isinstance(event, TasksCancelled):
                ids = [
                    i for span in event.tasks for i in range(span.first, span.first + span.count)
                ]
            assert len(set(ids)) == len(ids)
            assert not ended & set(ids)
            ended.update(ids)


@several
@given(histories)
def test_repeating_all_reports_changes_nothing(world: World) -> None:
    before = normal(world.state, world.now)
    world.capacities.clear()
    for commit in world.commits():
        for event in commit.events:
            if isinstance(event, TasksFinished):
                world.report(event.manager_id, finished=event.tasks)
    assert normal(world.state, world.now) == before
