"""Decisions about task groups.

    open <-> closed -> complete        cancelled can be reached from open and closed

A closed group completes by itself when its last task ends.
"""

from penstock.coordinator.commands import (
    CancelTaskGroup,
    CloseTaskGroup,
    CreateTaskGroup,
    ReopenTaskGroup,
)
from penstock.coordinator.decisions.decision import CancellationStatistics, Decision
from penstock.errors import Conflict, NotFound, Rejected
from penstock.events import (
    AnyEvent,
    Attempt,
    TaskCancellationRequested,
    TaskGroupCancelled,
    TaskGroupClosed,
    TaskGroupCompleted,
    TaskGroupCreated,
    TaskGroupReopened,
    TasksCancelled,
    Timestamp,
)
from penstock.projections import Closed, Open, State, TaskGroup
from penstock.projections.state import creation_key

ATTEMPTS_PER_EVENT = 10_000


def create(command: CreateTaskGroup, state: State, now: Timestamp) -> Decision:
    if command.key and (known := state.keys.get(creation_key(command.key))):
        return Decision(answer=known.task_group_id)
    if command.group not in state.groups:
        raise NotFound(f"There is no group {command.group!r}.", group=command.group)
    existing = state.names.get(f"{command.group}/{command.name}")
    if existing is not None:
        raise Conflict(
            f"Task group {command.name!r} exists already in group {command.group!r}. "
            "Use it, or choose another name.",
            task_group_id=existing,
        )
    created = TaskGroupCreated(
        **command.origin(now),
        task_group_id=state.next_task_group_id,
        name=command.name,
        group=command.group,
        description=command.description,
        priority=command.priority,
        tags=command.tags,
        labels=command.labels,
        max_managers=command.max_managers,
        task_prefetch_count=command.task_prefetch_count,
        key=command.key,
    )
    return Decision([created], created.task_group_id)


def close(command: CloseTaskGroup, state: State, now: Timestamp) -> Decision:
    group = state.task_group(command.task_group_id)
    if isinstance(group.lifecycle, Closed):
        return Decision()
    if not isinstance(group.lifecycle, Open):
        raise unfit(group, "be closed")
    closed = TaskGroupClosed(
        **command.origin(now),
        task_group_id=group.id,
    )
    return Decision([closed])


def reopen(command: ReopenTaskGroup, state: State, now: Timestamp) -> Decision:
    group = state.task_group(command.task_group_id)
    if isinstance(group.lifecycle, Open):
        return Decision()
    if not isinstance(group.lifecycle, Closed):
        raise unfit(group, "be reopened")
    reopened = TaskGroupReopened(
        **command.origin(now),
        task_group_id=group.id,
    )
    return Decision([reopened])


def cancel(command: CancelTaskGroup, state: State, now: Timestamp) -> Decision:
    """Waiting and ready tasks end at once; tasks that an executor holds are asked to end."""
    group = state.task_group(command.task_group_id)
    if not isinstance(group.lifecycle, Open | Closed):
        raise unfit(group, "be cancelled")
    held = [
        Attempt(task_id, task.attempt)
        for manager_id in sorted(state.managers)
        for task_id in sorted(state.managers[manager_id].tasks)
        if (task := state.tasks[task_id]).task_group_id == group.id and not task.cancel_requested
    ]
    events: list[AnyEvent] = [
        TaskGroupCancelled(
            **command.origin(now),
            task_group_id=group.id,
        )
    ]
    waiting = group.counts.ready + group.counts.waiting
    if waiting:
        events.append(
            TasksCancelled(
                **command.origin(now),
                task_group_id=group.id,
            )
        )
    if command.cancel_running_tasks:
        events.extend(
            TaskCancellationRequested(
                **command.origin(now),
                task_group_id=group.id,
                tasks=held[place : place + ATTEMPTS_PER_EVENT],
            )
            for place in range(0, len(held), ATTEMPTS_PER_EVENT)
        )
    statistics = CancellationStatistics(
        ready_cancelled=waiting,
        running_cancelled=len(held) if command.cancel_running_tasks else 0,
        running_not_cancellable=0 if command.cancel_running_tasks else len(held),
    )
    return Decision(events, statistics)


def complete(group: TaskGroup, now: Timestamp) -> list[AnyEvent]:
    """A closed group without unfinished tasks is complete."""
    if not isinstance(group.lifecycle, Closed) or group.counts.unfinished:
        return []
    return [
        TaskGroupCompleted(at=now, actor="coordinator", task_group_id=group.id, result="success")
    ]


def unfit(group: TaskGroup, wanted: str) -> Rejected:
    return Rejected(
        f"Task group {group.name!r} is {group.state} and cannot {wanted}.",
        task_group_id=group.id,
        state=group.state,
    )
