"""Start of a worker process."""

import argparse
import contextlib
import faulthandler
import gc
import os
import signal
import threading
import traceback
from typing import NoReturn

import structlog

from penstock.events.worker_journal import JournalWriter
from penstock.events.worker_protocol import EXIT_LEFT, Place
from penstock.worker.attendant import Attendant
from penstock.worker.commands import Commands, task_environment
from penstock.worker.handlers import Handlers
from penstock.worker.loop import Loop
from penstock.worker.orphans import Orphans
from penstock.worker.queue import Queue
from penstock.worker.specs import Programs
from penstock.worker.zeromq import ZeroMQCommunication

logger = structlog.get_logger("penstock.worker")


def run(arguments: list[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="penstock worker")
    parser.add_argument("--place", required=True, help="directory of the manager's sockets")
    parser.add_argument("--worker", required=True, type=int, help="number of this worker")
    options = parser.parse_args(arguments)
    serve(Place(options.place), options.worker)


def serve(place: Place, worker: int) -> NoReturn:
    faulthandler.enable()
    _read_nothing()
    for name in os.environ.keys() - task_environment(os.environ).keys():
        del os.environ[name]
    queue = Queue(_journal(place, worker))
    orphans = Orphans()
    commands = Commands(os.environ, orphans)
    handlers = Handlers(queue, orphans)
    communication = ZeroMQCommunication(place, worker)
    loop = Loop(queue, communication, Programs(commands, handlers), worker, os.getpid())
    attendant = Attendant(queue, communication, loop, commands, worker)
    handlers.install()
    # What exists by now lives as long as the process: no need to look at it again and again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    threading.Thread(target=_attend, args=(attendant,), name="attendant", daemon=True).start()
    loop.run()
    communication.close()
    if queue.settled:
        # Nobody may ever come to read it.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place.journal(worker, os.getpid()))
    # Threads that handlers left behind must not keep the process.
    os._exit(EXIT_LEFT)


def _read_nothing() -> None:
    """Neither the worker nor a command, which inherits this, has anything to read."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _attend(attendant: Attendant) -> NoReturn:
    """A worker without its attendant could not be cancelled: it ends, and another is started."""
    # Signals belong to the main thread; each child's end would wake this one for nothing.
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        attendant.run()
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="replace"))
        os._exit(1)


def _journal(place: Place, worker: int) -> JournalWriter | None:
    try:
        return JournalWriter(place.journal(worker, os.getpid()))
    except OSError as error:
        logger.warning("worker_without_journal", error=str(error))
        return None
