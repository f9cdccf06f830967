"""The client library: `penstock.Client` and the values that it returns."""

from penstock.client.client import Client
from penstock.client.models import (
    CancelledTasks,
    Counts,
    Health,
    LogLine,
    Manager,
    Output,
    Progress,
    Status,
    Submission,
    Task,
    TaskGroup,
    TaskGroupState,
)
from penstock.events.tasks import TaskState

__all__ = [
    "CancelledTasks",
    "Client",
    "Counts",
    "Health",
    "LogLine",
    "Manager",
    "Output",
    "Progress",
    "Status",
    "Submission",
    "Task",
    "TaskGroup",
    "TaskGroupState",
    "TaskState",
]
