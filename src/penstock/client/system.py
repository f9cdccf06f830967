"""Calls about the system as a whole."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from penstock.client.calls import Calls, decode, given
from penstock.client.connection import Request
from penstock.client.models import Health, LogLine, Status


class SystemCalls(Calls):
    async def status(self) -> Status:
        """The system in numbers."""
        return await self._get("/status", Status)

    async def health(self) -> Health:
        """Whether a coordinator answers at all; needs no token."""
        reply = await self._connection.request(
            Request(method="GET", path="/health", repeatable=True)
        )
        return decode(reply.body, Health)

    async def log(
        self, first: int = 1, last: int | None = None, *, follow: bool = False
    ) -> AsyncGenerator[LogLine, None]:
        """The commits from sequence `first` to `last`, or to the end; with `follow`, for ever."""
        after = first - 1

        def rest() -> Request:
            parameters = {"from": str(after + 1), **given(to=last, follow=1 if follow else None)}
            return Request(method="GET", path="/log", parameters=parameters, repeatable=True)

        endless = follow and last is None
        async with aclosing(self._connection.lines(rest, endless=endless)) as lines:
            async for line in lines:
                if not line.strip():
                    continue
                commit = decode(line, LogLine)
                after = commit.sequence
                yield commit
