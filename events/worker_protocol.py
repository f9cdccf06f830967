"""What a manager and its workers say to each other, over ZeroMQ on ipc, in msgpack.

A worker has a DEALER socket to the manager's ROUTER, and a SUB socket to its PUB for control. The
manager keeps a few tasks at each worker, so that a short task never waits for a round trip. A
worker keeps each result until the manager says that it has it: a manager that was restarted finds
its workers where it left them, and they say `Hello` again.
"""

from typing import TypeAlias

import msgspec

from penstock.events.manager_protocol import TaskBatch
from penstock.events.tasks import Attempt, AttemptResult, TaskStart


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Anything said between manager and worker."""


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """Sent at the start, and again whenever the manager asks with `Identify`."""

    worker: int
    pid: int
    started_at: int
    """When this worker process began."""
    held: list[Attempt] = []
    """Tasks that wait or run at the worker."""


class Results(Message, frozen=True, kw_only=True, tag="results"):
    """Repeated until acknowledged. `number` counts the batches of this worker."""

    worker: int
    number: int
    results: list[AttemptResult] = []
    started: list[TaskStart] = []
    held: int = 0
    """Tasks that still wait or run at the worker."""


WorkerMessage: TypeAlias = Hello | Results


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The manager knows this worker now."""


class Acknowledge(Message, frozen=True, kw_only=True, tag="acknowledge"):
    """All results up to this number are on the manager's disk."""

    number: int


class Run(Message, frozen=True, kw_only=True, tag="run"):
    """Run these, after what is already there."""

    batches: list[TaskBatch]


ManagerMessage: TypeAlias = Welcome | Acknowledge | Run


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """End these tasks wherever they are."""

    tasks: list[Attempt]
    grace_seconds: float = 30.0


class Stop(Message, frozen=True, kw_only=True, tag="stop"):
    """Leave: after the current task when graceful, at once otherwise. No workers means all."""

    graceful: bool = True
    workers: list[int] = []


class Identify(Message, frozen=True, kw_only=True, tag="identify"):
    """A manager that just started asks its workers to say hello."""


Control: TypeAlias = Cancel | Stop | Identify


class Place(msgspec.Struct, frozen=True):
    """Where a manager's sockets are."""

    directory: str
    manager_id: str

    @property
    def router(self) -> str:
        return f"ipc://{self.directory}/{self.manager_id}.router"

    @property
    def control(self) -> str:
        return f"ipc://{self.directory}/{self.manager_id}.control"
