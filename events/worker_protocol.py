"""What a manager and its workers say to each other, over ZeroMQ on ipc, in msgpack.

A worker has a DEALER socket to the manager's ROUTER, and a SUB socket to its PUB for control. The
manager keeps a few tasks at each worker, so that a short task never waits for a round trip; a
worker that meets a long task gives back what waits behind it. A worker keeps each result until the
manager says that it has it.

Whenever a worker's SUB socket reaches a manager, the manager sends `Identify` and the worker
answers with `Hello`: so a worker that just started makes itself known, and a manager that was
restarted finds its workers where it left them. After its `Hello` a worker repeats every result
that was not acknowledged, in the same order.
"""

from typing import TypeAlias

import msgspec

from penstock.events.manager_protocol import TaskBatch
from penstock.events.tasks import Attempt, AttemptResult, TaskStart

EXIT_LEFT = 64
"""Exit code of a worker that left by its own decision: it had reported all that it had begun."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Anything said between manager and worker."""


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    worker: int
    pid: int
    held: list[Attempt] = []
    """Tasks that wait or run at the worker, and those whose results were not acknowledged."""


class Results(Message, frozen=True, kw_only=True, tag="results"):
    """Repeated until acknowledged. `number` counts the batches of this worker process from 1."""

    number: int = 0
    results: list[AttemptResult] = []
    started: list[TaskStart] = []
    returned: list[Attempt] = []
    """Tasks that the worker gives back without having begun them."""


WorkerMessage: TypeAlias = Hello | Results


class Run(Message, frozen=True, kw_only=True, tag="run"):
    """Run these, after what is already there. All results up to `acknowledged` are on the manager's
    disk."""

    batches: list[TaskBatch] = []
    acknowledged: int = 0


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """End these tasks wherever they are. Repeated until they are reported."""

    tasks: list[Attempt]
    reason: str = ""
    grace_seconds: float = 30.0


class Stop(Message, frozen=True, kw_only=True, tag="stop"):
    """Leave: after the current task when graceful; otherwise end that too, with SIGTERM and after
    the grace period SIGKILL. What waits is given back. No workers means all."""

    graceful: bool = True
    grace_seconds: float = 2.0
    workers: list[int] = []


class Identify(Message, frozen=True, kw_only=True, tag="identify"):
    """Say hello to the manager, which is this process."""

    manager_pid: int


Control: TypeAlias = Cancel | Stop | Identify


class Place(msgspec.Struct, frozen=True):
    """Where a manager and its workers meet: a directory that only their user may enter."""

    directory: str

    @property
    def router(self) -> str:
        return f"ipc://{self.directory}/router"

    @property
    def control(self) -> str:
        return f"ipc://{self.directory}/control"

    def journal(self, worker: int, pid: int) -> str:
        return f"{self.directory}/{worker}.{pid}.journal"


def identity(worker: int, pid: int) -> bytes:
    """Name of a worker process on the ROUTER socket."""
    return b"%d.%d" % (worker, pid)
