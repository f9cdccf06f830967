"""What the events of tasks do: to the tasks in flight, and to the rows of a batch.

A task without a row of its own is ready when its range was not taken that far, and otherwise part
of an assignment. It gets a row when there is something to say about it alone, and leaves the
assignment then. Compact and in place: this runs for every task.
"""

from bisect import bisect_right

import msgspec

from penstock.events import (
    TaskCancellationRequested,
    TaskGroupId,
    TaskId,
    TasksAssigned,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
)
from penstock.projections.read_models.archive import Row
from penstock.projections.read_models.in_flight import ActiveTask, Assignment, InFlight
from penstock.projections.read_models.net_effect import NetEffect, NewRange
from penstock.projections.read_models.partitions import plausible
from penstock.projections.read_models.states import (
    ASSIGNED,
    CANCELLED,
    READY,
    RUNNING,
    WAITING,
)
from penstock.projections.read_models.task_group_change import TaskGroupChange
from penstock.projections.read_models.text import storable


class TaskFold:
    def __init__(self, effect: NetEffect, in_flight: InFlight) -> None:
        self._effect = effect
        self._in_flight = in_flight
        self._range_starts: list[TaskId] = []
        self._assignments: dict[TaskId, Assignment] = {}
        self._active: dict[TaskId, ActiveTask] = {}

    def finish(self) -> None:
        """The rows of what is in flight now and was touched; from here on they count as stored."""
        effect = self._effect
        for assignment in self._assignments.values():
            rows = effect.assignments_changed if assignment.stored else effect.assignments
            rows.append(_row(assignment))
            assignment.stored = True
        for task in self._active.values():
            rows = effect.active_changed if task.stored else effect.active
            rows.append(_row(task))
            task.stored = True

    def _change(self, task_group_id: TaskGroupId) -> TaskGroupChange:
        change = self._effect.task_group_changes.get(task_group_id)
        if change is None:
            change = self._effect.task_group_changes[task_group_id] = TaskGroupChange()
        return change

    def submitted(self, event: TasksSubmitted, sequence: int, index: int) -> None:
        first = event.first
        runs = [(run.count, run.priority) for run in event.runs] or [(event.count, 0)]
        for count, priority in runs:
            self._effect.ranges.append(
                NewRange(
                    first=first,
                    count=count,
                    taken=0,
                    task_group_id=event.task_group_id,
                    priority=priority,
                    sequence=sequence,
                    event_index=index,
                    submitted_at=event.at,
                )
            )
            self._range_starts.append(first)
            first += count
        change = self._change(event.task_group_id)
        change.total += event.count
        change.counts[READY] += event.count

    def assigned(self, event: TasksAssigned) -> None:
        counts = self._change(event.task_group_id).counts
        for span in event.tasks:
            if span.attempt == 1:
                self._take(span.first, span.first + span.count)
                assignment = Assignment(
                    first=span.first,
                    count=span.count,
                    remaining=span.count,
                    task_group_id=event.task_group_id,
                    manager_id=event.manager_id,
                )
                self._in_flight.assign(assignment)
                self._assignments[span.first] = assignment
                counts[READY] -= span.count
                counts[ASSIGNED] += span.count
                continue
            for task_id in range(span.first, span.first + span.count):
                task = self._activate(task_id, event.task_group_id, counts)
                task.attempt = span.attempt
                task.manager_id = event.manager_id
                task.not_before = None
                self._enter(task, ASSIGNED, counts)

    def _take(self, first: TaskId, stop: TaskId) -> None:
        """Advance the ranges that hold these tasks: new ones here, others in the database.

        Ids only grow, so every range of this batch lies behind all earlier ones.
        """
        starts = self._range_starts
        index = bisect_right(starts, first) - 1
        if index < 0:
            taken = self._effect.taken
            end = min(stop, starts[0]) if starts else stop
            if taken and taken[-1][1] == first:
                taken[-1] = (taken[-1][0], end)
            else:
                taken.append((first, end))
            index = 0
        ranges = self._effect.ranges
        while index < len(ranges) and ranges[index].first < stop:
            new = ranges[index]
            new.taken = max(new.taken, min(stop - new.first, new.count))
            index += 1

    def _activate(
        self, task_id: TaskId, task_group_id: TaskGroupId, counts: list[int]
    ) -> ActiveTask:
        """Give a task a row of its own, unless it has one, and take it out of the counts."""
        task = self._in_flight.active.get(task_id)
        if task is None:
            task = ActiveTask(task_id, task_group_id, READY, 0)
            assignment = self._in_flight.assignment_of(task_id)
            if assignment is not None:
                task.state = ASSIGNED
                task.attempt = 1
                task.manager_id = assignment.manager_id
                self._leave(assignment, 1)
            self._in_flight.active[task_id] = task
        self._active[task_id] = task
        counts[task.state] -= 1
        return task

    def _enter(self, task: ActiveTask, state: int, counts: list[int]) -> None:
        task.state = state
        counts[state] += 1

    def _leave(self, assignment: Assignment, count: int) -> None:
        """Tasks of an assignment got rows of their own."""
        assignment.remaining -= count
        if assignment.remaining > 0:
            self._assignments[assignment.first] = assignment
            return
        self._in_flight.forget(assignment)
        self._assignments.pop(assignment.first, None)
        if assignment.stored:
            self._effect.assignments_ended.append(assignment.first)

    def started(self, event: TasksStarted) -> None:
        change = self._change(event.task_group_id)
        for start in event.tasks:
            task = self._activate(start.task_id, event.task_group_id, change.counts)
            task.attempt = start.attempt
            task.manager_id = event.manager_id
            task.started_at = plausible(start.started_at, event.at)
            task.worker = start.worker
            self._enter(task, RUNNING, change.counts)
            change.started(task.started_at)

    def requeued(self, event: TasksRequeued) -> None:
        change = self._change(event.task_group_id)
        for retry in event.tasks:
            task = self._activate(retry.result.task_id, event.task_group_id, change.counts)
            task.attempt = retry.result.attempt
            task.manager_id = task.started_at = task.worker = None
            task.not_before = retry.not_before or None
            # Time alone makes it ready later on; readers compare `not_before` with their clock.
            later = retry.not_before > event.at
            self._enter(task, WAITING if later else READY, change.counts)
            if retry.result.started_at:
                change.started(plausible(retry.result.started_at, event.at))
            self._effect.archive.add_attempt(event, retry)

    def cancellation_requested(self, event: TaskCancellationRequested) -> None:
        counts = self._change(event.task_group_id).counts
        for asked in event.tasks:
            known = self._in_flight.active.get(asked.task_id)
            if known is None:
                held = self._in_flight.assignment_of(asked.task_id) is not None
            else:
                held = known.attempt == asked.attempt
            if held:
                task = self._activate(asked.task_id, event.task_group_id, counts)
                task.cancel_requested = True
                self._enter(task, task.state, counts)

    def cancelled(self, event: TasksCancelled) -> None:
        change = self._change(event.task_group_id)
        if not event.tasks:
            self._rest_cancelled(event, change)
            return
        for span in event.tasks:
            for task_id in range(span.first, span.first + span.count):
                task = self._in_flight.active.get(task_id)
                change.counts[READY if task is None else task.state] -= 1
                self._effect.archive.add_cancelled(
                    event, task_id, 0 if task is None else task.attempt
                )
                if task is not None:
                    self._end(task)
            change.counts[CANCELLED] += span.count

    def _rest_cancelled(self, event: TasksCancelled, change: TaskGroupChange) -> None:
        reason = storable(event.reason)
        change.cancel_rest(event.at, reason)
        for new in self._effect.ranges:
            if (
                new.task_group_id == event.task_group_id
                and new.taken < new.count
                and new.rest_cancelled_at is None
            ):
                new.rest_cancelled_at = event.at
                new.rest_cancel_reason = reason
        for task in list(self._in_flight.active.values()):
            if task.task_group_id == event.task_group_id and task.state in (WAITING, READY):
                self._effect.archive.add_cancelled(event, task.id, task.attempt)
                self._end(task)

    def _end(self, task: ActiveTask) -> None:
        del self._in_flight.active[task.id]
        self._active.pop(task.id, None)
        if task.stored:
            self._effect.active_ended.append(task.id)

    def finished(self, event: TasksFinished) -> None:
        change = self._change(event.task_group_id)
        active = self._in_flight.active
        counts = change.counts
        holder: Assignment | None = None
        first = stop = left = 0
        for result in event.tasks:
            task_id = result.task_id
            if active and (task := active.get(task_id)) is not None:
                counts[task.state] -= 1
                self._end(task)
            elif first <= task_id < stop:
                left += 1
            else:
                if holder is not None:
                    counts[ASSIGNED] -= left
                    self._leave(holder, left)
                holder = self._in_flight.assignment_of(task_id)
                if holder is None:
                    counts[READY] -= 1
                    first = stop = left = 0
                else:
                    first, stop, left = holder.first, holder.first + holder.count, 1
        if holder is not None:
            counts[ASSIGNED] -= left
            self._leave(holder, left)
        self._effect.archive.add_finished(event, change)


def _row(kept: ActiveTask | Assignment) -> Row:
    # The last field says whether the row is stored; it is no column.
    return msgspec.structs.astuple(kept)[:-1]
