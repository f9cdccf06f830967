"""latency: one task at a time on an idle system, from the call to its result."""

import time

from penstock.bench.finish import warm_up
from penstock.bench.result import Result, percentile
from penstock.bench.target import Options, open_target
from penstock.errors import Rejected
from penstock.events.spec import TaskSpec

UNTIMED = 50


async def latency(options: Options) -> Result:
    n = options.tasks or 1000
    async with open_target(options) as target:
        client = target.client
        task_group = await target.new_group("latency")
        await warm_up(client, task_group, target.workers)
        times = []
        for number in range(n + UNTIMED):
            task = TaskSpec(handler="penstock.samples:noop", arguments=[number])
            began = time.perf_counter()
            ended = await client.run(task, task_group=task_group)
            times.append((time.perf_counter() - began) * 1000)
            if ended.result != number:
                raise Rejected(f"Task {ended.id} {ended.state}: {ended.message}")
        counted = sorted(times[UNTIMED:])
        seconds = sum(counted) / 1000
        return Result(
            workload="latency",
            n=n,
            workers=target.workers,
            seconds=seconds,
            per_second=n / seconds,
            p50_ms=percentile(counted, 50),
            p95_ms=percentile(counted, 95),
            p99_ms=percentile(counted, 99),
            memory_mb=target.memory_mb(),
        )
