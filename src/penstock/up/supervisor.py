"""A whole system on this machine, under one supervisor.

`System` starts NATS and Postgres, then a coordinator, a projector and a manager; it starts again
what dies, and stops everything in reverse order. Who kills the supervisor kills its children (see
`launch`); who then starts another on the same data directory gets the same system back, because
whatever was left is ended first and every server recovers by itself.

    async with System(Settings(data=Path("data"))) as system:
        print(system.url, system.token)
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import aiohttp
import msgspec
import structlog

from penstock.configuration import DEFAULT_DATA, DEFAULT_LISTEN
from penstock.errors import Corrupt, Invalid, NotFound, Unavailable
from penstock.logging import LogLevel
from penstock.up import private
from penstock.up.command import Command, end_leftovers, penstock
from penstock.up.data_directory import Address, DataDirectory
from penstock.up.guard import Guard, Server
from penstock.up.nats import NatsServer
from penstock.up.postgres import PostgresServer
from penstock.up.process import Process

_log = structlog.get_logger("penstock.up")

_POLL_SECONDS = 0.02
_DEATHS_BEFORE_GIVING_UP = 3


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `penstock up` can be told."""

    data: Path = Path(DEFAULT_DATA)
    listen: str = DEFAULT_LISTEN
    workers: int = 0
    """Worker processes of the manager; 0 is one per core."""
    tags: list[str] = []
    """Tags of the manager."""
    log_level: LogLevel = "info"
    restart: bool = True
    """Start again what dies. Off, a test can see what the others do without it."""
    ready_seconds: float = 60.0
    max_store_bytes: int | None = None
    """What NATS may keep on disk; None leaves it to NATS."""
    manager_seconds: float = 10.0
    """How long to wait for the manager. Without it the system can be used, only nothing runs."""


class _Manager(msgspec.Struct, frozen=True):
    state: str


class _Managers(msgspec.Struct, frozen=True):
    items: list[_Manager]


Table = Callable[["System"], dict[str, Server]]
"""The processes to run beside NATS and Postgres, in the order of their start."""


