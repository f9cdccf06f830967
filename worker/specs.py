"""From the spec of a task to a program that runs it."""

import msgspec

from penstock.events.manager_protocol import TaskBatch
from penstock.events.spec import TaskSpec
from penstock.worker.commands import Command, Commands
from penstock.worker.handlers import Handler, Handlers
from penstock.worker.queue import Ending, Program, Task

CACHE_SIZE = 512


class NotStartable:
    """A spec that this worker can only fail."""

    def __init__(self, message: str, traceback: str = "") -> None:
        self.timeout_seconds: float | None = None
        self._ending: Ending = {
            "outcome": "failed",
            "cause": "not_startable",
            "message": message,
            "stderr": traceback,
        }

    def execute(self, task: Task) -> Ending:
        return self._ending


class Programs:
    """Programs by spec: an array sends the same spec again and again."""

    def __init__(self, commands: Commands, handlers: Handlers) -> None:
        self._commands = commands
        self._handlers = handlers
        self._decoder = msgspec.json.Decoder(TaskSpec)
        self._cache: dict[tuple[int, bool, bytes], Program] = {}

    def of(self, batch: TaskBatch) -> Program:
        key = (batch.task_group_id, batch.array, batch.spec)
        program = self._cache.get(key)
        if program is None:
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            program = self._cache[key] = self._make(batch)
        return program

    def _make(self, batch: TaskBatch) -> Program:
        try:
            spec = self._decoder.decode(batch.spec)
        except (msgspec.DecodeError, RecursionError) as error:
            return NotStartable(f"The task's spec cannot be read by this worker: {error}.")
        if spec.command:
            try:
                return Command(self._commands, spec, batch.task_group_id, array=batch.array)
            except ValueError as error:
                return NotStartable(f"The command cannot be made: {error}.")
        if spec.handler is not None:
            try:
                return Handler(self._handlers, spec, array=batch.array)
            except RecursionError:
                return NotStartable("The handler's arguments are nested too deeply.")
        return NotStartable("The task's spec names neither a command nor a handler.")
