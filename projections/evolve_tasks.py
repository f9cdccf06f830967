"""What the events of tasks do to the state. Compact and in place: this runs for every task."""

import heapq

from penstock.events import (
    SECOND,
    SpecRun,
    TaskCancellationRequested,
    TaskId,
    TasksAssigned,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
)
from penstock.projections.ranges import (
    add_range,
    dequeue,
    enqueue,
    forget_if_finished,
    range_of,
    take,
)
from penstock.projections.state import (
    Failure,
    LiveTask,
    Range,
    State,
    Submission,
    TaskGroup,
    submission_key,
    task_key,
)

DEADLINES_KEPT = 1000
TIMEOUT_GRACE = 60 * SECOND
"""How long the coordinator lets a manager enforce a time-out before it steps in."""


def submitted(state: State, event: TasksSubmitted, sequence: int, index: int) -> None:
    group = state.task_groups[event.task_group_id]
    first = event.first
    for run in event.runs or [SpecRun(event.count)]:
        new = Range(
            task_group_id=group.id,
            first=first,
            count=run.count,
            sequence=sequence,
            event=index,
            unfinished=run.count,
            priority=run.priority,
            timeout_seconds=run.timeout_seconds,
            retry=run.retry,
        )
        add_range(state, group, new)
        first += run.count
    state.next_task_id = max(state.next_task_id, first)
    group.counts.total += event.count
    group.counts.ready += event.count
    if event.key:
        known = state.keys.setdefault(
            submission_key(group.id, event.key), Submission(event.key_digest, event.at, group.id)
        )
        known.ranges.append((event.first, event.count))
    for key, task_id in event.task_keys.items():
        state.keys[task_key(group.id, key)] = Submission("", event.at, group.id, [(task_id, 1)])


def assigned(state: State, event: TasksAssigned) -> None:
    group = state.task_groups[event.task_group_id]
    manager_id = event.manager_id
    held = state.managers[manager_id].tasks
    live = state.tasks
    for span in event.tasks:
        ids = range(span.first, span.first + span.count)
        if span.attempt == 1:
            source = range_of(state, span.first)
            take(state, group, source, span.count)
            for task_id in ids:
                live[task_id] = LiveTask(group.id, 1, "assigned", manager_id)
            group.counts.ready -= span.count
        else:
            for task_id in ids:
                _assign_again(state, group, task_id, manager_id)
        held.update(ids)
        group.counts.assigned += span.count


def _assign_again(state: State, group: TaskGroup, task_id: TaskId, manager_id: str) -> None:
    task = state.tasks[task_id]
    _leave_queue(state, group, task_id, task)
    task.state = "assigned"
    task.manager_id = manager_id
    task.started_at = 0


def started(state: State, event: TasksStarted) -> None:
    group = state.task_groups[event.task_group_id]
    for start in event.tasks:
        task = state.tasks[start.task_id]
        task.state = "running"
        task.started_at = start.started_at
        group.counts.assigned -= 1
        group.counts.running += 1
        source = range_of(state, start.task_id)
        if source.timeout_seconds is not None:
            # From when we heard of it: the executor's clock may be wrong.
            deadline = event.at + int(source.timeout_seconds * SECOND) + TIMEOUT_GRACE
            heapq.heappush(state.deadlines, (deadline, start.task_id, start.attempt))
    _forget_met_deadlines(state)


def _forget_met_deadlines(state: State) -> None:
    """Most tasks end long before their deadline. Their entries must not pile up until then."""
    if len(state.deadlines) > 2 * len(state.tasks) + DEADLINES_KEPT:
        state.deadlines = [
            entry
            for entry in state.deadlines
            if (task := state.tasks.get(entry[1])) is not None and task.attempt == entry[2]
        ]
        heapq.heapify(state.deadlines)


