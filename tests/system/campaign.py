"""A campaign that counts: each command task writes a line when it runs."""

import asyncio
from collections import Counter
from pathlib import Path

from penstock import Client
from penstock.events import (
    START,
    Commit,
    TasksFinished,
    TaskSpec,
    TasksRequeued,
)
from penstock.events.connection import connect
from penstock.events.jetstream import JetStreamLog
from penstock.events.subjects import Subjects
from penstock.projections.read_models import verify
from penstock.up import System


class Campaign:
    """Tasks that leave marks, submitted in small lists while other things happen."""

    def __init__(self, system: System, directory: Path, task_group: str = "default") -> None:
        self.system = system
        self.task_group = task_group
        self.accepted: set[int] = set()
        self._marks = directory / "marks"
        self._number = 0

    def specs(self, count: int, seconds: float) -> list[TaskSpec]:
        made = []
        for _ in range(count):
            self._number += 1
            line = f"echo {self._number} $PENSTOCK_TASK_ID $PENSTOCK_ATTEMPT >> {self._marks}"
            made.append(TaskSpec(command=["/bin/sh", "-c", f"{line}; sleep {seconds}"]))
        return made

    async def submit(self, client: Client, lists: int, per_list: int, seconds: float) -> None:
        """Submit lists one after the other. What is acknowledged must be done some day."""
        for _ in range(lists):
            submission = await client.submit(
                self.specs(per_list, seconds), task_group=self.task_group
            )
            self.accepted.update(submission.task_ids)

    async def done(self, client: Client, limit_seconds: float = 60) -> None:
        """Wait until every accepted task has ended in the read model."""
        async with asyncio.timeout(limit_seconds):
            while True:
                async for progress in client.follow_progress(self.task_group):
                    if progress.finished >= len(self.accepted) and progress.counts.unfinished == 0:
                        return

    def executions(self) -> Counter[tuple[int, int]]:
        """How often each attempt of each task ran."""
        lines = self._marks.read_text().splitlines()
        return Counter((int(line.split()[1]), int(line.split()[2])) for line in lines)


async def whole_log(system: System) -> list[Commit]:
    """Every commit, proven to follow the one before it."""
    connection = await connect(system.nats_url, "test")
    try:
        log = JetStreamLog(connection, Subjects())
        commits = []
        end = await log.end()
        async for entry in log.follow(START):
            commits.append(entry.commit)
            if entry.position.sequence >= end:
                break
        return commits
    finally:
        await connection.close()


async def check_everything(campaign: Campaign) -> set[int]:
    """Nothing is lost, nothing counts twice, nothing ran again without a cause in the log.

    Returns the tasks that ran more than once.
    """
    commits = await whole_log(campaign.system)
    finished: Counter[int] = Counter()
    requeued: Counter[int] = Counter()
    for commit in commits:
        for event in commit.events:
            if isinstance(event, TasksFinished):
                for result in event.tasks:
                    finished[result.task_id] += 1
                    if result.task_id in campaign.accepted:
                        assert result.outcome == "succeeded", result
            elif isinstance(event, TasksRequeued):
                for retry in event.tasks:
                    assert retry.result.cause
                    requeued[retry.result.task_id] += 1
    assert set(finished) == campaign.accepted
    assert set(finished.values()) == {1}
    executions = campaign.executions()
    assert {task_id for task_id, _ in executions} == campaign.accepted
    assert set(executions.values()) == {1}, "an attempt ran twice"
    for task_id in campaign.accepted:
        ran = [attempt for task, attempt in executions if task == task_id]
        assert max(ran) <= 1 + requeued[task_id]
    connection = await connect(campaign.system.nats_url, "test")
    try:
        log = JetStreamLog(connection, Subjects())
        differences = await verify(log, campaign.system.database_url)
    finally:
        await connection.close()
    assert differences == [], differences
    runs = Counter(task_id for task_id, _ in executions)
    return {task_id for task_id, count in runs.items() if count > 1}
