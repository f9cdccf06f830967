"""Decisions about tasks: submission, cancellation, and what executors report."""

from typing import TypeVar

import msgspec

from penstock.coordinator.commands import CancelTask, ReportTasks, SubmitTasks
from penstock.coordinator.decisions.decision import Decision, Submitted
from penstock.coordinator.decisions.retry import may_retry, not_before
from penstock.errors import Conflict, NotFound, Rejected
from penstock.events import (
    AnyEvent,
    Attempt,
    AttemptResult,
    ManagerId,
    PriorityRun,
    Retry,
    Span,
    TaskCancellationRequested,
    TaskGroupId,
    TaskId,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
    TaskStart,
    Timestamp,
)
from penstock.projections import LiveTask, Open, State, find_range, range_of
from penstock.projections.state import Submission, submission_key, task_key

T = TypeVar("T")

TASKS_PER_EVENT = 1000


def submit(command: SubmitTasks, state: State, now: Timestamp) -> Decision:
    group = state.task_group(command.task_group_id)
    if command.key:
        known = state.keys.get(submission_key(group.id, command.key))
        if known is not None:
            if known.digest != command.key_digest:
                raise Conflict(
                    "The idempotency key was used before, for another submission. "
                    "Use a new key for a new submission.",
                    key=command.key,
                )
            if sum(count for _, count in known.ranges) > command.offset:
                return _repeated(group.id, known)
    for key in command.task_keys:
        first = state.keys.get(task_key(group.id, key))
        if first is not None and command.count > 1:
            raise Conflict(
                f"A task with key {key!r} exists already in this task group. "
                "Leave it out, or submit it alone to learn its id.",
                key=key,
                task_id=first.ranges[0][0],
            )
        if first is not None:
            return _repeated(group.id, first)
    if not isinstance(group.lifecycle, Open):
        state_name = type(group.lifecycle).__name__.lower()
        raise Rejected(
            f"Task group {group.name!r} is {state_name} and takes no tasks. "
            "Reopen it if it is closed, or use another.",
            task_group_id=group.id,
            state=state_name,
        )
    first_id = state.next_task_id
    submitted = TasksSubmitted(
        **command.origin(now),
        task_group_id=group.id,
        first=first_id,
        count=command.count,
        priorities=[] if command.runs == [PriorityRun(command.count)] else command.runs,
        first_index=command.first_index,
        step=command.step,
        key=command.key,
        key_digest=command.key_digest,
        offset=command.offset,
        task_keys={key: first_id + place for key, place in command.task_keys.items()},
        specs=command.specs,
        template=command.template,
        parameters=command.parameters,
    )
    return Decision(
        [submitted],
        Submitted(task_group_id=group.id, ranges=[(first_id, command.count)], at=now),
    )


def _repeated(task_group_id: TaskGroupId, known: Submission) -> Decision:
    answer = Submitted(
        task_group_id=task_group_id, ranges=list(known.ranges), at=known.at, duplicate=True
    )
    return Decision(answer=answer)


def cancel(command: CancelTask, state: State, now: Timestamp) -> Decision:
    """Answers with the task group of the task."""
    task_id = command.task_id
    task = state.tasks.get(task_id)
    source = find_range(state, task_id)
    if source is None or (task is None and (task_id < source.next or task_id in source.skipped)):
        if 0 < task_id < state.next_task_id:
            raise Rejected(f"Task {task_id} has ended already.", task_id=task_id)
        raise NotFound(f"There is no task {task_id}.", task_id=task_id)
    event: AnyEvent
    if task is not None and task.state in ("assigned", "running"):
        if task.cancel_requested:
            return Decision(answer=task.task_group_id)
        event = TaskCancellationRequested(
            **command.origin(now),
            task_group_id=task.task_group_id,
            tasks=[Attempt(task_id, task.attempt)],
        )
    else:
        event = TasksCancelled(
            **command.origin(now),
            task_group_id=source.task_group_id,
            tasks=[Span(task_id, 1, task.attempt if task else 1)],
        )
    return Decision([event], source.task_group_id)


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
            message="Ran past its time-out, and its manager did not end it.",
            started_at=task.started_at,
            ended_at=now,
        )
        by_manager.setdefault(task.manager_id, Endings(state, now)).add(task, result)
    return [
        event
        for manager_id, over in by_manager.items()
        for event in over.events(manager_id, "coordinator", "time-out")
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
