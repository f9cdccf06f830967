"""Logs for tests: commits that follow each other, in a log in memory and as a reader gets them."""

from typing import Any

import asyncpg
import msgspec

from penstock.events import (
    SECOND,
    START,
    AnyEvent,
    AttemptResult,
    Commit,
    Entry,
    GroupCreated,
    ManagerOnline,
    ManagerRegistered,
    Outcome,
    Retry,
    Span,
    SpecRun,
    TaskGroupAssigned,
    TaskGroupCreated,
    TasksAssigned,
    TasksCancelled,
    TasksFinished,
    TasksRequeued,
    TasksStarted,
    TasksSubmitted,
    TaskStart,
    digest,
    encode,
    follow,
)
from penstock.events.append import Offer
from penstock.events.memory import MemoryLog
from penstock.projections.read_models import tables
from penstock.projections.read_models.database import Connection

BEGIN = 1_770_000_000 * SECOND
MANAGER = "m1"
ARRAY = msgspec.Raw(b'{"handler":"a:b"}')


class Story:
    """Each commit comes a second after the one before it."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.now = BEGIN
        self.entries: list[Entry] = []
        self.next_task_id = 1

    def commit(self, *events: AnyEvent) -> Entry:
        position = self.entries[-1].position if self.entries else START
        body = encode(
            Commit(
                id=f"c{position.counter + 1}",
                counter=position.counter + 1,
                previous=position.hash,
                at=self.now,
                events=list(events),
            )
        )
        place = position.sequence + 1
        refusal = self.log.storage.take(Offer(body=body, hash=digest(body), place=place, epoch=0))
        assert refusal is None
        entry = Entry(*follow(position, place, body, digest(body)), len(body))
        self.entries.append(entry)
        self.now += SECOND
        return entry

    @property
    def facts(self) -> dict[str, Any]:
        """What every event carries."""
        return {"at": self.now, "actor": "tester"}

    def created(self, task_group_id: int = 1, **fields: Any) -> TaskGroupCreated:
        name = f"campaign-{task_group_id}"
        return TaskGroupCreated(
            **self.facts,
            task_group_id=task_group_id,
            **({"name": name, "group": "default"} | fields),
        )

    def begin(self, task_group_id: int = 1, manager_id: str = MANAGER) -> None:
        """A group, a task group and a manager that works for it."""
        self.commit(
            GroupCreated(**self.facts, group="default"),
            self.created(task_group_id),
            ManagerRegistered(
                **self.facts, manager_id=manager_id, groups=["default"], worker_count=2
            ),
            ManagerOnline(**self.facts, manager_id=manager_id, incarnation="i1"),
            TaskGroupAssigned(**self.facts, task_group_id=task_group_id, manager_id=manager_id),
        )

    def submitted(
        self, count: int, task_group_id: int = 1, runs: list[SpecRun] | None = None
    ) -> TasksSubmitted:
        first = self.next_task_id
        self.next_task_id += count
        return TasksSubmitted(
            **self.facts,
            task_group_id=task_group_id,
            first=first,
            count=count,
            runs=runs or [],
            template=ARRAY,
        )

    def assigned(
        self, *spans: Span, task_group_id: int = 1, manager_id: str = MANAGER
    ) -> TasksAssigned:
        return TasksAssigned(
            **self.facts, task_group_id=task_group_id, manager_id=manager_id, tasks=list(spans)
        )

    def started(self, *attempts: tuple[int, int], task_group_id: int = 1) -> TasksStarted:
        tasks = [
            TaskStart(task_id=task_id, attempt=attempt, started_at=self.now, worker=1, pid=77)
            for task_id, attempt in attempts
        ]
        return TasksStarted(
            **self.facts, task_group_id=task_group_id, manager_id=MANAGER, tasks=tasks
        )

    def result(self, task_id: int, attempt: int = 1, **fields: Any) -> AttemptResult:
        times = {"started_at": self.now - 1000, "ended_at": self.now - 500, "worker": 1}
        return AttemptResult(task_id=task_id, attempt=attempt, **(times | fields))

    def finished(self, *results: AttemptResult, task_group_id: int = 1) -> TasksFinished:
        return TasksFinished(
            **self.facts, task_group_id=task_group_id, manager_id=MANAGER, tasks=list(results)
        )

    def ended(self, outcome: Outcome, *task_ids: int) -> TasksFinished:
        return self.finished(*(self.result(task_id, outcome=outcome) for task_id in task_ids))

    def requeued(self, *retries: Retry, task_group_id: int = 1) -> TasksRequeued:
        return TasksRequeued(
            **self.facts, task_group_id=task_group_id, manager_id=MANAGER, tasks=list(retries)
        )

    def cancelled(self, *spans: Span, task_group_id: int = 1) -> TasksCancelled:
        return TasksCancelled(
            **self.facts, reason="enough", task_group_id=task_group_id, tasks=list(spans)
        )


def fill(story: Story, rounds: int = 20) -> None:
    """Ten tasks in each round, of which nine succeed and one stays assigned."""
    story.begin()
    for number in range(rounds):
        first = 1 + 10 * number
        story.commit(story.submitted(10), story.assigned(Span(first, 10)))
        story.commit(story.ended("succeeded", *range(first, first + 9)))


async def dump(connection: Connection) -> dict[str, list[str]]:
    """Every row of every table but the position, as text, sorted."""
    found = {}
    for table in tables.metadata.sorted_tables:
        if table is not tables.position:
            rows: list[asyncpg.Record] = await connection.fetch(
                f"SELECT row_to_json(t)::text AS row FROM {table.name} t ORDER BY 1"
            )
            found[table.name] = [row["row"] for row in rows]
    return found
