"""Folds a batch of commits to its net effect: the rows to write, however many events led to them.

A task that is assigned, started and finished within the batch is one row of `archived_tasks`. No
database here: what the fold must know of earlier batches is in `InFlight`, which it changes.
Whatever way a log is cut into batches, the tables are the same in the end.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from penstock.events import (
    AnyEvent,
    Entry,
    GroupCreated,
    LeaderElected,
    ManagerId,
    ManagerOffline,
    ManagerOnline,
    ManagerRegistered,
    TaskCancellationRequested,
    TaskGroupAssigned,
    TaskGroupCancelled,
    TaskGroupClosed,
    TaskGroupCompleted,
    TaskGroupCreated,
    TaskGroupId,
    TaskGroupReleased,
    TaskGroupReopened,
    TaskId,
    TasksAssigned,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
    Timestamp,
)
from penstock.events.tasks import NO_JSON
from penstock.projections.read_models.archive import Archive
from penstock.projections.read_models.group_change import GroupChange
from penstock.projections.read_models.in_flight import ActiveTask, Assignment, InFlight
from penstock.projections.read_models.states import (
    ASSIGNED,
    CANCELLED,
    READY,
    RUNNING,
    WAITING,
)
from penstock.projections.read_models.text import storable

Columns = dict[str, Any]
"""Values by the name of their column."""

_json = msgspec.json.Encoder()


class NewRange(msgspec.Struct):
    """A row of `task_ranges`; the fields are its columns, in order."""

    first: TaskId
    count: int
    taken: int
    task_group_id: TaskGroupId
    priority: int
    sequence: int
    event_index: int
    event_offset: int
    is_array: bool
    key: str | None
    submitted_at: Timestamp
    submitted_by: str
    rest_cancelled_at: Timestamp | None = None
    rest_cancel_reason: str | None = None


class NetEffect:
    """What a batch does to each table."""

    def __init__(self) -> None:
        self.groups: list[Columns] = []
        self.task_groups: list[Columns] = []
        self.task_group_updates: dict[TaskGroupId, Columns] = {}
        self.group_changes: dict[TaskGroupId, GroupChange] = {}
        self.managers: dict[ManagerId, Columns] = {}
        self.manager_updates: dict[ManagerId, Columns] = {}
        self.task_group_managers: dict[tuple[TaskGroupId, ManagerId], Timestamp | None] = {}
        self.ranges: list[NewRange] = []
        self.taken: list[tuple[TaskId, TaskId]] = []
        """Tasks of earlier ranges that were assigned for the first time, from and up to."""
        self.assignments: dict[TaskId, Assignment] = {}
        self.assignments_ended: list[TaskId] = []
        self.active: dict[TaskId, ActiveTask] = {}
        self.active_ended: list[TaskId] = []
        self.archive = Archive()


def fold(in_flight: InFlight, entries: Iterable[Entry]) -> NetEffect:
    """Fold commits that follow each other and all that came before."""
    folding = _Fold(in_flight)
    for entry in entries:
        for index, event in enumerate(entry.commit.events):
            folding.evolve(event, entry.position.sequence, index)
    return folding.effect


class _Fold:
    def __init__(self, in_flight: InFlight) -> None:
        self.effect = NetEffect()
        self._in_flight = in_flight
        self._range_starts: list[TaskId] = []

    def evolve(self, event: AnyEvent, sequence: int, index: int) -> None:
        match event:
            case TasksFinished():
                self._finished(event)
            case TasksAssigned():
                self._assigned(event)
            case TasksStarted():
                self._started(event)
            case TasksSubmitted():
                self._submitted(event, sequence, index)
            case TasksRequeued():
                self._requeued(event)
            case TasksCancelled():
                self._cancelled(event)
            case TaskCancellationRequested():
                self._cancellation_requested(event)
            case GroupCreated():
                self.effect.groups.append(
                    {
                        "name": storable(event.group),
                        "created_at": event.at,
                        "created_by": storable(event.actor),
                    }
                )
            case TaskGroupCreated():
                self._task_group_created(event)
            case TaskGroupClosed():
                self._update_group(event.task_group_id, state="closed", closed_at=event.at)
            case TaskGroupReopened():
                self._update_group(
                    event.task_group_id,
                    state="open",
                    result=None,
                    closed_at=None,
                    completed_at=None,
                )
            case TaskGroupCancelled():
                self._update_group(
                    event.task_group_id,
                    state="cancelled",
                    result="cancelled",
                    cancelled_at=event.at,
                )
            case TaskGroupCompleted():
                self._update_group(
                    event.task_group_id,
                    state="complete",
                    result=event.result,
                    completed_at=event.at,
                )
            case TaskGroupAssigned():
                self.effect.task_group_managers[event.task_group_id, event.manager_id] = event.at
                self._update_manager(event.manager_id, task_group_id=event.task_group_id)
            case TaskGroupReleased():
                self.effect.task_group_managers[event.task_group_id, event.manager_id] = None
                self._update_manager(event.manager_id, task_group_id=None)
            case ManagerRegistered():
                self._manager_registered(event)
            case ManagerOnline():
                self._update_manager(
                    event.manager_id,
                    online=True,
                    incarnation=storable(event.incarnation),
                    online_at=event.at,
                )
            case ManagerOffline():
                self._update_manager(event.manager_id, online=False, offline_at=event.at)
            case LeaderElected():
                pass
            case _:
                assert_never(event)

    def _task_group_created(self, event: TaskGroupCreated) -> None:
        self.effect.task_groups.append(
            {
                "id": event.task_group_id,
                "name": storable(event.name),
                "group_name": storable(event.group),
                "description": storable(event.description),
                "state": "open",
                "priority": event.priority,
                "tags": [storable(tag) for tag in event.tags],
                "labels": [storable(label) for label in event.labels],
                "max_managers": event.max_managers,
                "task_prefetch_count": event.task_prefetch_count,
                "created_at": event.at,
                "created_by": storable(event.actor),
            }
        )

    def _update_group(self, task_group_id: TaskGroupId, **columns: Any) -> None:
        self.effect.task_group_updates.setdefault(task_group_id, {}).update(columns)

    def _manager_registered(self, event: ManagerRegistered) -> None:
        known = self.effect.managers.get(event.manager_id)
        self.effect.managers[event.manager_id] = {
            "id": event.manager_id,
            "groups": [storable(group) for group in event.groups],
            "tags": [storable(tag) for tag in event.tags],
            "labels": [storable(label) for label in event.labels],
            "worker_count": event.worker_count,
            "device": _json.encode(event.device).decode(),
            "registered_at": event.at if known is None else known["registered_at"],
        }

    def _update_manager(self, manager_id: ManagerId, **columns: Any) -> None:
        self.effect.manager_updates.setdefault(manager_id, {}).update(columns)

    def _change(self, task_group_id: TaskGroupId) -> GroupChange:
        change = self.effect.group_changes.get(task_group_id)
        if change is None:
            change = self.effect.group_changes[task_group_id] = GroupChange()
        return change

    def _submitted(self, event: TasksSubmitted, sequence: int, index: int) -> None:
        first = event.first
        runs = [(run.count, run.priority) for run in event.priorities] or [(event.count, 0)]
        for count, priority in runs:
            self.effect.ranges.append(
                NewRange(
                    first=first,
                    count=count,
                    taken=0,
                    task_group_id=event.task_group_id,
                    priority=priority,
                    sequence=sequence,
                    event_index=index,
                    event_offset=first - event.first,
                    is_array=event.template is not NO_JSON,
                    key=storable(event.key) or None,
                    submitted_at=event.at,
                    submitted_by=storable(event.actor),
                )
            )
            self._range_starts.append(first)
            first += count
        change = self._change(event.task_group_id)
        change.total += event.count
        change.counts[READY] += event.count

    def _assigned(self, event: TasksAssigned) -> None:
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
                    assigned_at=event.at,
                )
                self._in_flight.assign(assignment)
                self.effect.assignments[span.first] = assignment
                counts[READY] -= span.count
                counts[ASSIGNED] += span.count
                continue
            for task_id in range(span.first, span.first + span.count):
                task = self._activate(task_id, event.task_group_id, counts)
                task.attempt = span.attempt
                task.manager_id = event.manager_id
                task.assigned_at = event.at
                task.not_before = None
                self._enter(task, ASSIGNED, counts)

    def _take(self, first: TaskId, stop: TaskId) -> None:
        """Advance the ranges that hold these tasks: new ones here, others in the database.

        Ids only grow, so every range of this batch lies behind all earlier ones.
        """
        starts = self._range_starts
        index = bisect_right(starts, first) - 1
        if index < 0:
            taken = self.effect.taken
            end = min(stop, starts[0]) if starts else stop
            if taken and taken[-1][1] == first:
                taken[-1] = (taken[-1][0], end)
            else:
                taken.append((first, end))
            index = 0
        for new in self.effect.ranges[index:]:
            if new.first >= stop:
                break
            new.taken = max(new.taken, min(stop - new.first, new.count))

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
                task.assigned_at = assignment.assigned_at
                self._leave(assignment, 1)
            self._in_flight.active[task_id] = task
        self.effect.active[task_id] = task
        counts[task.state] -= 1
        return task

    def _enter(self, task: ActiveTask, state: int, counts: list[int]) -> None:
        task.state = state
        counts[state] += 1

    def _leave(self, assignment: Assignment, count: int) -> None:
        """Tasks of an assignment got rows of their own."""
        assignment.remaining -= count
        if assignment.remaining > 0:
            self.effect.assignments[assignment.first] = assignment
            return
        self._in_flight.forget(assignment)
        self.effect.assignments.pop(assignment.first, None)
        if assignment.stored:
            self.effect.assignments_ended.append(assignment.first)

    def _started(self, event: TasksStarted) -> None:
        change = self._change(event.task_group_id)
        for start in event.tasks:
            task = self._activate(start.task_id, event.task_group_id, change.counts)
            task.attempt = start.attempt
            task.manager_id = event.manager_id
            task.started_at = start.started_at
            task.worker = start.worker
            task.pid = start.pid or None
            self._enter(task, RUNNING, change.counts)
            change.started(start.started_at)

    def _requeued(self, event: TasksRequeued) -> None:
        change = self._change(event.task_group_id)
        for retry in event.tasks:
            task = self._activate(retry.result.task_id, event.task_group_id, change.counts)
            task.attempt = retry.result.attempt
            task.manager_id = task.assigned_at = task.started_at = task.worker = task.pid = None
            task.not_before = retry.not_before or None
            # Time alone makes it ready later on; readers compare `not_before` with their clock.
            later = retry.not_before > event.at
            self._enter(task, WAITING if later else READY, change.counts)
            if retry.result.started_at:
                change.started(retry.result.started_at)
            self.effect.archive.add_attempt(event, retry)

    def _cancellation_requested(self, event: TaskCancellationRequested) -> None:
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

    def _cancelled(self, event: TasksCancelled) -> None:
        change = self._change(event.task_group_id)
        if not event.tasks:
            self._rest_cancelled(event, change)
            return
        for span in event.tasks:
            for task_id in range(span.first, span.first + span.count):
                task = self._in_flight.active.get(task_id)
                change.counts[READY if task is None else task.state] -= 1
                self.effect.archive.add_cancelled(
                    event, task_id, 0 if task is None else task.attempt
                )
                if task is not None:
                    self._end(task)
            change.counts[CANCELLED] += span.count

    def _rest_cancelled(self, event: TasksCancelled, change: GroupChange) -> None:
        reason = storable(event.reason)
        change.cancel_rest(event.at, reason)
        for new in self.effect.ranges:
            if (
                new.task_group_id == event.task_group_id
                and new.taken < new.count
                and new.rest_cancelled_at is None
            ):
                new.rest_cancelled_at = event.at
                new.rest_cancel_reason = reason
        for task in list(self._in_flight.active.values()):
            if task.task_group_id == event.task_group_id and task.state in (WAITING, READY):
                self.effect.archive.add_cancelled(event, task.id, task.attempt)
                self._end(task)

    def _end(self, task: ActiveTask) -> None:
        del self._in_flight.active[task.id]
        self.effect.active.pop(task.id, None)
        if task.stored:
            self.effect.active_ended.append(task.id)

    def _finished(self, event: TasksFinished) -> None:
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
        self.effect.archive.add_finished(event, change)
