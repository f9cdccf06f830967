"""Submitting many tasks as lists, each with a spec of its own."""

import asyncio
from collections.abc import Iterator

from penstock.client import Client
from penstock.events.spec import TaskSpec

LIST_LENGTH = 10_000
IN_FLIGHT = 3


async def submit_lists(client: Client, task_group: int, n: int) -> None:
    """Several lists are under way at once, so that neither side waits for the other."""
    lists = _lists(n)

    async def sender() -> None:
        for specs in lists:
            await client.submit(specs, task_group=task_group)

    async with asyncio.TaskGroup() as senders:
        for _ in range(IN_FLIGHT):
            senders.create_task(sender())


def _lists(n: int) -> Iterator[list[TaskSpec]]:
    for first in range(0, n, LIST_LENGTH):
        yield [
            TaskSpec(handler="penstock.samples:noop", arguments=[number])
            for number in range(first, min(n, first + LIST_LENGTH))
        ]
