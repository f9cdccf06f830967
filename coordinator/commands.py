"""What can be asked of the core. Every command says who asks, and by which request."""

from typing import Any, TypeAlias

import msgspec

from penstock.events import (
    Attempt,
    AttemptResult,
    Device,
    ManagerId,
    SpecRun,
    TaskGroupId,
    TaskId,
    TaskStart,
    Timestamp,
)
from penstock.events.manager_protocol import Held
from penstock.events.tasks import NO_JSON


class Command(msgspec.Struct, frozen=True, kw_only=True):
    actor: str
    cause: str = ""
    reason: str = ""

    def origin(self, now: Timestamp) -> dict[str, Any]:
        """What every event that follows from this command carries."""
        return {"at": now, "actor": self.actor, "cause": self.cause, "reason": self.reason}


class CreateTaskGroup(Command, frozen=True, kw_only=True):
    name: str
    group: str = "default"
    description: str = ""
    priority: int = 0
    tags: list[str] = []
    labels: list[str] = []
    max_managers: int | None = None
    task_prefetch_count: int | None = None
    key: str = ""


class CloseTaskGroup(Command, frozen=True, kw_only=True):
    task_group_id: TaskGroupId


class ReopenTaskGroup(Command, frozen=True, kw_only=True):
    task_group_id: TaskGroupId


class CancelTaskGroup(Command, frozen=True, kw_only=True):
    task_group_id: TaskGroupId
    cancel_running_tasks: bool = True


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Some tasks of a submission, validated and encoded: as many as fit into a commit.

    `specs` or `template` is JSON. `offset` is how many tasks of the submission came before.
    """

    count: int
    runs: list[SpecRun]
    specs: msgspec.Raw = NO_JSON
    template: msgspec.Raw = NO_JSON
    parameters: msgspec.Raw = NO_JSON
    first_index: int = 0
    step: int = 1
    offset: int = 0
    task_keys: dict[str, int] = {}
    """Idempotency keys of single tasks, with their place in the list."""


class SubmitTasks(Command, frozen=True, kw_only=True):
    """A long submission comes as several of these, with the same `key` and rising offsets."""

    task_group_id: TaskGroupId
    chunk: Chunk
    key: str = ""
    key_digest: str = ""


class CancelTask(Command, frozen=True, kw_only=True):
    task_id: TaskId


class RegisterManager(Command, frozen=True, kw_only=True):
    manager_id: ManagerId
    groups: list[str]
    tags: list[str] = []
    labels: list[str] = []
    worker_count: int
    device: Device = Device()


class SynchroniseManager(Command, frozen=True, kw_only=True):
    """A manager tells what it holds."""

    manager_id: ManagerId
    incarnation: str
    held: list[Held] = []
    worker_count: int = 0
    device: Device = Device()


class ReportTasks(Command, frozen=True, kw_only=True):
    """A manager tells what happened to tasks."""

    manager_id: ManagerId
    started: list[TaskStart] = []
    finished: list[AttemptResult] = []
    returned: list[Attempt] = []


class LoseManager(Command, frozen=True, kw_only=True):
    """A manager has not been heard of for too long."""

    manager_id: ManagerId


class PassTime(Command, frozen=True, kw_only=True):
    """Something is due."""


class Initialise(Command, frozen=True, kw_only=True):
    """Make what every deployment starts with, and mend what a crash left half done."""


AnyCommand: TypeAlias = (
    CreateTaskGroup
    | CloseTaskGroup
    | ReopenTaskGroup
    | CancelTaskGroup
    | SubmitTasks
    | CancelTask
    | RegisterManager
    | SynchroniseManager
    | ReportTasks
    | LoseManager
    | PassTime
    | Initialise
)
