"""Tasks that are Python functions, called in the worker itself."""

import asyncio
import importlib
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.events.spec import MAX_INLINE_OUTPUT, TaskSpec
from penstock.worker.arrays import is_template, text_template, value_template, values
from penstock.worker.capture import Capture
from penstock.worker.orphans import Orphans
from penstock.worker.queue import Ending, Queue, Task

INTERRUPT = signal.SIGUSR1
TRACEBACK_CHARACTERS = 8 * 1024
MAX_RESULT_DEPTH = 100
"""Whoever decodes a result after us, in whatever language, has a stack of some depth only."""


class TaskStopped(BaseException):
    """Raised inside a handler that was cancelled or ran out of time.

    Not an `Exception`, so that a handler's own error handling does not swallow it.
    """


class NotCallable(Exception):
    """What a handler's name leads to cannot be called."""


class NoSuchDirectory(Exception):
    """The working directory of a task cannot be entered."""


class Handlers:
    """What all handler tasks of a worker share."""

    def __init__(self, queue: Queue, orphans: Orphans) -> None:
        self._queue = queue
        self.orphans = orphans
        self.inside = False
        """Whether the main thread is in a handler's own code, where it may be interrupted."""
        self.stdout = Capture(1)
        self.stderr = Capture(2)
        self._functions: dict[str, Callable[..., Any] | Ending] = {}

    def install(self) -> None:
        """Capture what is printed, and let the attendant interrupt handlers."""
        sys.stdout = self.stdout
        sys.stderr = self.stderr
        signal.signal(INTERRUPT, self._interrupt)

    def _interrupt(self, _number: int, _frame: object) -> None:
        stop = self._queue.stop
        if self.inside and stop is not None and stop.task is self._queue.current:
            raise TaskStopped

    def function(self, name: str) -> Callable[..., Any] | Ending:
        """The function of that name, or how a task that wants it ends."""
        function = self._functions.get(name)
        if function is None:
            try:
                function = self._resolve(name)
            except BaseException as error:
                # Importing runs code that is not ours: whatever it raises must not end the worker.
                return {
                    "outcome": "failed",
                    "cause": "not_startable",
                    "message": f"Handler {name!r} cannot be loaded: {_describe(error)}.",
                    "stderr": _traceback(error),
                }
            self._functions[name] = function
        return function

    def _resolve(self, name: str) -> Callable[..., Any]:
        module_name, _, path = name.partition(":")
        importlib.invalidate_caches()
        function: Any = importlib.import_module(module_name)
        for part in path.split("."):
            function = getattr(function, part)
        if not callable(function):
            raise NotCallable(f"{path!r} is {type(function).__name__}, not a function")
        if inspect.iscoroutinefunction(function):
            coroutine_function = function
            return lambda *args, **kwargs: asyncio.run(coroutine_function(*args, **kwargs))
        return function  # type: ignore[no-any-return]


class Handler:
    """A handler task, ready to be called."""

    is_command = False

    def __init__(self, handlers: Handlers, spec: TaskSpec, *, array: bool) -> None:
        self.timeout_seconds = spec.timeout_seconds
        self._handlers = handlers
        self._name = spec.handler or ""
        self._spec = spec
        self._array = array
        self._function: Callable[..., Any] | None = None
        self._surroundings = bool(spec.environment or spec.working_directory)
        arguments = spec.arguments if spec.arguments is not None else []
        self._by_keyword = isinstance(arguments, dict)
        self._template = value_template(arguments) if array and is_template(arguments) else None
        flat = arguments.values() if isinstance(arguments, dict) else arguments
        self._constant = (
            arguments if not any(isinstance(item, list | dict) for item in flat) else None
        )
        """Arguments that a function cannot change, so that all tasks may share them."""
        self._encoded = msgspec.json.encode(arguments)

    def execute(self, task: Task) -> Ending | None:
        handlers = self._handlers
        function = self._function
        if handlers.orphans.adopting:
            handlers.orphans.renounce()
        if function is None:
            found = handlers.function(self._name)
            if isinstance(found, dict):
                return self._with_output(found)
            function = self._function = found
        if self._template is not None:
            arguments = self._template(values(task.array_index, task.row))
        elif self._constant is not None:
            arguments = self._constant
        else:
            arguments = msgspec.json.decode(self._encoded)
        try:
            handlers.inside = True
            if self._surroundings:
                with _surroundings(self._spec, task, array=self._array):
                    value = function(**arguments) if self._by_keyword else function(*arguments)
            elif self._by_keyword:
                value = function(**arguments)
            else:
                value = function(*arguments)
            handlers.inside = False
        except NoSuchDirectory as error:
            handlers.inside = False
            return {"outcome": "failed", "cause": "not_startable", "message": str(error)}
        except TaskStopped as error:
            handlers.inside = False
            return self._with_output({"stderr": _traceback(error)})
        except BaseException as error:
            handlers.inside = False
            return self._with_output(
                {
                    "outcome": "failed",
                    "cause": "exception",
                    "message": _describe(error),
                    "stderr": _traceback(error),
                }
            )
        ending = None if value is None else _result(value)
        if handlers.stdout.parts or handlers.stderr.parts:
            return self._with_output(ending or {})
        return ending

    def _with_output(self, ending: Ending) -> Ending:
        stdout, stdout_cut = self._handlers.stdout.take()
        stderr, stderr_cut = self._handlers.stderr.take()
        return {
            **ending,
            "stdout": stdout,
            "stderr": stderr + ending.get("stderr", ""),
            "output_truncated": stdout_cut or stderr_cut,
        }


@contextmanager
def _surroundings(spec: TaskSpec, task: Task, *, array: bool) -> Iterator[None]:
    """Environment and working directory of one task, undone afterwards."""
    names = values(task.array_index, task.row) if array else {}
    before = dict(os.environ)
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if spec.working_directory:
            _enter(text_template(spec.working_directory)(names))
        for name, value in (spec.environment or {}).items():
            os.environ[name] = text_template(value)(names)
        yield
    finally:
        os.fchdir(directory)
        os.close(directory)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _enter(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise NoSuchDirectory(
            f"The working directory {directory!r} cannot be used: {error.strerror}."
        ) from error


def _result(value: Any) -> Ending:
    """The value as JSON, or a failure that says why there is none."""
    try:
        encoded = msgspec.json.encode(value)
        plain = msgspec.json.decode(encoded)
        msgspec.msgpack.encode(plain)
    except Exception as error:
        # Encoding may run code of the value itself, which may raise anything.
        return {
            "outcome": "failed",
            "cause": "exception",
            "message": f"The result of type {type(value).__name__} is no JSON value: {error}.",
        }
    if len(encoded) > MAX_INLINE_OUTPUT:
        return {
            "outcome": "failed",
            "cause": "exception",
            "message": f"The result has {len(encoded)} bytes as JSON; at most {MAX_INLINE_OUTPUT} "
            "are kept. Write it to a file and return where it is.",
        }
    if encoded.count(b"[") + encoded.count(b"{") > MAX_RESULT_DEPTH and _too_deep(plain):
        return {
            "outcome": "failed",
            "cause": "exception",
            "message": f"The result is nested more than {MAX_RESULT_DEPTH} levels deep.",
        }
    return {"result": plain}


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_RESULT_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _describe(error: BaseException) -> str:
    text = str(error)
    name = type(error).__name__
    return f"{name}: {text}"[:1000] if text else name


def _traceback(error: BaseException) -> str:
    """As Python prints it, without the worker's own frame."""
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    return text[-TRACEBACK_CHARACTERS:]
