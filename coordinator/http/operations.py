"""Every operation of the HTTP interface: the routes and their description are made from this."""

from penstock.coordinator.decisions.decision import CancellationStatistics
from penstock.coordinator.http import managers, system, task_groups, tasks
from penstock.coordinator.http.operation import (
    AT_LEAST,
    CURSOR,
    LIMIT,
    WAIT,
    Operation,
    Query,
)
from penstock.coordinator.http.submit import SubmissionView
from penstock.events.tasks import TASK_STATES
from penstock.projections.read_models import (
    ManagerView,
    Page,
    ProgressView,
    TaskGroupView,
    TaskView,
)

TASK_STATE = Query("state", {"type": "string", "enum": list(TASK_STATES)}, "Only these tasks.")
GROUP_STATE = Query(
    "state", {"type": "string", "enum": list(task_groups.STATES)}, "Only these task groups."
)
TASK_GROUP = Query("task_group", {"type": "string"}, "Id or name of a task group.")

OPERATIONS = [
    Operation(
        method="GET",
        path="/health",
        handler=system.health,
        summary="Whether this process runs.",
        answer=system.Health,
        needs_token=False,
    ),
    Operation(
        method="GET",
        path="/ready",
        handler=system.ready,
        summary="Whether this coordinator can take requests.",
        answer=system.Readiness,
        needs_token=False,
    ),
    Operation(
        method="GET",
        path="/status",
        handler=system.status,
        summary="The whole system in numbers.",
        answer=system.Status,
        query=(AT_LEAST,),
    ),
    Operation(
        method="GET",
        path="/log",
        handler=system.log,
        summary="Commits as they stand in the log, one JSON line each.",
        media_types=("application/x-ndjson",),
        query=(
            Query("from", {"type": "integer", "minimum": 1}, "First sequence."),
            Query("to", {"type": "integer", "minimum": 0}, "Last sequence; 0 is the end."),
            Query("follow", {"type": "integer", "enum": [0, 1]}, "Go on with new commits."),
        ),
    ),
    Operation(
        method="POST",
        path="/tasks",
        handler=tasks.submit,
        summary="Submit tasks: one, a list, an array, or one per line.",
        body=tasks.NewTasks,
        answer=SubmissionView,
        status=201,
        query=(WAIT, TASK_GROUP),
    ),
    Operation(
        method="GET",
        path="/tasks",
        handler=tasks.index,
        summary="Tasks in the order of their ids.",
        answer=Page[TaskView],
        query=(TASK_GROUP, TASK_STATE, CURSOR, LIMIT, AT_LEAST),
    ),
    Operation(
        method="GET",
        path="/tasks/{id}",
        handler=tasks.show,
        summary="One task, with its spec and its earlier attempts.",
        answer=TaskView,
        query=(WAIT, AT_LEAST),
    ),
    Operation(
        method="GET",
        path="/tasks/{id}/output",
        handler=tasks.output,
        summary="What a task wrote.",
        answer=tasks.Output,
        query=(AT_LEAST,),
    ),
    Operation(
        method="POST",
        path="/tasks/{id}/cancel",
        handler=tasks.cancel,
        summary="Cancel a task.",
        body=task_groups.Reason,
        answer=TaskView,
    ),
    Operation(
        method="POST",
        path="/task-groups",
        handler=task_groups.create,
        summary="Create a task group.",
        body=task_groups.NewTaskGroup,
        answer=TaskGroupView,
        status=201,
    ),
    Operation(
        method="GET",
        path="/task-groups",
        handler=task_groups.index,
        summary="Task groups in the order of their ids.",
        answer=Page[TaskGroupView],
        query=(GROUP_STATE, CURSOR, LIMIT, AT_LEAST),
    ),
    Operation(
        method="GET",
        path="/task-groups/{id}",
        handler=task_groups.show,
        summary="One task group.",
        answer=TaskGroupView,
        query=(AT_LEAST,),
    ),
    Operation(
        method="GET",
        path="/task-groups/{id}/progress",
        handler=task_groups.progress,
        summary="How far a task group has come; as a stream of events until it is done.",
        answer=ProgressView,
        media_types=("application/json", "text/event-stream"),
        query=(AT_LEAST,),
    ),
    Operation(
        method="POST",
        path="/task-groups/{id}/close",
        handler=task_groups.close,
        summary="Take no more tasks.",
        body=task_groups.Reason,
        answer=TaskGroupView,
    ),
    Operation(
        method="PUT",
        path="/task-groups/{id}/reopen",
        handler=task_groups.reopen,
        summary="Take tasks again.",
        body=task_groups.Reason,
        answer=TaskGroupView,
    ),
    Operation(
        method="POST",
        path="/task-groups/{id}/cancel",
        handler=task_groups.cancel,
        summary="Cancel a task group and its tasks.",
        body=task_groups.Cancellation,
        answer=CancellationStatistics,
    ),
    Operation(
        method="POST",
        path="/managers",
        handler=managers.register,
        summary="Register a manager.",
        body=managers.NewManager,
        answer=managers.Registered,
        status=201,
    ),
    Operation(
        method="GET",
        path="/managers",
        handler=managers.index,
        summary="All managers.",
        answer=Page[ManagerView],
        query=(AT_LEAST,),
    ),
    Operation(
        method="GET",
        path="/managers/{id}",
        handler=managers.show,
        summary="One manager.",
        answer=ManagerView,
        query=(AT_LEAST,),
    ),
]
