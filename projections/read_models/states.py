"""The states of a task as small numbers, in the order of a task's life: so they are stored.

The indexes of `archived_tasks` and some queries spell the numbers out; they never change.
"""

from penstock.events.tasks import TASK_STATES, TaskState

WAITING, READY, ASSIGNED, RUNNING, SUCCEEDED, FAILED, CANCELLED = range(7)

CODES: dict[TaskState, int] = {name: code for code, name in enumerate(TASK_STATES)}
