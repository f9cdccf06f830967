"""The projector process: reads its configuration, connects, projects, stops cleanly."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import msgspec
import structlog
import uvloop

from penstock.collector import relax_collector
from penstock.configuration import load
from penstock.errors import Unavailable
from penstock.events import Subjects
from penstock.events.connection import connect
from penstock.events.jetstream import JetStreamLog
from penstock.events.streams import ensure_streams
from penstock.logging import LogLevel, set_up_logging
from penstock.projections.read_models.projector import Projector

logger = structlog.get_logger("penstock.projector")


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    nats_url: str
    database_url: str
    prefix: str = "penstock"
    log_level: LogLevel = "info"


def run() -> None:
    configuration = load(Configuration, os.environ)
    set_up_logging(configuration.log_level)
    relax_collector()
    uvloop.run(project(configuration))


async def project(configuration: Configuration) -> None:
    """Run until SIGTERM or SIGINT. Raises `Corrupt` when the log does not fit the read model."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        nats = await connect(configuration.nats_url, "projector")
        stack.push_async_callback(nats.close)
        subjects = Subjects(configuration.prefix)
        # Whoever is first makes them: a projector may be started before any coordinator.
        await ensure_streams(nats, subjects)
        log = JetStreamLog(nats, subjects)
        projector = Projector(log, configuration.database_url)
        waiting = {
            asyncio.create_task(projector.run(), name="project"),
            asyncio.create_task(stop.wait(), name="wait for a signal"),
            asyncio.create_task(nats.closed_for_good.wait(), name="watch the connection"),
        }
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for task in done:
            task.result()
        if not stop.is_set():
            raise Unavailable("The connection to NATS is closed for good.")
        logger.info("projector_stopped")
