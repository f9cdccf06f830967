"""backlog and array: how fast tasks are accepted while nobody works, and what they cost then."""

import asyncio
import time
from collections.abc import Iterator

from penstock.bench.finish import NOOP
from penstock.bench.result import Result
from penstock.bench.target import Options, Target, open_target
from penstock.errors import Corrupt
from penstock.events.spec import TaskSpec

LIST_LENGTH = 10_000
IN_FLIGHT = 3


async def backlog(options: Options) -> Result:
    n = options.tasks or 1_000_000
    async with open_target(options, with_workers=False) as target:
        task_group = await target.new_group("backlog")
        began = time.perf_counter()
        await _submit_lists(target, task_group, n)
        return await _afterwards(target, "backlog", task_group, n, began)


async def array(options: Options) -> Result:
    n = options.tasks or 10_000_000
    async with open_target(options, with_workers=False) as target:
        task_group = await target.new_group("array")
        began = time.perf_counter()
        await target.client.submit_array(NOOP, count=n, task_group=task_group)
        return await _afterwards(target, "array", task_group, n, began)


async def _submit_lists(target: Target, task_group: int, n: int) -> None:
    """Several lists are under way at once, so that neither side waits for the other."""
    lists = _lists(n)

    async def sender() -> None:
        for specs in lists:
            await target.client.submit(specs, task_group=task_group)

    async with asyncio.TaskGroup() as senders:
        for _ in range(IN_FLIGHT):
            senders.create_task(sender())


def _lists(n: int) -> Iterator[list[TaskSpec]]:
    for first in range(0, n, LIST_LENGTH):
        yield [
            TaskSpec(handler="penstock.samples:noop", arguments=[number])
            for number in range(first, min(n, first + LIST_LENGTH))
        ]


async def _afterwards(
    target: Target, workload: str, task_group: int, n: int, began: float
) -> Result:
    seconds = time.perf_counter() - began
    await _expect(target, task_group, n)
    shown = time.perf_counter() - began
    memory = target.memory_mb()
    restart = await target.restart_coordinator()
    await _expect(target, task_group, n)
    return Result(
        workload=workload,
        n=n,
        workers=target.workers,
        seconds=seconds,
        per_second=n / seconds,
        read_model_seconds=shown,
        memory_mb=memory,
        restart_seconds=restart,
        memory_after_restart_mb=None if restart is None else target.memory_mb(),
    )


async def _expect(target: Target, task_group: int, n: int) -> None:
    """The client reads at least what it wrote: this returns when the read model has come so far."""
    total = (await target.client.progress(task_group)).counts.total
    if total != n:
        raise Corrupt(f"{n} tasks were accepted, but {total} are there.")
