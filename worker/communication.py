"""How a worker speaks with whoever gives it tasks: one interface, whatever the transport.

The worker's main thread fetches and reports between tasks. While it is inside a task, the attendant
thread may take its place: whoever uses the connection holds `turn`.
"""

import threading
from typing import Protocol

from penstock.events.worker_protocol import Control, Run


class WorkerCommunication(Protocol):
    turn: threading.Lock
    """Held by the thread that fetches or reports."""

    def fetch(self, *, wait: bool) -> list[Run]:
        """What was sent to this worker. With `wait`, not before there is something or `wake`."""
        ...

    def report(self, message: bytes) -> None:
        """Send an encoded message; never waits."""
        ...

    def wake(self) -> None:
        """End a waiting `fetch`, from another thread."""
        ...

    def controls(self, timeout_seconds: float | None) -> list[Control]:
        """What was said to all workers. For the attendant thread alone."""
        ...

    def wake_attendant(self) -> None:
        """End a waiting `controls`, from another thread."""
        ...

    def manager_is_away(self) -> bool:
        """Whether the manager that this worker last spoke with has ended."""
        ...

    def close(self) -> None:
        """Deliver what was reported, if that can be done soon, and disconnect."""
        ...
