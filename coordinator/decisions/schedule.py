"""Who works for which task group, and who gets which tasks.

A manager works for one task group at a time. It keeps its group while the group has tasks for it,
and while it still holds some; an idle one goes to the best group that it is eligible for: highest
priority first, then the oldest. Then it gets tasks, up to what it wants to hold.

This is called once after all commands of a moment were decided, so that a task that is submitted
while a manager has room is submitted and assigned in one commit.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.coordinator.decisions.managers import release
from penstock.coordinator.decisions.task_groups import complete
from penstock.events import (
    AnyEvent,
    ManagerId,
    Span,
    TaskGroupAssigned,
    TaskGroupId,
    TaskId,
    TasksAssigned,
    Timestamp,
)
from penstock.projections import Cancelled, Complete, Manager, State, TaskGroup, range_of

MAX_ASSIGNED_AT_ONCE = 4096


def schedule(
    state: State,
    capacities: Mapping[ManagerId, int],
    touched: Iterable[TaskGroupId],
    now: Timestamp,
    emit: Callable[[AnyEvent], None],
) -> None:
    """Decide what follows from a changed state. `emit` must evolve the state by each event."""
    for task_group_id in touched:
        for event in complete(state.task_groups[task_group_id], now):
            emit(event)
    for manager_id in capacities:
        manager = state.managers[manager_id]
        _release_from_ended(state, manager, now, emit)
        if not state.backlog:
            continue
        _choose_group(state, manager, now, emit)
        room = capacities[manager_id] - len(manager.tasks)
        if room > 0 and manager.task_group_id in state.backlog:
            group = state.task_groups[manager.task_group_id]
            _assign_tasks(state, manager, group, min(room, MAX_ASSIGNED_AT_ONCE), now, emit)


def eligible(manager: Manager, group: TaskGroup) -> bool:
    return (
        group.group in manager.groups
        and group.tags <= manager.tags
        and (group.max_managers is None or len(group.managers) < group.max_managers)
    )


def _release_from_ended(
    state: State, manager: Manager, now: Timestamp, emit: Callable[[AnyEvent], None]
) -> None:
    if manager.task_group_id is None or manager.tasks:
        return
    if isinstance(state.task_groups[manager.task_group_id].lifecycle, Complete | Cancelled):
        for event in release(manager, now, "The task group has ended."):
            emit(event)


def _choose_group(
    state: State, manager: Manager, now: Timestamp, emit: Callable[[AnyEvent], None]
) -> None:
    if manager.tasks or manager.task_group_id in state.backlog:
        return
    candidates = [
        group
        for task_group_id in state.backlog
        if eligible(manager, group := state.task_groups[task_group_id])
    ]
    if not candidates:
        return
    best = min(candidates, key=lambda group: (-group.priority, group.id))
    for event in release(manager, now, "Another task group has work."):
        emit(event)
    emit(
        TaskGroupAssigned(at=now, actor="coordinator", task_group_id=best.id, manager_id=manager.id)
    )


def _assign_tasks(
    state: State,
    manager: Manager,
    group: TaskGroup,
    room: int,
    now: Timestamp,
    emit: Callable[[AnyEvent], None],
) -> None:
    while room > 0 and group.queue:
        spans = _next_spans(state, group, room)
        room -= sum(span.count for span in spans)
        emit(
            TasksAssigned(
                at=now,
                actor="coordinator",
                task_group_id=group.id,
                manager_id=manager.id,
                tasks=spans,
            )
        )


def _next_spans(state: State, group: TaskGroup, room: int) -> list[Span]:
    """The tasks at the head of the queue, in its order, without changing it."""
    spans: list[Span] = []
    for _, task_id in _in_order(group.queue):
        task = state.tasks.get(task_id)
        if task is not None:
            spans.append(Span(task_id, 1, task.attempt))
            room -= 1
        else:
            source = range_of(state, task_id)
            rest = source.end - task_id
            free = min((skipped - task_id for skipped in source.skipped), default=rest)
            count = min(free, room)
            spans.append(Span(task_id, count))
            room -= count
            if count < rest:
                # What is left of this range comes before the next entry.
                break
        if room == 0:
            break
    return spans


def _in_order(queue: list[tuple[int, TaskId]]) -> Iterator[tuple[int, TaskId]]:
    """The entries of a heap, smallest first, at a cost that follows how many are looked at."""
    front = [(queue[0], 0)]
    while front:
        entry, place = heapq.heappop(front)
        yield entry
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(queue):
                heapq.heappush(front, (queue[child], child))


def next_due(state: State) -> Timestamp | None:
    """When time alone will change something."""
    times = [heap[0][0] for heap in (state.due, state.deadlines) if heap]
    return min(times) if times else None
