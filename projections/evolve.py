"""Folding the log: `evolve` changes the state by one event.

It is total over the events and never refuses a stored one: what is in the log has happened. The
only other thing that changes the state is time, and time comes from the log as well: `apply` first
lets everything become due that is due when the commit was made.
"""

import heapq
from typing import assert_never

from penstock.events import (
    SECOND,
    AnyEvent,
    Commit,
    GroupCreated,
    LeaderElected,
    ManagerOffline,
    ManagerOnline,
    ManagerRegistered,
    TaskCancellationRequested,
    TaskGroupAssigned,
    TaskGroupCancelled,
    TaskGroupClosed,
    TaskGroupCompleted,
    TaskGroupCreated,
    TaskGroupReleased,
    TaskGroupReopened,
    TasksAssigned,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
    Timestamp,
)
from penstock.projections import evolve_tasks as tasks
from penstock.projections.state import (
    Cancelled,
    Closed,
    Complete,
    Manager,
    Offline,
    Online,
    Open,
    State,
    Submission,
    TaskGroup,
    creation_key,
)

KEY_LIFETIME = 24 * 3600 * SECOND
MAX_KEYS = 100_000
"""Keys protect against repeats of a request, which come soon or never."""


def apply(state: State, commit: Commit, sequence: int) -> None:
    """Fold one commit."""
    advance(state, commit.at)
    for index, event in enumerate(commit.events):
        evolve(state, event, sequence, index)


def advance(state: State, now: Timestamp) -> None:
    """Let time pass: waiting tasks become ready, old idempotency keys are forgotten."""
    state.clock = max(state.clock, now)
    while state.due and state.due[0][0] <= now:
        _, task_id, attempt = heapq.heappop(state.due)
        task = state.tasks.get(task_id)
        if task is not None and task.state == "waiting" and task.attempt == attempt:
            tasks.make_ready(state, task_id, task)
    while state.deadlines and state.deadlines[0][0] <= now:
        _, task_id, attempt = state.deadlines[0]
        task = state.tasks.get(task_id)
        if task is not None and task.state == "running" and task.attempt == attempt:
            break
        heapq.heappop(state.deadlines)
    while state.keys:
        oldest = next(iter(state.keys))
        if len(state.keys) <= MAX_KEYS and state.keys[oldest].at > now - KEY_LIFETIME:
            break
        del state.keys[oldest]


def evolve(state: State, event: AnyEvent, sequence: int, index: int) -> None:
    """Change the state by one event, which is number `index` of the commit at `sequence`."""
    match event:
        case TasksFinished():
            tasks.finished(state, event)
        case TasksAssigned():
            tasks.assigned(state, event)
        case TasksStarted():
            tasks.started(state, event)
        case TasksSubmitted():
            tasks.submitted(state, event, sequence, index)
        case TasksRequeued():
            tasks.requeued(state, event)
        case TasksCancelled():
            tasks.cancelled(state, event)
        case TaskCancellationRequested():
            tasks.cancellation_requested(state, event)
        case GroupCreated():
            state.groups.add(event.group)
        case TaskGroupCreated():
            _task_group_created(state, event)
        case TaskGroupClosed():
            state.task_groups[event.task_group_id].lifecycle = Closed()
        case TaskGroupReopened():
            state.task_groups[event.task_group_id].lifecycle = Open()
        case TaskGroupCancelled():
            state.task_groups[event.task_group_id].lifecycle = Cancelled()
        case TaskGroupCompleted():
            state.task_groups[event.task_group_id].lifecycle = Complete()
        case TaskGroupAssigned():
            state.managers[event.manager_id].task_group_id = event.task_group_id
            state.task_groups[event.task_group_id].managers.add(event.manager_id)
        case TaskGroupReleased():
            state.managers[event.manager_id].task_group_id = None
            state.task_groups[event.task_group_id].managers.discard(event.manager_id)
        case ManagerRegistered():
            _manager_registered(state, event)
        case ManagerOnline():
            state.managers[event.manager_id].connection = Online(event.incarnation)
        case ManagerOffline():
            state.managers[event.manager_id].connection = Offline()
        case LeaderElected():
            state.epoch = sequence
            state.leader = event.node
            state.leader_url = event.url
        case _:
            assert_never(event)


def _task_group_created(state: State, event: TaskGroupCreated) -> None:
    state.next_task_group_id = max(state.next_task_group_id, event.task_group_id + 1)
    state.names[f"{event.group}/{event.name}"] = event.task_group_id
    state.task_groups[event.task_group_id] = TaskGroup(
        id=event.task_group_id,
        name=event.name,
        group=event.group,
        lifecycle=Open(),
        priority=event.priority,
        tags=frozenset(event.tags),
        max_managers=event.max_managers,
        task_prefetch_count=event.task_prefetch_count,
    )
    if event.key:
        state.keys[creation_key(event.key)] = Submission(
            digest="", at=event.at, task_group_id=event.task_group_id
        )


def _manager_registered(state: State, event: ManagerRegistered) -> None:
    known = state.managers.get(event.manager_id)
    if known is None:
        state.managers[event.manager_id] = Manager(
            id=event.manager_id,
            groups=frozenset(event.groups),
            tags=frozenset(event.tags),
            labels=frozenset(event.labels),
            worker_count=event.worker_count,
            device=event.device,
            connection=Offline(),
        )
    else:
        known.groups = frozenset(event.groups)
        known.tags = frozenset(event.tags)
        known.labels = frozenset(event.labels)
        known.worker_count = event.worker_count
        known.device = event.device
