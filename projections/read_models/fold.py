"""Folds a batch of commits to its net effect: the rows to write, however many events led to them.

A task that is assigned, started and finished within the batch is one row of `archived_tasks`. No
database here: what the fold must know of earlier batches is in `InFlight`, which it changes.
Whatever way a log is cut into batches, the tables are the same in the end.
"""

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
    TasksAssigned,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
)
from penstock.projections.read_models.in_flight import InFlight
from penstock.projections.read_models.net_effect import NetEffect
from penstock.projections.read_models.task_fold import TaskFold
from penstock.projections.read_models.text import storable

_json = msgspec.json.Encoder()


def fold(in_flight: InFlight, entries: Iterable[Entry]) -> NetEffect:
    """Fold commits that follow each other and all that came before."""
    folding = _Fold(in_flight)
    for entry in entries:
        for index, event in enumerate(entry.commit.events):
            folding.evolve(event, entry.position.sequence, index)
    folding.tasks.finish()
    return folding.effect


class _Fold:
    def __init__(self, in_flight: InFlight) -> None:
        self.effect = NetEffect()
        self.tasks = TaskFold(self.effect, in_flight)

    def evolve(self, event: AnyEvent, sequence: int, index: int) -> None:
        match event:
            case TasksFinished():
                self.tasks.finished(event)
            case TasksAssigned():
                self.tasks.assigned(event)
            case TasksStarted():
                self.tasks.started(event)
            case TasksSubmitted():
                self.tasks.submitted(event, sequence, index)
            case TasksRequeued():
                self.tasks.requeued(event)
            case TasksCancelled():
                self.tasks.cancelled(event)
            case TaskCancellationRequested():
                self.tasks.cancellation_requested(event)
            case TaskGroupCreated():
                self._task_group_created(event)
            case TaskGroupClosed():
                self._update_task_group(event.task_group_id, state="closed", closed_at=event.at)
            case TaskGroupReopened():
                self._update_task_group(
                    event.task_group_id,
                    state="open",
                    result=None,
                    closed_at=None,
                    completed_at=None,
                )
            case TaskGroupCancelled():
                self._update_task_group(
                    event.task_group_id,
                    state="cancelled",
                    result="cancelled",
                    cancelled_at=event.at,
                )
            case TaskGroupCompleted():
                self._update_task_group(
                    event.task_group_id,
                    state="complete",
                    result=event.result,
                    completed_at=event.at,
                )
            case TaskGroupAssigned():
                self.effect.task_group_managers[event.task_group_id, event.manager_id] = True
                self._update_manager(event.manager_id, task_group_id=event.task_group_id)
            case TaskGroupReleased():
                self.effect.task_group_managers[event.task_group_id, event.manager_id] = False
                self._update_manager(event.manager_id, task_group_id=None)
            case ManagerRegistered():
                self._manager_registered(event)
            case ManagerOnline():
                self._update_manager(event.manager_id, online=True, online_at=event.at)
            case ManagerOffline():
                self._update_manager(event.manager_id, online=False, offline_at=event.at)
            case LeaderElected() | GroupCreated():
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

    def _update_task_group(self, task_group_id: TaskGroupId, **columns: Any) -> None:
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
