"""Decisions about tasks that users ask for: submission and cancellation."""

from penstock.coordinator.commands import CancelTask, SubmitTasks
from penstock.coordinator.decisions.decision import Decision, Submitted
from penstock.errors import Conflict, NotFound, Rejected
from penstock.events import (
    AnyEvent,
    Attempt,
    Span,
    SpecRun,
    TaskCancellationRequested,
    TaskGroupId,
    TasksCancelled,
    TasksSubmitted,
    Timestamp,
)
from penstock.projections import Open, State, find_range, has_ended
from penstock.projections.state import Submission, submission_key, task_key


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
        runs=[] if command.runs == [SpecRun(command.count)] else command.runs,
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
    if source is None or has_ended(state, task_id):
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
