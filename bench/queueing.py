"""backlog and array: how fast tasks are accepted while nobody works, and what they cost then."""

import time

from penstock.bench.finish import NOOP
from penstock.bench.lists import submit_lists
from penstock.bench.result import Result
from penstock.bench.target import Options, Target, open_target
from penstock.errors import Corrupt


async def backlog(options: Options) -> Result:
    n = options.tasks or 1_000_000
    async with open_target(options, with_workers=False) as target:
        task_group = await target.new_group("backlog")
        began = time.perf_counter()
        await submit_lists(target.client, task_group, n)
        return await _afterwards(target, "backlog", task_group, n, began)


async def array(options: Options) -> Result:
    n = options.tasks or 10_000_000
    async with open_target(options, with_workers=False) as target:
        task_group = await target.new_group("array")
        began = time.perf_counter()
        await target.client.submit_array(NOOP, count=n, task_group=task_group)
        return await _afterwards(target, "array", task_group, n, began)


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
        submitted_as="array" if workload == "array" else "list",
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
