"""The managers as the leader knows them now: what no log needs to remember.

A session begins when a manager has synchronised with this leader, and holds what it wants (its
capacity), how many pushes it got, and when it was last heard of. Managers that the log calls online
get some time to synchronise after a new leader was elected.
"""

from collections.abc import Iterable

import msgspec

from penstock.events import ManagerId
from penstock.events.manager_protocol import PushMessage


class Session(msgspec.Struct):
    manager_id: ManagerId
    incarnation: str
    pushes: int = 0
    last_push_at: float = 0.0
    held_back: list[PushMessage] | None = None
    """What waits until the manager has the answer to its synchronisation; None when it has."""


class Sessions:
    def __init__(self, expected: Iterable[ManagerId], now: float, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._open: dict[ManagerId, Session] = {}
        self._heard: dict[ManagerId, float] = dict.fromkeys(expected, now)
        self.capacities: dict[ManagerId, int] = {}
        """How many tasks each synchronised manager wants to hold."""

    def open(self, session: Session, capacity: int, now: float) -> None:
        self._open[session.manager_id] = session
        self.capacities[session.manager_id] = capacity
        self._heard[session.manager_id] = now

    def close(self, manager_id: ManagerId) -> None:
        """Nothing more is pushed until the manager synchronises again."""
        self._open.pop(manager_id, None)
        self.capacities.pop(manager_id, None)

    def get(self, manager_id: ManagerId) -> Session | None:
        return self._open.get(manager_id)

    def heard(self, session: Session, capacity: int, now: float) -> bool:
        """Note a sign of life. True when the manager wants more than before."""
        self._heard[session.manager_id] = now
        grown = capacity > self.capacities[session.manager_id]
        self.capacities[session.manager_id] = capacity
        return grown

    def forgive(self, seconds: float) -> None:
        """Nobody could be heard for so long."""
        if seconds:
            for name in self._heard:
                self._heard[name] += seconds

    def silent(self, now: float) -> list[ManagerId]:
        """Managers that were not heard of for too long. Each is named once."""
        late = [name for name, heard in self._heard.items() if now - heard > self._patience]
        for name in late:
            del self._heard[name]
            self.close(name)
        return late
