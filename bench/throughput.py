"""noop and command: how many tasks go from the queue to the read model in a second."""

import time

from penstock.bench import raw
from penstock.bench.finish import NOOP, all_done, warm_up
from penstock.bench.lists import submit_lists
from penstock.bench.result import Result
from penstock.bench.target import Options, Target, open_target
from penstock.events.spec import TaskSpec

TRUE = TaskSpec(command=["/bin/true"])


async def noop(options: Options) -> Result:
    n = options.tasks or 100_000
    async with open_target(options) as target:
        submitting, seconds = await _run(target, "noop", NOOP, n)
        listed = await _run_lists(target, n)
        return Result(
            workload="noop",
            n=n,
            workers=target.workers,
            seconds=seconds,
            per_second=n / seconds,
            submitted_as="array",
            list_per_second=n / listed,
            submit_seconds=submitting,
            memory_mb=target.memory_mb(),
        )


async def command(options: Options) -> Result:
    n = options.tasks or 10_000
    async with open_target(options) as target:
        bare = await raw.spawns_per_second(n, target.workers)
        submitting, seconds = await _run(target, "command", TRUE, n)
        return Result(
            workload="command",
            n=n,
            workers=target.workers,
            seconds=seconds,
            per_second=n / seconds,
            submitted_as="array",
            raw_per_second=bare,
            ratio=n / seconds / bare,
            submit_seconds=submitting,
            memory_mb=target.memory_mb(),
        )


async def _run(target: Target, workload: str, template: TaskSpec, n: int) -> tuple[float, float]:
    """Seconds until the submission was accepted, and until all of it had ended."""
    task_group = await target.new_group(workload)
    already = await warm_up(target.client, task_group, target.workers)
    began = time.perf_counter()
    await target.client.submit_array(template, count=n, task_group=task_group)
    submitting = time.perf_counter() - began
    await all_done(target.client, task_group, already + n)
    return submitting, time.perf_counter() - began


async def _run_lists(target: Target, n: int) -> float:
    """Seconds from the first list until all of them had ended."""
    task_group = await target.new_group("noop-lists")
    already = await warm_up(target.client, task_group, target.workers)
    began = time.perf_counter()
    await submit_lists(target.client, task_group, n)
    await all_done(target.client, task_group, already + n)
    return time.perf_counter() - began
