"""A TCP proxy between client and server that loses what it is told to lose."""

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit


class Proxy:
    """Forwards both ways. Bytes of a direction that is held back stay here until `release`, and
    are lost with `cut`."""

    def __init__(self, target_url: str) -> None:
        self._target = urlsplit(target_url)
        self._listener: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._may_ask = asyncio.Event()
        self._may_answer = asyncio.Event()
        self._may_ask.set()
        self._may_answer.set()
        self.asked = asyncio.Event()
        """Set when something arrives from the client."""
        self.answered = asyncio.Event()
        """Set when something arrives from the server."""

    @property
    def url(self) -> str:
        assert self._listener is not None
        port = self._listener.sockets[0].getsockname()[1]
        user = f"{self._target.username}:{self._target.password}@" if self._target.username else ""
        return f"nats://{user}127.0.0.1:{port}"

    async def __aenter__(self) -> "Proxy":
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        await self.cut()
        await self._listener.wait_closed()

    def hold_requests(self) -> None:
        self._may_ask.clear()
        self.asked.clear()

    def hold_answers(self) -> None:
        self._may_answer.clear()
        self.answered.clear()

    def release(self) -> None:
        self._may_ask.set()
        self._may_answer.set()

    async def cut(self) -> None:
        """End all connections; what was held back is lost."""
        lines = list(self._lines)
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        writers = [writer]
        try:
            assert self._target.hostname is not None
            with suppress(OSError):
                remote, to_remote = await asyncio.open_connection(
                    self._target.hostname, self._target.port
                )
                writers.append(to_remote)
                await asyncio.gather(
                    _forward(reader, to_remote, self._may_ask, self.asked),
                    _forward(remote, writer, self._may_answer, self.answered),
                )
        except asyncio.CancelledError:
            # Cut on purpose; a cancelled handler would be reported as an error.
            return
        finally:
            self._lines.discard(line)
            for each in writers:
                each.transport.abort()


async def _forward(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    may: asyncio.Event,
    seen: asyncio.Event,
) -> None:
    while data := await reader.read(65536):
        seen.set()
        await may.wait()
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError
