"""What a batch of commits does to each table."""

from typing import Any

import msgspec

from penstock.events import ManagerId, TaskGroupId, TaskId, Timestamp
from penstock.projections.read_models.archive import Archive, Row
from penstock.projections.read_models.task_group_change import TaskGroupChange

Columns = dict[str, Any]
"""Values by the name of their column."""


class NewRange(msgspec.Struct):
    """A row of `task_ranges`; the fields are its columns, in order."""

    first: TaskId
    count: int
    taken: int
    task_group_id: TaskGroupId
    priority: int
    sequence: int
    event_index: int
    submitted_at: Timestamp
    rest_cancelled_at: Timestamp | None = None
    rest_cancel_reason: str | None = None


class NetEffect:
    """What a batch does to each table."""

    def __init__(self) -> None:
        self.task_groups: list[Columns] = []
        self.task_group_updates: dict[TaskGroupId, Columns] = {}
        self.task_group_changes: dict[TaskGroupId, TaskGroupChange] = {}
        self.managers: dict[ManagerId, Columns] = {}
        self.manager_updates: dict[ManagerId, Columns] = {}
        self.task_group_managers: dict[tuple[TaskGroupId, ManagerId], bool] = {}
        """Whether the manager works for the task group."""
        self.ranges: list[NewRange] = []
        self.taken: list[tuple[TaskId, TaskId]] = []
        """Tasks of earlier ranges that were assigned for the first time, from and up to."""
        self.assignments_ended: list[TaskId] = []
        self.assignments_changed: list[Row] = []
        self.assignments: list[Row] = []
        self.active_ended: list[TaskId] = []
        self.active_changed: list[Row] = []
        self.active: list[Row] = []
        self.archive = Archive()
