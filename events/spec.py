"""What a task is: the spec that a user submits and that travels unchanged to the worker.

The schema is whole: it names everything that a task will ever carry. `validate` turns away the
fields on which no part of this version acts, so that nothing is ignored in silence.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.errors import Invalid, Unsupported
from penstock.events.event import TaskId

Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
PRIORITY_NAMES = {"low": -10, "normal": 0, "high": 10, "critical": 20}

Cause = Literal[
    "exit_code",
    "signal",
    "exception",
    "timeout",
    "stuck",
    "worker_death",
    "executor_lost",
    "not_startable",
    "returned",
    "cancelled",
]
"""Why an attempt ended otherwise than well.

`signal` is the command's own death, `worker_death` that of the process that ran it,
`executor_lost` that of the manager; `not_startable` is a command that does not exist or a handler
that cannot be imported; `returned` means that the executor gave the task back before it ran.
"""

MAX_ARRAY = 100_000_000
MAX_INLINE_OUTPUT = 64 * 1024


class Document(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """A value that users write: a misspelt field is an error, never ignored.

    Documents come by the hundred thousand. They hold no cycles, so the collector need not look at
    them, and defaults that cannot be changed need not be made anew for each.
    """


class RetryPolicy(Document, frozen=True, kw_only=True):
    """How often a task may fail, by cause, and how long to wait in between.

    `max_attempts` holds for the failures of the task itself: exit code, signal, exception and
    timeout. `by_cause` overrides it. Deaths of the worker have limits of their own, by signal.
    """

    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 1
    by_cause: dict[Cause, Annotated[int, Meta(ge=1, le=1000)]] = {}
    backoff_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    backoff_factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    backoff_max_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 300.0


class Resource(Document, frozen=True, kw_only=True):
    """A file to fetch before the task runs."""

    url: str
    path: str


class TaskSpec(Document, frozen=True, kw_only=True):
    """One task. Exactly one of `command` and `handler` is set.

    A `command` is run without a shell. A `handler` is `module:function`; `arguments` is a list
    (positional) or an object (by keyword).
    """

    command: list[str] | None = None
    handler: str | None = None
    arguments: list[Any] | dict[str, Any] | None = None
    environment: dict[str, str] | None = None
    working_directory: str = ""
    timeout_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    priority: Priority | Literal["low", "normal", "high", "critical"] = 0
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    retry: RetryPolicy | None = None
    key: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    fingerprint: str | None = None
    dependencies: tuple[TaskId, ...] = ()
    estimate_seconds: Annotated[float, Meta(gt=0)] | None = None
    resources: tuple[Resource, ...] = ()
    artifacts: tuple[str, ...] = ()

    @property
    def priority_value(self) -> int:
        return (
            PRIORITY_NAMES.get(self.priority, 0)
            if isinstance(self.priority, str)
            else self.priority
        )


class TaskArray(Document, frozen=True, kw_only=True):
    """Many tasks from one template: a count of indexes, or one task for each row of parameters.

    In the template's texts `{index}` and, for each column of a row, `{column}` are replaced. A
    text that is nothing but such a name becomes the value itself in the arguments of a handler.
    """

    template: TaskSpec
    count: Annotated[int, Meta(ge=1, le=MAX_ARRAY)] | None = None
    first_index: Annotated[int, Meta(gt=-(2**53), lt=2**53)] = 0
    step: Annotated[int, Meta(ge=1, lt=2**53)] = 1
    parameters: list[dict[str, Any]] | None = None

    @property
    def size(self) -> int:
        return len(self.parameters) if self.parameters is not None else self.count or 0


_HANDLER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_UNSUPPORTED_TASK_FIELDS = {
    "tags": "put tags on the task group: they choose the managers of all its tasks",
    "fingerprint": "use 'key' to keep a task from being submitted twice",
    "dependencies": "submit the dependent tasks when their predecessors are done",
    "estimate_seconds": "use 'timeout_seconds' to end a task that takes too long",
    "resources": "fetch what the task needs in its command",
    "artifacts": "stdout, stderr and the result value are kept; write files to a place of your own",
}


def validate(spec: TaskSpec) -> None:
    """Raise for a spec that decodes but cannot be meant."""
    if (spec.command is None) == (spec.handler is None):
        raise Invalid("Set exactly one of 'command' and 'handler'.", field="command")
    if spec.command is not None:
        _validate_command(spec.command, spec)
    elif spec.handler is not None and not _HANDLER.fullmatch(spec.handler):
        raise Invalid("'handler' must look like 'package.module:function'.", field="handler")
    if spec.environment is not None:
        _validate_environment(spec.environment)
    if (
        spec.tags
        or spec.fingerprint
        or spec.dependencies
        or spec.estimate_seconds
        or spec.resources
        or spec.artifacts
    ):
        field, advice = next(
            (field, advice)
            for field, advice in _UNSUPPORTED_TASK_FIELDS.items()
            if getattr(spec, field)
        )
        raise Unsupported(f"'{field}' does nothing in this version; {advice}.", field=field)


def _validate_command(command: list[str], spec: TaskSpec) -> None:
    if not command or not command[0]:
        raise Invalid("'command' names no program.", field="command")
    if spec.arguments is not None:
        raise Invalid(
            "'arguments' belongs to a handler; put a command's into 'command'.",
            field="arguments",
        )
    if any("\0" in part for part in command):
        raise Invalid("'command' holds a NUL character.", field="command")


def _validate_environment(environment: dict[str, str]) -> None:
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise Invalid(f"{name!r} cannot be an environment variable.", field="environment")
