"""Decisions about attempts: what executors report, lose, or let run for too long."""

from typing import TypeVar

import msgspec

from penstock.coordinator.commands import ReportTasks
from penstock.coordinator.decisions.decision import Decision
from penstock.coordinator.decisions.retry import may_retry, not_before
from penstock.events import (
    AnyEvent,
    Attempt,
    AttemptResult,
    ManagerId,
    Retry,
    TaskGroupId,
    TaskId,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TaskStart,
    Timestamp,
)
from penstock.projections import LiveTask, State, range_of

T = TypeVar("T")

TASKS_PER_EVENT = 1000
OVERDUE = "Ran past its time-out, and its manager did not end it."
"""The reason of what the coordinator ended by itself: the manager has to be told."""


def report(command: ReportTasks, state: State, now: Timestamp) -> Decision:
    """Only the current attempt, at the manager that holds it, can say anything."""
    events: list[AnyEvent] = []
    manager_id = command.manager_id
    live = state.tasks
    started: dict[TaskGroupId, list[TaskStart]] = {}
    for start in command.started:
        task = live.get(start.task_id)
        if (
            task is not None
            and task.state == "assigned"
            and task.attempt == start.attempt
            and task.manager_id == manager_id
        ):
            started.setdefault(task.task_group_id, []).append(start)
    ended = [*command.finished, *(_given_back(given, now) for given in command.returned)]
    over = Endings(state, now)
    for result in ended:
        task = live.get(result.task_id)
        if task is not None and task.attempt == result.attempt and task.manager_id == manager_id:
            over.add(task, result)
    for task_group_id, starts in started.items():
        unended = list({s.task_id: s for s in starts if s.task_id not in over.seen}.values())
        if unended:
            events.append(
                TasksStarted(
                    at=now,
                    actor=command.actor,
                    task_group_id=task_group_id,
                    manager_id=manager_id,
                    tasks=unended,
                )
            )
    events += over.events(manager_id, command.actor)
    return Decision(events)


class Endings:
    """Sorts ended attempts into tasks that are decided and tasks that get another attempt."""

    def __init__(self, state: State, now: Timestamp) -> None:
        self._state = state
        self._now = now
        self._finished: dict[TaskGroupId, list[AttemptResult]] = {}
        self._requeued: dict[TaskGroupId, list[Retry]] = {}
        self.seen: set[int] = set()

    def add(self, task: LiveTask, result: AttemptResult) -> None:
        if result.task_id in self.seen:
            return
        self.seen.add(result.task_id)
        if result.outcome == "failed":
            source = range_of(self._state, result.task_id)
            if task.cancel_requested and result.cause in ("executor_lost", "returned"):
                result = msgspec.structs.replace(result, outcome="cancelled", cause="cancelled")
            elif not task.cancel_requested and may_retry(source.retry, task.failures, result):
                retry = Retry(
                    result=result,
                    not_before=not_before(source.retry, result.task_id, result, self._now),
                    counts=_blames_task(task, result),
                )
                self._requeued.setdefault(task.task_group_id, []).append(retry)
                return
            else:
                result = _with_history(task, result)
        self._finished.setdefault(task.task_group_id, []).append(result)

    def events(self, manager_id: ManagerId, actor: str, reason: str = "") -> list[AnyEvent]:
        finished: list[AnyEvent] = [
            TasksFinished(
                at=self._now,
                actor=actor,
                reason=reason,
                task_group_id=task_group_id,
                manager_id=manager_id,
                tasks=some,
            )
            for task_group_id, results in self._finished.items()
            for some in _parts(results)
        ]
        requeued: list[AnyEvent] = [
            TasksRequeued(
                at=self._now,
                actor=actor,
                reason=reason,
                task_group_id=task_group_id,
                manager_id=manager_id,
                tasks=some,
            )
            for task_group_id, retries in self._requeued.items()
            for some in _parts(retries)
        ]
        return [*finished, *requeued]


def _parts(whole: list[T]) -> list[list[T]]:
    """An event must fit into a commit, whatever a result holds."""
    return [
        whole[place : place + TASKS_PER_EVENT] for place in range(0, len(whole), TASKS_PER_EVENT)
    ]


def lost(
    state: State, manager_id: ManagerId, task_ids: list[TaskId], message: str, now: Timestamp
) -> list[AnyEvent]:
    """Tasks that a manager held and holds no more, through no doing of its own."""
    over = Endings(state, now)
    for task_id in task_ids:
        task = state.tasks[task_id]
        over.add(
            task,
            AttemptResult(
                task_id=task_id,
                attempt=task.attempt,
                outcome="failed",
                cause="executor_lost",
                message=message,
                started_at=task.started_at,
                ended_at=now,
            ),
        )
    return over.events(manager_id, "coordinator", message)


def overdue(state: State, now: Timestamp) -> list[AnyEvent]:
    """Running tasks whose manager should have ended them long ago."""
    by_manager: dict[ManagerId, Endings] = {}
    if not state.deadlines or state.deadlines[0][0] > now:
        return []
    for deadline, task_id, attempt in state.deadlines:
        task = state.tasks.get(task_id)
        if deadline > now or task is None or task.attempt != attempt or task.state != "running":
            continue
        result = AttemptResult(
            task_id=task_id,
            attempt=attempt,
            outcome="failed",
            cause="timeout",
            message=OVERDUE,
            started_at=task.started_at,
            ended_at=now,
        )
        by_manager.setdefault(task.manager_id, Endings(state, now)).add(task, result)
    return [
        event
        for manager_id, over in by_manager.items()
        for event in over.events(manager_id, "coordinator", OVERDUE)
    ]


def _given_back(given: Attempt, now: Timestamp) -> AttemptResult:
    return AttemptResult(
        task_id=given.task_id,
        attempt=given.attempt,
        outcome="failed",
        cause="returned",
        message="The manager gave the task back before it began.",
        ended_at=now,
    )


def _blames_task(task: LiveTask, result: AttemptResult) -> bool:
    """A task that had not begun when its executor was lost has done nothing wrong."""
    if result.cause == "returned":
        return False
    return result.cause != "executor_lost" or task.state == "running" or result.started_at > 0


def _with_history(task: LiveTask, result: AttemptResult) -> AttemptResult:
    """Say how often the worker died, when that is why the task is given up."""
    if result.cause != "worker_death":
        return result
    deaths = 1 + sum(1 for failure in task.failures if failure.cause == "worker_death")
    message = f"Worker failed {deaths} times: {result.message}"
    return msgspec.structs.replace(result, message=message)
