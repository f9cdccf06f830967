"""Tasks that are commands: processes of their own, each in a process group of its own.

The way from one command to the next is kept as short as a bare posix_spawn loop: output goes to
anonymous files, the main thread blocks until the command has ended, and whatever needs a clock is
the attendant's.

The attendant signals the group by its number. The number is safe to use as long as the group's
leader was not reaped; so the main thread waits without reaping, takes the number away under the
lock, ends what is left of the group, and only then reaps.
"""

import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Mapping

from penstock.events.event import TaskGroupId
from penstock.events.exits import Exit, ExitCode, Signal, classify_status
from penstock.events.spec import TaskSpec
from penstock.worker.arrays import Values, is_template, text_template, values
from penstock.worker.orphans import Orphans
from penstock.worker.outputs import OutputFiles
from penstock.worker.queue import Ending, Task

# Python ignores SIGPIPE, and whoever started the manager may ignore others: a command begins with
# none ignored and none blocked.
_DEFAULT_SIGNALS = [
    int(number)
    for number in (
        signal.SIGPIPE,
        signal.SIGXFSZ,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGCHLD,
    )
]

_KILL = int(signal.SIGKILL)
_UNTIL_EXIT = os.WEXITED | os.WNOWAIT


def task_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment without the settings of Penstock, some of which are secrets."""
    return {name: value for name, value in environ.items() if not name.startswith("PENSTOCK_")}


class Commands:
    """What all command tasks of a worker share."""

    def __init__(self, environ: Mapping[str, str], orphans: Orphans) -> None:
        self.environment = {
            os.fsencode(name): os.fsencode(value) for name, value in environ.items()
        }
        self.orphans = orphans
        self.spare_files: OutputFiles | None = None
        """Empty, and open in no other process: making new ones costs a short command dearly."""
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.lock = threading.Lock()
        """Held by the attendant while it uses `running`, so that it does not go away meanwhile."""
        self.running: tuple[int, OutputFiles] | None = None
        """Process group and output of the running command."""
        self.own_maximum_rss = 0

    def signal(self, number: int) -> bool:
        """Signal the running command's process group. For the attendant."""
        with self.lock:
            if self.running is None:
                return False
            _signal_group(self.running[0], number)
            return True

    @property
    def process_group(self) -> int | None:
        running = self.running
        return running[0] if running is not None else None

    def maximum_rss(self, kibibytes: int) -> Ending:
        """Until it calls exec, a child counts the worker's memory as its own: only more than that
        says something about the command."""
        self.own_maximum_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"max_rss_bytes": kibibytes * 1024} if kibibytes > self.own_maximum_rss else {}

    def trim_outputs(self) -> None:
        """Bound the memory that the running command's output takes. For the attendant."""
        with self.lock:
            if self.running is not None:
                self.running[1].trim()


