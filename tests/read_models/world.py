"""A naive model of tasks that makes legal logs: one entry per task, and what it should look like.

Moves are numbers, so that a random list of them is a random but legal story. The model knows
nothing of ranges, rows or batches.
"""

from collections import Counter
from dataclasses import dataclass, field

from tests.read_models.story import Story

from penstock.events import (
    SECOND,
    AnyEvent,
    Attempt,
    Outcome,
    Retry,
    Span,
    SpecRun,
    TaskCancellationRequested,
    TasksAssigned,
    Timestamp,
)
from penstock.events.tasks import TaskState

GROUPS = (1, 2)
MANAGERS = ("m1", "m2")
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed", "cancelled", "succeeded")


@dataclass
class Task:
    id: int
    group: int
    run: int
    """Which run of equal priority it belongs to: only those are taken in order."""
    state: TaskState = "ready"
    attempt: int = 0
    manager: str | None = None
    not_before: Timestamp = 0
    cancel_requested: bool = False


@dataclass
class World:
    story: Story = field(default_factory=Story)
    tasks: dict[int, Task] = field(default_factory=dict)
    pending: list[AnyEvent] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        self.story.begin(GROUPS[0], MANAGERS[0])
        self.story.commit(self.story.created(GROUPS[1]))
        for group in GROUPS:
            self.pending += self._submit(group, 3, 12)

    def play(self, moves: list[tuple[int, int, int]]) -> None:
        for kind, which, size in moves:
            group = GROUPS[which % 2]
            which //= 2
            moved = self._moves[kind % len(self._moves)](self, group, which, 1 + size)
            self.pending += moved
            if self.pending and size % 3:
                self._commit()
        if self.pending:
            self._commit()

    def _commit(self) -> None:
        self.story.commit(*self.pending)
        self.pending = []

    def state_of(self, task: Task) -> TaskState:
        if task.state == "waiting" and task.not_before <= self.story.now:
            return "ready"
        return task.state

    def counts(self, group: int) -> Counter[str]:
        return Counter(self.state_of(task) for task in self.tasks.values() if task.group == group)

    def _pick(self, group: int, which: int, size: int, *states: TaskState) -> list[Task]:
        found = [t for t in self.tasks.values() if t.group == group and t.state in states]
        start = which % len(found) if found else 0
        return found[start : start + size]

    def _submit(self, group: int, which: int, size: int) -> list[AnyEvent]:
        second = which % 4
        runs = [SpecRun(size, 0)] + ([SpecRun(second, 3)] if second else [])
        event = self.story.submitted(size + second, group, runs if which % 5 else None)
        if which % 5 == 0:
            runs = [SpecRun(size + second, 0)]
        task_id = event.first
        for run in runs:
            self.runs += 1
            for _ in range(run.count):
                self.tasks[task_id] = Task(task_id, group, self.runs)
                task_id += 1
        return [event]

    def _assign(self, group: int, which: int, size: int) -> list[AnyEvent]:
        fresh = [
            t
            for t in self.tasks.values()
            if t.group == group and t.state == "ready" and t.attempt == 0
        ]
        if not fresh:
            return []
        runs = sorted({t.run for t in fresh})
        chosen = [t for t in fresh if t.run == runs[which % len(runs)]][:size]
        return [self._assigned(group, which, chosen)]

    def _assign_again(self, group: int, which: int, size: int) -> list[AnyEvent]:
        chosen = [
            task
            for task in self._pick(group, which, 10_000, "waiting", "ready")
            if task.attempt and task.not_before <= self.story.now
        ][:size]
        return [self._assigned(group, which, chosen)] if chosen else []

    def _assigned(self, group: int, which: int, chosen: list[Task]) -> TasksAssigned:
        manager = MANAGERS[which // 2 % 2]
        spans: list[Span] = []
        for task in chosen:
            task.state = "assigned"
            task.attempt += 1
            task.manager = manager
            last = spans[-1] if spans else None
            if (
                last
                and last.attempt == task.attempt
                and last.first + last.count == task.id
                and self.tasks[last.first].run == task.run
            ):
                spans[-1] = Span(last.first, last.count + 1, last.attempt)
            else:
                spans.append(Span(task.id, 1, task.attempt))
        return self.story.assigned(*spans, task_group_id=group, manager_id=manager)

    def _start(self, group: int, which: int, size: int) -> list[AnyEvent]:
        chosen = self._pick(group, which, size, "assigned")
        for task in chosen:
            task.state = "running"
            task.manager = MANAGERS[0]
        attempts = [(task.id, task.attempt) for task in chosen]
        return [self.story.started(*attempts, task_group_id=group)] if chosen else []

    def _finish(self, group: int, which: int, size: int) -> list[AnyEvent]:
        chosen = self._pick(group, which, size, "assigned", "running")
        results = []
        for number, task in enumerate(chosen):
            task.state = OUTCOMES[(which + number) % 4]
            results.append(self.story.result(task.id, task.attempt, outcome=task.state))
        return [self.story.finished(*results, task_group_id=group)] if chosen else []

    def _requeue(self, group: int, which: int, size: int) -> list[AnyEvent]:
        retries = []
        for task in self._pick(group, which, size, "assigned", "running"):
            later = which % 3 * 4 * SECOND
            task.not_before = self.story.now + later if later else 0
            task.state = "waiting" if later else "ready"
            task.manager = None
            result = self.story.result(task.id, task.attempt, outcome="failed", cause="signal")
            retries.append(Retry(result=result, not_before=task.not_before))
        return [self.story.requeued(*retries, task_group_id=group)] if retries else []

    def _cancel(self, group: int, which: int, size: int) -> list[AnyEvent]:
        chosen = self._pick(group, which, size, "waiting", "ready")
        for task in chosen:
            task.state = "cancelled"
        spans = [Span(task.id, 1) for task in chosen]
        return [self.story.cancelled(*spans, task_group_id=group)] if chosen else []

    def _cancel_rest(self, group: int, which: int, size: int) -> list[AnyEvent]:
        if which % 3:
            return []
        for task in self._pick(group, 0, 10_000, "waiting", "ready"):
            task.state = "cancelled"
        return [self.story.cancelled(task_group_id=group)]

    def _request_cancel(self, group: int, which: int, size: int) -> list[AnyEvent]:
        chosen = self._pick(group, which, size, "assigned", "running")
        for task in chosen:
            task.cancel_requested = True
        asked = [Attempt(task.id, task.attempt) for task in chosen]
        if not asked:
            return []
        event = TaskCancellationRequested(**self.story.facts, task_group_id=group, tasks=asked)
        return [event]

    _moves = (
        _submit,
        _assign,
        _finish,
        _start,
        _requeue,
        _assign_again,
        _cancel,
        _cancel_rest,
        _request_cancel,
        _assign,
        _finish,
    )