def finished(state: State, event: TasksFinished) -> None:
    group = state.task_groups[event.task_group_id]
    counts = group.counts
    live = state.tasks
    held = state.managers[event.manager_id].tasks
    running = succeeded = failed = cancelled = 0
    source: Range | None = None
    for result in event.tasks:
        task_id = result.task_id
        task = live.pop(task_id)
        held.discard(task_id)
        if task.state == "running":
            running += 1
        if result.outcome == "succeeded":
            succeeded += 1
        elif result.outcome == "failed":
            failed += 1
        else:
            cancelled += 1
        if source is None or not source.first <= task_id < source.end:
            source = _settle(state, source, task_id)
        source.unfinished -= 1
    if source is not None:
        forget_if_finished(state, source)
    counts.running -= running
    counts.assigned -= len(event.tasks) - running
    counts.succeeded += succeeded
    counts.failed += failed
    counts.cancelled += cancelled


def _settle(state: State, done: Range | None, task_id: TaskId) -> Range:
    """Leave one range, enter that of a task."""
    if done is not None:
        forget_if_finished(state, done)
    return range_of(state, task_id)


def requeued(state: State, event: TasksRequeued) -> None:
    group = state.task_groups[event.task_group_id]
    held = state.managers[event.manager_id].tasks
    for retry in event.tasks:
        result = retry.result
        task_id = result.task_id
        task = state.tasks[task_id]
        held.discard(task_id)
        if task.state == "running":
            group.counts.running -= 1
        else:
            group.counts.assigned -= 1
        task.failures = [
            *task.failures,
            Failure(result.cause or "returned", retry.counts),
        ]
        task.attempt += 1
        task.manager_id = ""
        group.retries.add(task_id)
        task.state = "waiting"
        group.counts.waiting += 1
        if retry.not_before <= event.at:
            make_ready(state, task_id, task)
        else:
            heapq.heappush(state.due, (retry.not_before, task_id, task.attempt))


def make_ready(state: State, task_id: TaskId, task: LiveTask) -> None:
    """A task that waited may run again."""
    group = state.task_groups[task.task_group_id]
    task.state = "ready"
    group.counts.waiting -= 1
    group.counts.ready += 1
    enqueue(state, group, _priority(state, task_id), task_id)


def cancelled(state: State, event: TasksCancelled) -> None:
    group = state.task_groups[event.task_group_id]
    if not event.tasks:
        _cancel_all(state, group)
        return
    for span in event.tasks:
        for task_id in range(span.first, span.first + span.count):
            _cancel_one(state, group, task_id)


def cancellation_requested(state: State, event: TaskCancellationRequested) -> None:
    for asked in event.tasks:
        task = state.tasks.get(asked.task_id)
        if task is not None and task.attempt == asked.attempt:
            task.cancel_requested = True


def _cancel_all(state: State, group: TaskGroup) -> None:
    for task_id in list(group.retries):
        _end_retry(state, group, task_id)
    for _, first in list(group.queue):
        source = range_of(state, first)
        rest = source.count - source.taken - len(source.skipped)
        source.taken = source.count
        source.skipped.clear()
        source.unfinished -= rest
        group.counts.ready -= rest
        group.counts.cancelled += rest
        forget_if_finished(state, source)
    group.queue.clear()
    state.backlog.discard(group.id)


def _cancel_one(state: State, group: TaskGroup, task_id: TaskId) -> None:
    if task_id in group.retries:
        _end_retry(state, group, task_id)
        return
    source = range_of(state, task_id)
    if task_id == source.next:
        take(state, group, source, 1)
    else:
        source.skipped.add(task_id)
    source.unfinished -= 1
    group.counts.ready -= 1
    group.counts.cancelled += 1
    forget_if_finished(state, source)


def _end_retry(state: State, group: TaskGroup, task_id: TaskId) -> None:
    task = state.tasks.pop(task_id)
    _leave_queue(state, group, task_id, task)
    group.counts.cancelled += 1
    source = range_of(state, task_id)
    source.unfinished -= 1
    forget_if_finished(state, source)


def _leave_queue(state: State, group: TaskGroup, task_id: TaskId, task: LiveTask) -> None:
    """A task with an entry of its own stops waiting."""
    group.retries.discard(task_id)
    if task.state == "ready":
        dequeue(state, group, _priority(state, task_id), task_id)
        group.counts.ready -= 1
    else:
        group.counts.waiting -= 1


def _priority(state: State, task_id: TaskId) -> int:
    return range_of(state, task_id).priority