class Command:
    """A command task, ready to be spawned."""

    def __init__(
        self, commands: Commands, spec: TaskSpec, task_group_id: TaskGroupId, *, array: bool
    ) -> None:
        self.timeout_seconds = spec.timeout_seconds
        self._commands = commands
        self._directory = spec.working_directory
        variables = spec.environment or {}
        self._environment = {
            **commands.environment,
            **{os.fsencode(name): os.fsencode(text) for name, text in variables.items()},
            b"PENSTOCK_TASK_GROUP_ID": b"%d" % task_group_id,
        }
        command = spec.command or []
        self._arguments = [os.fsencode(part) for part in command]
        self._path = variables.get("PATH")
        texts = [*command, *variables.values(), spec.working_directory]
        self._render: Callable[[Values], tuple[list[bytes], dict[bytes, bytes], str]] | None = None
        if array and is_template(texts):
            self._render = self._template(command, variables)

    def _template(
        self, command: list[str], environment: dict[str, str]
    ) -> Callable[[Values], tuple[list[bytes], dict[bytes, bytes], str]]:
        constant = self._environment
        arguments = [text_template(part) for part in command]
        variables = [
            (os.fsencode(name), text_template(text))
            for name, text in environment.items()
            if is_template(text)
        ]
        directory = text_template(self._directory)

        def render(values: Values) -> tuple[list[bytes], dict[bytes, bytes], str]:
            return (
                [os.fsencode(argument(values)) for argument in arguments],
                {**constant, **{name: os.fsencode(text(values)) for name, text in variables}},
                directory(values),
            )

        return render

    def execute(self, task: Task) -> Ending | None:
        directory = self._directory
        if self._render is None:
            arguments, environment = self._arguments, self._environment.copy()
        else:
            try:
                arguments, environment, directory = self._render(values(task.array_index, task.row))
            except ValueError as error:
                return _failed("not_startable", f"The command cannot be made: {error}.")
        environment[b"PENSTOCK_TASK_ID"] = b"%d" % task.task_id
        environment[b"PENSTOCK_ATTEMPT"] = b"%d" % task.attempt
        if task.array_index is not None:
            environment[b"PENSTOCK_INDEX"] = b"%d" % task.array_index
        commands = self._commands
        orphans = commands.orphans
        if not orphans.adopting:
            orphans.adopt()
        files, commands.spare_files = commands.spare_files or OutputFiles(), None
        try:
            pid = self._spawn(arguments, environment, directory, files)
        except (OSError, ValueError) as error:
            files.close()
            return _not_startable(error, arguments, directory)
        commands.running = pid, files
        os.waitid(os.P_PID, pid, _UNTIL_EXIT)
        with commands.lock:
            commands.running = None
        # The leader is a zombie, so its group cannot have become someone else's.
        _signal_group(pid, _KILL)
        _, status, usage = os.wait4(pid, 0)
        ending: Ending = {"exit_code": 0, "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 6)}
        if status:
            ending |= _failure(classify_status(status))
        if usage.ru_maxrss > commands.own_maximum_rss:
            ending |= commands.maximum_rss(usage.ru_maxrss)
        written = files.read()
        if written is not None:
            ending["stdout"], ending["stderr"], ending["output_truncated"] = written
        if not orphans.are_gone():
            files.close()
        else:
            if written is not None:
                files.clear()
            commands.spare_files = files
        return ending

    def _spawn(
        self,
        arguments: list[bytes],
        environment: dict[bytes, bytes],
        directory: str,
        files: OutputFiles,
    ) -> int:
        program = arguments[0]
        if directory:
            # posix_spawn knows no working directory, and this thread is the only one that uses it.
            os.chdir(directory)
        try:
            if self._path is not None and b"/" not in program:
                program = shutil.which(program, path=os.fsdecode(environment[b"PATH"])) or program
            return os.posix_spawnp(
                program,
                arguments,
                environment,
                file_actions=files.file_actions,
                setpgroup=0,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        finally:
            if directory:
                os.fchdir(self._commands.home)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (PermissionError, ProcessLookupError):
        # All that is left of it is gone, or has become another user: the kernel keeps it from us.
        return


def _failure(how: Exit) -> Ending:
    if isinstance(how, Signal):
        return {**_failed("signal", how.message), "signal": how.number, "exit_code": None}
    code = how.code if isinstance(how, ExitCode) else None
    return {**_failed("exit_code", how.message), "exit_code": code}


def _failed(cause: str, message: str) -> Ending:
    return {"outcome": "failed", "cause": cause, "message": message}


def _not_startable(error: OSError | ValueError, arguments: list[bytes], directory: str) -> Ending:
    program = os.fsdecode(arguments[0])
    if directory and not os.path.isdir(directory):
        return _failed(
            "not_startable", f"The working directory {directory!r} does not exist on this machine."
        )
    if isinstance(error, OSError) and error.filename == directory and directory:
        return _failed(
            "not_startable",
            f"The working directory {directory!r} cannot be used: {error.strerror}.",
        )
    if isinstance(error, FileNotFoundError):
        what = "does not exist" if "/" in program else "is not in the PATH of this manager"
        return _failed("not_startable", f"The program {program!r} {what}.")
    if isinstance(error, PermissionError):
        return _failed("not_startable", f"The program {program!r} may not be executed.")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return _failed("not_startable", f"The program {program!r} cannot be started: {reason}.")
