"""A real worker process, and a stand-in for the manager's end of its sockets."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zmq

from penstock.events.manager_protocol import TaskBatch
from penstock.events.tasks import Attempt, AttemptResult, TaskStart
from penstock.events.worker_protocol import (
    Cancel,
    Control,
    Hello,
    Identify,
    Place,
    Results,
    Run,
    WorkerMessage,
    identity,
)

WITHIN_SECONDS = 20.0


class WorkerUnderTest:
    def __init__(self, directory: Path, handlers: Path) -> None:
        self.place = Place(str(directory))
        self.directory = directory
        environment = {**os.environ, "PYTHONPATH": str(handlers), "PENSTOCK_TOKEN": "secret"}
        self._open_sockets()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.worker", "--place", str(directory), "--worker", "1"],
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
        self.results: dict[int, AttemptResult] = {}
        self.started: dict[int, TaskStart] = {}
        self.returned: list[Attempt] = []
        self.hellos: list[Hello] = []
        self.number = 0
        self.until(lambda: self.hellos)

    def _open_sockets(self) -> None:
        self._context = zmq.Context()
        self.router = self._context.socket(zmq.ROUTER)
        self.control = self._context.socket(zmq.XPUB)
        self.control.set(
            zmq.XPUB_WELCOME_MSG, msgspec.msgpack.encode(Identify(manager_pid=os.getpid()))
        )
        self.control.bind(self.place.control)
        self.router.bind(self.place.router)
        self._poller = zmq.Poller()
        self._poller.register(self.router, zmq.POLLIN)
        self._poller.register(self.control, zmq.POLLIN)

    def close_sockets(self) -> None:
        self.router.close(0)
        self.control.close(0)
        self._context.term()

    def restart_sockets(self) -> None:
        """As when the manager is killed and another takes its place."""
        self.close_sockets()
        self.hellos.clear()
        self._open_sockets()

    def send(self, *batches: TaskBatch, acknowledged: int = 0) -> None:
        run = Run(batches=list(batches), acknowledged=acknowledged)
        self.router.send_multipart([identity(1, self.process.pid), msgspec.msgpack.encode(run)])

    def publish(self, control: Control) -> None:
        self.control.send(msgspec.msgpack.encode(control))

    def until(self, condition: Any, within_seconds: float = WITHIN_SECONDS) -> None:
        """Receive until the condition holds."""
        deadline = time.monotonic() + within_seconds
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, "nothing came in time"
            for socket, _ in self._poller.poll(left * 1000):
                if socket is self.control:
                    self.control.recv()
                else:
                    self._receive()

    def until_true(self, condition: Any, within_seconds: float = WITHIN_SECONDS) -> None:
        """Look at something that sends no messages, until it is as wanted."""
        deadline = time.monotonic() + within_seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            if self._poller.poll(20):
                self.until(lambda: True)

    def _receive(self) -> None:
        _, encoded = self.router.recv_multipart()
        message = msgspec.msgpack.decode(encoded, type=WorkerMessage)
        if isinstance(message, Hello):
            self.hellos.append(message)
            return
        assert isinstance(message, Results)
        self.number = message.number
        self.results.update({result.task_id: result for result in message.results})
        self.started.update({start.task_id: start for start in message.started})
        self.returned += message.returned

    def run(self, first: int = 1, count: int = 1, **fields: Any) -> AttemptResult:
        """Run a task, or an array, to its end; return the (first) result."""
        self.send(batch(first, count, **fields))
        self.until(lambda: all(task in self.results for task in range(first, first + count)))
        return self.results[first]

    def begin(self, task_id: int, **fields: Any) -> TaskStart:
        """Start a task that takes long, and wait until it runs."""
        self.send(batch(task_id, **fields))
        self.until(lambda: task_id in self.started)
        return self.started[task_id]

    def run_back(self, task_id: int) -> None:
        """Send a task behind one that takes long, and wait until it comes back: by then all that
        was sent before has been read."""
        self.send(batch(task_id))
        self.until(lambda: Attempt(task_id, 1) in self.returned)

    def cancel(self, *task_ids: int, reason: str = "", grace_seconds: float = 30.0) -> None:
        tasks = [Attempt(task, 1) for task in task_ids]
        self.publish(Cancel(tasks=tasks, reason=reason, grace_seconds=grace_seconds))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.close_sockets()


def batch(first: int, count: int = 1, **fields: Any) -> TaskBatch:
    parameters = fields.pop("parameters", None)
    array = fields.pop("array", count > 1 or parameters is not None)
    return TaskBatch(
        task_group_id=7,
        first=first,
        count=count,
        spec=msgspec.json.encode(fields),
        array=array,
        parameters=msgspec.json.encode(parameters) if parameters is not None else b"",
    )


@contextlib.contextmanager
def worker(directory: Path, handlers: Path) -> Iterator[WorkerUnderTest]:
    started = WorkerUnderTest(directory, handlers)
    try:
        yield started
    finally:
        started.end()


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pid: int, within_seconds: float = WITHIN_SECONDS) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poller = zmq.Poller()
        poller.register(descriptor, zmq.POLLIN)
        assert poller.poll(within_seconds * 1000), f"process {pid} goes on"
    finally:
        os.close(descriptor)
