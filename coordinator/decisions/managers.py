"""Decisions about managers: registration, synchronisation, loss."""

from penstock.coordinator.commands import LoseManager, RegisterManager, SynchroniseManager
from penstock.coordinator.decisions.attempts import lost
from penstock.coordinator.decisions.decision import Decision, Synchronised
from penstock.errors import NotFound
from penstock.events import (
    AnyEvent,
    Attempt,
    ManagerOffline,
    ManagerOnline,
    ManagerRegistered,
    TaskGroupReleased,
    Timestamp,
)
from penstock.events.manager_protocol import Held
from penstock.projections import Manager, Online, State


def register(command: RegisterManager, state: State, now: Timestamp) -> Decision:
    unknown = [group for group in command.groups if group not in state.groups]
    if unknown:
        raise NotFound(f"There is no group {unknown[0]!r}.", group=unknown[0])
    known = state.managers.get(command.manager_id)
    if known is not None and (
        known.groups == frozenset(command.groups)
        and known.tags == frozenset(command.tags)
        and known.labels == frozenset(command.labels)
        and known.worker_count == command.worker_count
        and known.device == command.device
    ):
        return Decision(answer=command.manager_id)
    registered = ManagerRegistered(
        **command.origin(now),
        manager_id=command.manager_id,
        groups=command.groups,
        tags=command.tags,
        labels=command.labels,
        worker_count=command.worker_count,
        device=command.device,
    )
    return Decision([registered], command.manager_id)


def synchronise(command: SynchroniseManager, state: State, now: Timestamp) -> Decision:
    """Compare what the manager holds with what the log says that it holds.

    A task that the same process does not hold was pushed and did not arrive: push it again. A new
    process cannot know what its predecessor had begun, so what it does not hold is lost, and gets
    a new attempt.
    """
    manager = state.managers.get(command.manager_id)
    if manager is None:
        raise NotFound(f"Manager {command.manager_id!r} is not registered.")
    events: list[AnyEvent] = []
    same_process = (
        isinstance(manager.connection, Online)
        and manager.connection.incarnation == command.incarnation
    )
    if not same_process:
        events.append(
            ManagerOnline(
                **command.origin(now),
                manager_id=manager.id,
                incarnation=command.incarnation,
            )
        )
    held = {task.task_id: task.attempt for task in command.held}
    missing = [
        task_id
        for task_id in sorted(manager.tasks)
        if held.get(task_id) != state.tasks[task_id].attempt
    ]
    if same_process:
        start = [Attempt(task_id, state.tasks[task_id].attempt) for task_id in missing]
        return Decision(events, Synchronised(start=start))
    events += lost(state, manager.id, missing, "The manager was restarted.", now)
    return Decision(events, Synchronised(start=[]))


def to_drop(state: State, manager: Manager, held: list[Held]) -> list[Attempt]:
    """What a manager holds and should not."""
    return [
        Attempt(task.task_id, task.attempt)
        for task in held
        if task.task_id not in manager.tasks or state.tasks[task.task_id].attempt != task.attempt
    ]


def to_cancel(state: State, manager: Manager) -> list[Attempt]:
    """What a manager holds and was asked to end."""
    return [
        Attempt(task_id, task.attempt)
        for task_id in sorted(manager.tasks)
        if (task := state.tasks[task_id]).cancel_requested
    ]


def lose(command: LoseManager, state: State, now: Timestamp) -> Decision:
    manager = state.managers[command.manager_id]
    # A crash may have left a manager offline that still holds tasks: the events are many.
    online = isinstance(manager.connection, Online)
    offline = [ManagerOffline(**command.origin(now), manager_id=manager.id)] if online else []
    return Decision(
        [
            *offline,
            *lost(state, manager.id, sorted(manager.tasks), command.reason, now),
            *release(manager, now, command.reason),
        ]
    )


def release(manager: Manager, now: Timestamp, reason: str) -> list[AnyEvent]:
    if manager.task_group_id is None:
        return []
    return [
        TaskGroupReleased(
            at=now,
            actor="coordinator",
            reason=reason,
            task_group_id=manager.task_group_id,
            manager_id=manager.id,
        )
    ]
