"""What the projector remembers between two batches: the tasks in flight, and nothing else.

It mirrors the tables `assignments` and `active_tasks`, is loaded from them and is thrown away
whenever a transaction fails. Changed in place: this runs for every task.
"""

from bisect import bisect_right, insort

import msgspec

from penstock.events import ManagerId, TaskGroupId, TaskId, Timestamp


class ActiveTask(msgspec.Struct):
    """A row of `active_tasks`."""

    id: TaskId
    task_group_id: TaskGroupId
    state: int
    attempt: int
    manager_id: ManagerId | None = None
    started_at: Timestamp | None = None
    worker: int | None = None
    not_before: Timestamp | None = None
    cancel_requested: bool = False
    stored: bool = False
    """Whether the database has the row."""


class Assignment(msgspec.Struct):
    """A row of `assignments`."""

    first: TaskId
    count: int
    remaining: int
    task_group_id: TaskGroupId
    manager_id: ManagerId
    stored: bool = False


class InFlight:
    def __init__(self) -> None:
        self.active: dict[TaskId, ActiveTask] = {}
        self.assignments: dict[TaskId, Assignment] = {}
        self._starts: list[TaskId] = []

    def assign(self, assignment: Assignment) -> None:
        self.assignments[assignment.first] = assignment
        if not self._starts or assignment.first > self._starts[-1]:
            self._starts.append(assignment.first)
        else:
            insort(self._starts, assignment.first)

    def assignment_of(self, task_id: TaskId) -> Assignment | None:
        """The assignment that a task without a row of its own is part of."""
        index = bisect_right(self._starts, task_id)
        if index:
            found = self.assignments[self._starts[index - 1]]
            if task_id < found.first + found.count:
                return found
        return None

    def forget(self, assignment: Assignment) -> None:
        del self.assignments[assignment.first]
        del self._starts[bisect_right(self._starts, assignment.first) - 1]
