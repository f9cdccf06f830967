"""Decisions about tasks that users ask for: submission and cancellation."""

from penstock.coordinator.commands import CancelTask, SubmitTasks
from penstock.coordinator.decisions.decision import Decision, Submitted
from penstock.coordinator.decisions.task_groups import unfit
from penstock.errors import Conflict, NotFound, Rejected
from penstock.events import (
    AnyEvent,
    Attempt,
    Span,
    SpecRun,
    TaskCancellationRequested,
    TasksCancelled,
    TasksSubmitted,
    Timestamp,
)
from penstock.projections import Open, State, find_range, has_ended
from penstock.projections.state import Submission, submission_key, task_key


def submit(command: SubmitTasks, state: State, now: Timestamp) -> Decision:
    group = state.task_group(command.task_group_id)
    chunk = command.chunk
    repeated = _repeat_of(command, state)
    if repeated is not None:
        return Decision(
            answer=Submitted(ranges=list(repeated.ranges), at=repeated.at, duplicate=True)
        )
    if not isinstance(group.lifecycle, Open):
        raise unfit(group, "take tasks")
    first_id = state.next_task_id
    submitted = TasksSubmitted(
        **command.origin(now),
        task_group_id=group.id,
        first=first_id,
        count=chunk.count,
        runs=[] if chunk.runs == [SpecRun(chunk.count)] else chunk.runs,
        specs=chunk.specs,
        template=chunk.template,
        parameters=chunk.parameters,
        first_index=chunk.first_index,
        step=chunk.step,
        key=command.key,
        key_digest=command.key_digest,
        offset=chunk.offset,
        task_keys={key: first_id + index for key, index in chunk.task_keys.items()},
    )
    return Decision([submitted], Submitted(ranges=[(first_id, chunk.count)], at=now))


def _repeat_of(command: SubmitTasks, state: State) -> Submission | None:
    """What was submitted before under the same key, of the submission or of its only task."""
    if command.key:
        known = state.keys.get(submission_key(command.task_group_id, command.key))
        if known is not None:
            if known.digest != command.key_digest:
                raise Conflict(
                    "The idempotency key was used before, for another submission. "
                    "Use a new key for a new submission.",
                    key=command.key,
                )
            if sum(count for _, count in known.ranges) > command.chunk.offset:
                return known
    for key in command.chunk.task_keys:
        known = state.keys.get(task_key(command.task_group_id, key))
        if known is None:
            continue
        if command.chunk.count == 1:
            return known
        raise Conflict(
            f"A task with key {key!r} exists already in this task group. "
            "Leave it out, or submit it alone to learn its id.",
            key=key,
            task_id=known.ranges[0][0],
        )
    return None


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
