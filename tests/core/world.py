"""The core without any shell: a log in a list, managers that report what a test tells them to."""

from collections import deque
from typing import Any

from penstock.coordinator.commands import (
    AnyCommand,
    Chunk,
    Initialise,
    RegisterManager,
    ReportTasks,
    SubmitTasks,
    SynchroniseManager,
)
from penstock.coordinator.decisions import decide_round
from penstock.coordinator.submissions import list_chunks
from penstock.errors import PenstockError
from penstock.events import (
    SECOND,
    START,
    AnyEvent,
    AttemptResult,
    Commit,
    Position,
    TaskSpec,
    decode,
    digest,
)
from penstock.events.commit import assemble
from penstock.projections import State, advance, apply, decode_state, encode_state

ACTOR = {"actor": "user:test"}


def submission(chunk: Chunk, group: int = 1, key: str = "", digest: str = "") -> SubmitTasks:
    return SubmitTasks(**ACTOR, task_group_id=group, chunk=chunk, key=key, key_digest=digest)


class World:
    def __init__(self) -> None:
        self.state = State()
        self.now = 1_000_000 * SECOND
        self.capacities: dict[str, int] = {}
        self.bodies: list[bytes] = []
        self.position: Position = START
        self.send(Initialise(actor="coordinator"))

    def send(self, *commands: AnyCommand) -> Any:
        """Decide commands in one round and commit. Returns the last answer, or raises."""
        queue = deque((command, None) for command in commands)
        while True:
            made = decide_round(
                self.state, queue, self.capacities, self.position.sequence + 1, self.now
            )
            for events in made.commits:
                self._append(events, made.at)
            self.last_events: list[AnyEvent] = made.events
            if not queue:
                break
        if not made.replies:
            return None
        answer = made.replies[-1][1]
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    def _append(self, events: list[bytes], at: int) -> None:
        sequence = self.position.sequence + 1
        body = assemble(self.position, commit_id=f"c{sequence}", epoch=1, at=at, events=events)
        self.bodies.append(body)
        self.position = Position(
            sequence=sequence, counter=self.position.counter + 1, hash=digest(body)
        )

    def submit(self, count: int = 1, group: int = 1, **spec: Any) -> int:
        """Submit equal tasks as a list. Returns the first id."""
        spec = spec or {"command": ["true"]}
        specs = [TaskSpec(**spec) for _ in range(count)]
        first = self.state.next_task_id
        self.send(*(submission(chunk, group) for chunk in list_chunks(specs)))
        return first

    def join(self, manager_id: str = "m1", capacity: int = 10, **properties: Any) -> None:
        """A manager registers and synchronises for the first time."""
        self.send(
            RegisterManager(
                **ACTOR,
                manager_id=manager_id,
                groups=properties.pop("groups", ["default"]),
                worker_count=2,
                **properties,
            )
        )
        self.send(self.sync(manager_id))
        self.capacities[manager_id] = capacity
        self.send()

    def sync(self, manager_id: str, incarnation: str = "1", **held: Any) -> SynchroniseManager:
        return SynchroniseManager(
            actor=f"manager:{manager_id}", manager_id=manager_id, incarnation=incarnation, **held
        )

    def held(self, manager_id: str = "m1") -> list[int]:
        return sorted(self.state.managers[manager_id].tasks)

    def report(self, manager_id: str = "m1", **what: Any) -> None:
        self.send(ReportTasks(actor=f"manager:{manager_id}", manager_id=manager_id, **what))

    def result(self, task_id: int, **facts: Any) -> AttemptResult:
        task = self.state.tasks.get(task_id)
        attempt = facts.pop("attempt", task.attempt if task else 1)
        return AttemptResult(task_id=task_id, attempt=attempt, ended_at=self.now, **facts)

    def finish(self, *task_ids: int, manager_id: str = "m1", **facts: Any) -> None:
        results = [self.result(task_id, **facts) for task_id in task_ids]
        self.report(manager_id, finished=results)

    def commits(self) -> list[Commit]:
        return [decode(body, place) for place, body in enumerate(self.bodies, 1)]

    def replayed(self) -> State:
        """The state as folded from the encoded log alone."""
        state = State()
        for sequence, commit in enumerate(self.commits(), 1):
            apply(state, commit, sequence)
        return state

    def replayed_with(self, events: list[bytes]) -> State:
        """The state as it is when one more commit was made, of these encoded events."""
        self._append(events, self.now)
        return self.replayed()

    def replace_state(self, state: State) -> None:
        """Go on from a state, as after a crash."""
        self.state = state


def normal(state: State, now: int) -> State:
    """A copy at a given time, with heaps in order: equal states have equal normal forms."""
    copy = decode_state(encode_state(state))
    advance(copy, now)
    copy.due.sort()
    copy.deadlines.sort()
    for group in copy.task_groups.values():
        group.queue.sort()
    return copy


def recount(world: World) -> None:
    """Every number that the state keeps agrees with what it counts."""
    state = world.state
    for group in state.task_groups.values():
        ranges = [r for r in state.ranges.values() if r.task_group_id == group.id]
        live = [t for t in state.tasks.values() if t.task_group_id == group.id]
        queued = sum(r.count - r.taken - len(r.skipped) for r in ranges)
        by_state = {
            name: sum(task.state == name for task in live)
            for name in ("assigned", "running", "waiting", "ready")
        }
        counts = group.counts
        assert counts.ready == queued + by_state["ready"]
        assert counts.waiting == by_state["waiting"]
        assert counts.assigned == by_state["assigned"]
        assert counts.running == by_state["running"]
        ended = counts.succeeded + counts.failed + counts.cancelled
        assert counts.total == ended + counts.unfinished
        assert sum(r.unfinished for r in ranges) == counts.unfinished
        assert (group.id in state.backlog) == bool(group.queue)
    for manager in state.managers.values():
        assert manager.tasks == {
            task_id for task_id, task in state.tasks.items() if task.manager_id == manager.id
        }
    assert state.starts == sorted(state.ranges)
