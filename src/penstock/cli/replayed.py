"""A state that was folded from the log, as something to show and to compare."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from penstock.client import Status
from penstock.events import START, Position, follow
from penstock.events.tasks import TASK_STATES
from penstock.projections import Manager, State, TaskGroup, apply


class ReplayedGroup(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    group: str
    state: str
    counts: dict[str, int]


class ReplayedManager(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str
    worker_count: int
    task_group_id: int | None
    tasks_held: int


class ReplayedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `penstock replay --output json` prints."""

    sequence: int
    hash: str
    at: datetime
    leader: str
    epoch: int
    tasks: dict[str, int]
    task_groups: list[ReplayedGroup]
    managers: list[ReplayedManager]


class Replayed:
    """The fold of the log up to `position`."""

    def __init__(self) -> None:
        self.state = State()
        self.position: Position = START

    def fold(self, sequence: int, body: bytes, stored_hash: str, until: int | None) -> bool:
        """Fold the next commit; False, and nothing done, when it was made after `until`."""
        commit, position = follow(self.position, sequence, body, stored_hash)
        if until is not None and commit.at > until:
            return False
        apply(self.state, commit, sequence)
        self.position = position
        return True

    def document(self) -> ReplayedDocument:
        state = self.state
        groups = [_group(group) for group in state.task_groups.values()]
        return ReplayedDocument(
            sequence=self.position.sequence,
            hash=self.position.hash,
            at=datetime.fromtimestamp(state.clock / 1_000_000, UTC),
            leader=state.leader,
            epoch=state.epoch,
            tasks={name: sum(group.counts[name] for group in groups) for name in TASK_STATES},
            task_groups=groups,
            managers=[_manager(manager) for manager in state.managers.values()],
        )

    def differences(self, live: Status) -> list[str]:
        """What the live system says otherwise, as of the same commit."""
        folded = self.document()
        pairs = [
            ("tasks", _without_time(folded.tasks), _without_time(live.tasks)),
            ("task groups", _tally(g.state for g in folded.task_groups), _some(live.task_groups)),
            ("managers", _tally(m.state for m in folded.managers), _some(live.managers)),
        ]
        found = [
            f"{what}: {theirs} there, {ours} from the log"
            for what, ours, theirs in pairs
            if ours != theirs
        ]
        if live.epoch != folded.epoch:
            found.append(f"epoch: {live.epoch} there, {folded.epoch} from the log")
        return found


def _group(group: TaskGroup) -> ReplayedGroup:
    return ReplayedGroup(
        id=group.id,
        name=group.name,
        group=group.group,
        state=group.state,
        counts=msgspec.to_builtins(group.counts),
    )


def _manager(manager: Manager) -> ReplayedManager:
    return ReplayedManager(
        id=manager.id,
        state=manager.state,
        worker_count=manager.worker_count,
        task_group_id=manager.task_group_id,
        tasks_held=len(manager.tasks),
    )


def _without_time(tasks: dict[str, int]) -> dict[str, int]:
    """Waiting tasks become ready by the passing of time alone, which is no event."""
    counts: dict[str, int] = {name: tasks.get(name, 0) for name in TASK_STATES}
    counts["ready"] += counts.pop("waiting")
    return _some(counts)


def _tally(states: Iterable[str]) -> dict[str, int]:
    tally: dict[str, int] = {}
    for state in states:
        tally[state] = tally.get(state, 0) + 1
    return tally


def _some(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
