"""The client: everything that can be asked of a coordinator, over one connection."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client.address import discover
from penstock.client.connection import Connection
from penstock.client.managers import ManagerCalls
from penstock.client.retries import RetryLimits
from penstock.client.streams import StreamCalls
from penstock.client.system import SystemCalls
from penstock.client.task_groups import TaskGroupCalls


class Client(TaskGroupCalls, StreamCalls, ManagerCalls, SystemCalls):
    """Talks to a coordinator.

        async with Client() as client:
            task = await client.run(TaskSpec(command=["date"]))
            print(task.stdout)

    Without arguments it finds the coordinator by PENSTOCK_URL and PENSTOCK_TOKEN (or
    PENSTOCK_TOKEN_FILE), else the one that `penstock up` runs in this directory. Errors are those
    of `penstock.errors`. Failures that may pass are retried for `retry_seconds`; until a
    coordinator has answered once, for `first_answer_seconds`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        data: str | Path | None = None,
        timeout_seconds: float = 60.0,
        retry_seconds: float = 60.0,
        first_answer_seconds: float = 5.0,
    ) -> None:
        address = discover(os.environ, url=url, token=token, token_file=token_file, data=data)
        limits = RetryLimits(retry_seconds=retry_seconds, first_answer_seconds=first_answer_seconds)
        super().__init__(Connection(address, limits, timeout_seconds))

    @property
    def url(self) -> str:
        return self._connection.address.url

    def see_at_least(self, sequence: int) -> None:
        """Let every later read show what the log holds up to this sequence."""
        self._connection.last_write = max(self._connection.last_write, sequence)

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
