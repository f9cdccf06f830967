"""Waiting until tasks count: a task counts when its end is in the read model in Postgres."""

import asyncio
import time

from penstock.client import Client
from penstock.errors import Rejected
from penstock.events.spec import TaskSpec

NOOP = TaskSpec(handler="penstock.samples:noop", arguments=["{index}"])
WARM_UP_TASKS_PER_WORKER = 50
SHORTEST_LOOK_SECONDS = 0.003
LONGEST_LOOK_SECONDS = 0.2


async def all_done(client: Client, task_group: int, count: int) -> None:
    """Wait until so many tasks of the group have ended, and all of them well.

    Looks rarely while much is left and often near the end, so that looking neither disturbs the
    system that is measured nor blurs the moment at which it is done.
    """
    began = time.perf_counter()
    first: int | None = None
    while True:
        counts = (await client.progress(task_group)).counts
        if counts.finished >= count:
            break
        first = counts.finished if first is None else first
        rate = (counts.finished - first) / (time.perf_counter() - began)
        left = (count - counts.finished) / rate if rate else SHORTEST_LOOK_SECONDS
        await asyncio.sleep(min(LONGEST_LOOK_SECONDS, max(SHORTEST_LOOK_SECONDS, left / 4)))
    if counts.succeeded != count:
        raise Rejected(
            f"{count - counts.succeeded} of {count} tasks did not succeed. See them with "
            f"'penstock task list --group {task_group} --state failed'."
        )


async def warm_up(client: Client, task_group: int, workers: int) -> int:
    """Let every worker start, import the handler and run something. Returns how many tasks ran."""
    rounds = 2
    count = WARM_UP_TASKS_PER_WORKER * workers
    for number in range(1, rounds + 1):
        await client.submit_array(NOOP, count=count, task_group=task_group)
        await all_done(client, task_group, number * count)
    return rounds * count
