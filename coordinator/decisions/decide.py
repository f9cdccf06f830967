"""One entrance to all decisions."""

from typing import assert_never

from penstock.coordinator.commands import (
    AnyCommand,
    CancelTask,
    CancelTaskGroup,
    CloseTaskGroup,
    CreateTaskGroup,
    Initialise,
    LoseManager,
    PassTime,
    RegisterManager,
    ReopenTaskGroup,
    ReportTasks,
    SubmitTasks,
    SynchroniseManager,
)
from penstock.coordinator.decisions import attempts, managers, task_groups, tasks
from penstock.coordinator.decisions.decision import Decision
from penstock.events import AnyEvent, GroupCreated, TaskGroupCreated, Timestamp
from penstock.projections import State

DEFAULT_GROUP = "default"
DEFAULT_TASK_GROUP = "default"


def decide(command: AnyCommand, state: State, now: Timestamp) -> Decision:
    """What follows from a command, or an error that says why it cannot be."""
    match command:
        case ReportTasks():
            return attempts.report(command, state, now)
        case SubmitTasks():
            return tasks.submit(command, state, now)
        case CancelTask():
            return tasks.cancel(command, state, now)
        case CreateTaskGroup():
            return task_groups.create(command, state, now)
        case CloseTaskGroup():
            return task_groups.close(command, state, now)
        case ReopenTaskGroup():
            return task_groups.reopen(command, state, now)
        case CancelTaskGroup():
            return task_groups.cancel(command, state, now)
        case RegisterManager():
            return managers.register(command, state, now)
        case SynchroniseManager():
            return managers.synchronise(command, state, now)
        case LoseManager():
            return managers.lose(command, state, now)
        case PassTime():
            return Decision(attempts.overdue(state, now))
        case Initialise():
            return _initialise(command, state, now)
        case _:
            assert_never(command)


def _initialise(command: Initialise, state: State, now: Timestamp) -> Decision:
    if state.groups:
        # A crash between two commits of a round may have left a group closed that is complete.
        return Decision(
            [
                event
                for group in state.task_groups.values()
                for event in task_groups.complete(group, now)
            ]
        )
    events: list[AnyEvent] = [
        GroupCreated(**command.origin(now), group=DEFAULT_GROUP),
        TaskGroupCreated(
            **command.origin(now),
            task_group_id=state.next_task_group_id,
            name=DEFAULT_TASK_GROUP,
            group=DEFAULT_GROUP,
            description="Takes the tasks that name no other task group.",
        ),
    ]
    return Decision(events)
