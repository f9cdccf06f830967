"""The coordinator process: reads its configuration, wires its parts, runs them, stops cleanly."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator

import aiohttp
import msgspec
import structlog
import uvicorn
import uvloop

from penstock.clock import SystemClock
from penstock.collector import relax_collector
from penstock.configuration import DEFAULT_LISTEN, load, read_token
from penstock.coordinator.http.app import build_app
from penstock.coordinator.http.endpoint import Services
from penstock.coordinator.http.forward import Forwarder
from penstock.coordinator.node import Node
from penstock.errors import Invalid
from penstock.events import Subjects
from penstock.logging import LogLevel, set_up_logging
from penstock.projections.read_models import ReadModel

logger = structlog.get_logger("penstock.coordinator")

MISSED_HEARTBEATS = 3
GRACEFUL_SECONDS = 3
BACKLOG = 1024
SHORTEST_TOKEN = 16


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    nats_url: str
    database_url: str
    listen: str = DEFAULT_LISTEN
    url: str = ""
    """Where other coordinators reach this one; made from `listen` when empty."""
    node: str = ""
    """Unique in the deployment; made from the host's name and the port when empty."""
    token: str = ""
    token_file: str = ""
    prefix: str = "penstock"
    heartbeat_seconds: float = 10.0
    log_level: LogLevel = "info"


def run() -> None:
    configuration = load(Configuration, os.environ)
    set_up_logging(configuration.log_level)
    relax_collector()
    uvloop.run(serve(configuration))


async def serve(configuration: Configuration) -> None:
    """Run until SIGTERM or SIGINT."""
    listener = _listen(configuration.listen)
    host, port = listener.getsockname()[:2]
    clock = SystemClock()
    node = Node(
        name=configuration.node or f"{socket.gethostname()}-{port}",
        url=configuration.url or f"http://{host}:{port}",
        nats_url=configuration.nats_url,
        subjects=Subjects(configuration.prefix),
        clock=clock,
        patience_seconds=configuration.heartbeat_seconds * MISSED_HEARTBEATS,
    )
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        read_model = await stack.enter_async_context(ReadModel(configuration.database_url))
        services = Services(
            node=node,
            read_model=read_model,
            forwarder=Forwarder(node, session),
            tokens={_token(configuration): "admin"},
        )
        server = _Server(
            uvicorn.Config(
                build_app(services),
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=GRACEFUL_SECONDS,
                backlog=BACKLOG,
            )
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        leading = asyncio.create_task(node.run())
        logger.info("listening", url=node.url)
        await asyncio.wait({serving, leading}, return_when=asyncio.FIRST_COMPLETED)
        # Requests first, so that none is cut off for want of a leader; then the role.
        server.stop()
        await serving
        node.leave()
        await leading


class _Server(uvicorn.Server):
    """Signals are this process's own affair."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise Invalid(f"PENSTOCK_LISTEN must look like HOST:PORT, not {address!r}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), int(port)))
    except OSError as error:
        raise Invalid(
            f"Cannot listen on {address}: {error.strerror}. Choose another address."
        ) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _token(configuration: Configuration) -> str:
    token = read_token(configuration.token, configuration.token_file)
    if len(token) < SHORTEST_TOKEN:
        raise Invalid(
            f"Set PENSTOCK_TOKEN or PENSTOCK_TOKEN_FILE to a token of {SHORTEST_TOKEN} or more "
            "letters."
        )
    return token