class System:
    """A running system. Use it as an async context manager, from the main thread."""

    def __init__(self, settings: Settings, table: Table | None = None) -> None:
        self.settings = settings
        self.data = DataDirectory(settings.data)
        self.token = ""
        self._table = table or our_processes
        self._listen = ("", 0)
        self._guards: dict[str, Guard] = {}
        self._held = AsyncExitStack()
        self._damage: Corrupt | None = None
        self._damaged = asyncio.Event()
        self._nats = NatsServer(
            self.data.nats,
            credentials=self.data.nats_credentials,
            log=self.data.log("nats"),
            max_store_bytes=settings.max_store_bytes,
        )
        self._postgres = PostgresServer(self.data.postgres, log=self.data.log("postgres"))

    @property
    def url(self) -> str:
        return reachable(*self._listen)

    @property
    def nats_url(self) -> str:
        return self._nats.url

    @property
    def database_url(self) -> str:
        return self._postgres.dsn

    @property
    def processes(self) -> dict[str, Process]:
        """What runs now, by name; a restarted process is another one."""
        return {name: one.process for name, one in self._guards.items() if one.process is not None}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start everything and return when it is ready, or leave nothing running."""
        self.data.create()
        try:
            self._held.enter_context(self.data.locked())
            await end_leftovers(self.data.root)
            self._listen = choose_address(self.settings.listen)
            self.token = private.generated(self.data.token_file)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.add("nats", self._nats))
                group.create_task(self.add("postgres", self._postgres))
            for name, server in self._table(self).items():
                await self.add(name, server)
            await self.ready(self._give_up_on_the_dead)
            if "manager" in self._guards:
                await self._manager_online()
            self._publish()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                raise error.exceptions[0] from None
            raise

    async def aclose(self) -> None:
        """Stop everything, the last started first."""
        await self._held.aclose()

    async def add(self, name: str, server: Server) -> None:
        """Run one more server under this supervisor."""
        guard = self._guards[name] = Guard(
            name, server, restart=self.settings.restart, when_damaged=self._note_damage
        )
        self._held.push_async_callback(guard.stop)
        await guard.start()

    async def kill(self, name: str) -> None:
        """kill -9. With `restart`, it is started again after a moment: see `replaced`."""
        await self._guard(name).kill()

    async def stop(self, name: str) -> None:
        """Stop one cleanly; it stays down until `start_again`."""
        await self._guard(name).stop()

    async def start_again(self, name: str) -> None:
        await self._guard(name).start()

    async def replaced(self, name: str, pid: int) -> Process:
        """Wait until a process other than `pid` runs under this name."""
        return await self._guard(name).replaced(pid)

    async def ready(self, between: Callable[[], None] = lambda: None) -> None:
        """Wait until the coordinator says that the system can be used."""
        limit = self.settings.ready_seconds
        try:
            async with asyncio.timeout(limit), aiohttp.ClientSession() as http:
                while not await _says_ready(http, f"{self.url}/ready"):
                    between()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as error:
            raise Unavailable(
                f"The system was not ready within {limit:g} seconds; see {self.data.logs}."
            ) from error

    async def until_damaged(self) -> NoReturn:
        """Wait until a process finds that the log is damaged. Raises what it said."""
        await self._damaged.wait()
        raise self._damage or Corrupt

    def _note_damage(self, damage: Corrupt) -> None:
        self._damage = self._damage or damage
        self._damaged.set()

    async def _manager_online(self) -> None:
        """Wait until a manager can be seen, so that whoever looks next finds it."""
        limit = self.settings.manager_seconds
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            async with asyncio.timeout(limit), aiohttp.ClientSession(headers=headers) as http:
                while not await _shows_a_manager(http, f"{self.url}/managers"):
                    self._give_up_on_the_dead()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            _log.warning("no manager is online yet", waited_seconds=limit, logs=str(self.data.logs))

    def _give_up_on_the_dead(self) -> None:
        if self._damage is not None:
            raise self._damage
        limit = _DEATHS_BEFORE_GIVING_UP if self.settings.restart else 1
        for guard in self._guards.values():
            if guard.deaths >= limit and guard.process is not None:
                raise Unavailable(
                    f"The {guard.name} does not stay up; see {guard.process.log}:\n"
                    f"{guard.process.output()}"
                )

    def _guard(self, name: str) -> Guard:
        if name not in self._guards:
            raise NotFound(f"There is no process {name!r}, only {', '.join(self._guards)}.")
        return self._guards[name]

    def _publish(self) -> None:
        # Pushed last, so withdrawn first: nobody is sent to a system that is stopping.
        self._held.callback(self.data.address_file.unlink, missing_ok=True)
        self.data.publish(
            Address(
                url=self.url,
                token_file=str(self.data.token_file),
                nats_url=self.nats_url,
                database_url=self.database_url,
                pid=os.getpid(),
            )
        )

    def environment(self, **settings: str) -> dict[str, str]:
        """The environment of a child: ours, with the settings of this system and no others."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "PG"))
        }
        ours = {
            "data": str(self.data.root),
            "log_level": self.settings.log_level,
            "nats_url": self.nats_url,
        } | settings
        return inherited | {f"PENSTOCK_{name.upper()}": value for name, value in ours.items()}

    def command(self, subcommand: str, name: str = "", **settings: str) -> Command:
        """One of our own processes, to be given to `add`."""
        name = name or subcommand
        return Command(
            name,
            penstock(subcommand),
            environment=self.environment(**settings),
            log=self.data.log(name),
        )

    def coordinator(self, name: str = "coordinator", listen: str = "") -> Command:
        host, port = choose_address(listen) if listen else self._listen
        return self.command(
            "coordinator",
            name,
            node=name,
            listen=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            url=reachable(host, port),
            token_file=str(self.data.token_file),
            database_url=self.database_url,
        )

    def projector(self, name: str = "projector") -> Command:
        return self.command("projector", name, database_url=self.database_url)

    def manager(self, name: str = "manager", workers: int = 0) -> Command:
        count = workers or self.settings.workers or len(os.sched_getaffinity(0))
        return self.command(
            "manager",
            name,
            workers=str(count),
            tags=",".join(self.settings.tags),
            url=self.url,
            token_file=str(self.data.token_file),
        )


def our_processes(system: System) -> dict[str, Server]:
    return {
        "coordinator": system.coordinator(),
        "projector": system.projector(),
        "manager": system.manager(),
    }


def choose_address(listen: str) -> tuple[str, int]:
    """The host and a port that is free now; port 0 stands for any."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"{listen!r} is not an address to listen on. Write HOST:PORT.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return host, probe.getsockname()[1]
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {listen}: {error.strerror}. Choose another with --listen"
            " (port 0 is any free one)."
        ) from error


def reachable(host: str, port: int) -> str:
    """The address by which this machine reaches what listens there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _says_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _shows_a_manager(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
            if answer.status != 200:
                return False
            shown = msgspec.json.decode(await answer.read(), type=_Managers)
    except (aiohttp.ClientError, TimeoutError):
        return False
    return any(manager.state != "offline" for manager in shown.items)
