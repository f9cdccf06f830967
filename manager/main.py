"""The manager process: reads its configuration, wires its parts, runs them, stops cleanly."""

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog
import uvloop

from penstock.configuration import load
from penstock.errors import Invalid, Rejected
from penstock.events.connection import Connection, connect
from penstock.events.subjects import Subjects, token
from penstock.logging import set_up_logging
from penstock.manager.core import Core
from penstock.manager.crew import Crew
from penstock.manager.link import Link
from penstock.manager.place import open_place, remove_place
from penstock.manager.processes import boot_id
from penstock.manager.registration import Registration, this_device
from penstock.manager.spool import Spool
from penstock.manager.state_file import State, StateFile

logger = structlog.get_logger("penstock.manager")

LAST_REPORTS_SECONDS = 5.0


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    nats_url: str
    url: str
    token: str = ""
    token_file: str = ""
    prefix: str = "penstock"
    data: str = "penstock-data"
    manager_id: str = ""
    workers: int = 0
    """0 is one per core."""
    groups: str = "default"
    tags: str = ""
    labels: str = ""
    """These three are lists, separated by commas."""
    heartbeat_seconds: float = 10.0
    log_level: str = "info"


def run() -> None:
    configuration = load(Configuration, os.environ)
    set_up_logging(configuration.log_level)
    uvloop.run(serve(configuration))


async def serve(configuration: Configuration) -> None:
    """Run until SIGTERM or SIGINT, or until the coordinator says so."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    manager_id = token(configuration.manager_id or _default_id(), "The manager id")
    directory = _directory(configuration.data, manager_id)
    registration = Registration(
        url=configuration.url,
        token=_token(configuration),
        manager_id=manager_id,
        worker_count=configuration.workers or len(os.sched_getaffinity(0)),
        device=this_device(),
        groups=_list(configuration.groups) or ["default"],
        tags=_list(configuration.tags),
        labels=_list(configuration.labels),
    )
    with _only_manager_of(directory):
        await Daemon(configuration, registration, directory, stopping).run()


class Daemon:
    """All parts of a running manager."""

    def __init__(
        self,
        configuration: Configuration,
        registration: Registration,
        directory: Path,
        stopping: asyncio.Event,
    ) -> None:
        self._configuration = configuration
        self._registration = registration
        self._stopping = stopping
        self._state_file = StateFile(directory / "state.json")
        self._state = self._state_file.read()
        self._boot_id = boot_id()
        self._core = Core(registration.worker_count)
        self._spool = Spool(directory / "reports")
        self._core.recover(self._spool.recover())
        self._place = open_place(directory, registration.manager_id)
        self._link: Link | None = None
        self._crew = Crew(
            self._core,
            self._spool,
            self._place,
            directory,
            _worker_environment(),
            on_news=self._tell_news,
            on_change=self._remember,
            on_capacity=self._tell_capacity,
        )

    def _tell_news(self) -> None:
        if self._link is not None:
            self._link.reporter.tell_news()

    def _tell_capacity(self) -> None:
        if self._link is not None:
            self._link.beat()

    def _remember(self) -> None:
        epoch = self._link.epoch if self._link is not None else self._state.epoch
        workers = self._crew.records
        self._state_file.write(State(epoch=epoch, boot_id=self._boot_id, workers=workers))

    async def run(self) -> None:
        """When this ends with an error the workers go on, and the next manager adopts them."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._spool.close)
            stack.callback(self._crew.close)
            stopped = asyncio.create_task(self._stopping.wait())
            rebooted = self._state.boot_id != self._boot_id
            assembled = asyncio.create_task(
                self._crew.assemble(self._state.workers, rebooted=rebooted)
            )
            connected = asyncio.create_task(self._connect())
            stack.push_async_callback(_end, stopped, assembled, connected)
            await _first(stopped, asyncio.gather(assembled, connected))
            if not self._stopping.is_set():
                await self._work(stack, connected.result(), stopped)
            else:
                await self._crew.stop()
        remove_place(self._place)

    async def _connect(self) -> Connection:
        await self._registration.register()
        name = f"manager-{self._registration.manager_id}"
        return await connect(self._configuration.nats_url, name)

    async def _work(
        self,
        stack: contextlib.AsyncExitStack,
        connection: Connection,
        stopped: "asyncio.Task[Literal[True]]",
    ) -> None:
        stack.push_async_callback(connection.close)
        link = self._link = Link(
            connection,
            Subjects(self._configuration.prefix),
            self._registration,
            self._core,
            self._crew,
            self._spool,
            epoch=self._state.epoch,
            heartbeat_seconds=self._configuration.heartbeat_seconds,
            on_epoch=self._remember,
            on_shutdown=self._stopping.set,
        )
        talking = asyncio.create_task(link.run())
        looking = asyncio.create_task(self._crew.look_after())
        stack.push_async_callback(_end, talking, looking)
        logger.info("manager_runs", manager=self._registration.manager_id)
        await _first(stopped, talking, looking)
        logger.info("manager_stops", manager=self._registration.manager_id)
        await self._crew.stop()
        try:
            await asyncio.wait_for(link.reporter.all_told(), LAST_REPORTS_SECONDS)
        except TimeoutError:
            logger.warning("reports_left_for_the_next_start")


async def _first(*tasks: "asyncio.Future[Any]") -> None:
    """Wait until one of these ends; raise what it raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _end(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _directory(data: str, manager_id: str) -> Path:
    directory = Path(data).absolute() / "manager" / manager_id
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Invalid(
            f"The directory {directory} cannot be made: {error.strerror}. Set PENSTOCK_DATA."
        ) from error
    return directory


def _worker_environment() -> dict[str, str]:
    """Workers need none of our settings, and tasks must not see our secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _default_id() -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:64].strip("-") or "manager"


def _token(configuration: Configuration) -> str:
    if configuration.token:
        return configuration.token
    if not configuration.token_file:
        raise Invalid("Set PENSTOCK_TOKEN or PENSTOCK_TOKEN_FILE in the environment.")
    try:
        return Path(configuration.token_file).read_text().strip()
    except OSError as error:
        raise Invalid(
            f"The token file {configuration.token_file} cannot be read: {error.strerror}."
        ) from error


@contextlib.contextmanager
def _only_manager_of(directory: Path) -> Iterator[None]:
    """Hold the directory; the kernel lets go of it when this process dies, however it does."""
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Rejected(
                f"Another manager works with {directory}. "
                "Stop it, or choose another PENSTOCK_MANAGER_ID or PENSTOCK_DATA."
            ) from error
        yield
