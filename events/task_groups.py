"""Events of task groups."""

from typing import Literal

from penstock.events.event import Event, ManagerId, Small, TaskGroupId
from penstock.events.spec import Priority

TaskGroupResult = Literal["success", "prep_failed", "cleanup_degraded", "cancelled"]


class GroupCreated(Event, frozen=True, kw_only=True, tag="group_created"):
    """A group of people and machines. Task groups, managers and workers belong to groups."""

    group: str


class TaskGroupCreated(Event, frozen=True, kw_only=True, tag="task_group_created"):
    task_group_id: TaskGroupId
    name: str
    group: str
    description: str = ""
    priority: Priority = 0
    tags: list[str] = []
    labels: list[str] = []
    max_managers: Small | None = None
    task_prefetch_count: Small | None = None
    key: str = ""
    """Idempotency key of the request."""


class TaskGroupClosed(Event, frozen=True, kw_only=True, tag="task_group_closed"):
    task_group_id: TaskGroupId


class TaskGroupReopened(Event, frozen=True, kw_only=True, tag="task_group_reopened"):
    task_group_id: TaskGroupId


class TaskGroupCancelled(Event, frozen=True, kw_only=True, tag="task_group_cancelled"):
    task_group_id: TaskGroupId


class TaskGroupCompleted(Event, frozen=True, kw_only=True, tag="task_group_completed"):
    task_group_id: TaskGroupId
    result: TaskGroupResult


class TaskGroupAssigned(Event, frozen=True, kw_only=True, tag="task_group_assigned"):
    """The manager works for this task group from now on."""

    task_group_id: TaskGroupId
    manager_id: ManagerId


class TaskGroupReleased(Event, frozen=True, kw_only=True, tag="task_group_released"):
    """The manager no longer works for this task group."""

    task_group_id: TaskGroupId
    manager_id: ManagerId
