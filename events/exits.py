"""How a process ended, in words: the command of a task, or a worker."""

import os
import signal
from typing import TypeAlias

import msgspec


class Success(msgspec.Struct, frozen=True):
    message: str = "Exited with code 0."


class ExitCode(msgspec.Struct, frozen=True):
    code: int

    @property
    def message(self) -> str:
        return f"Exited with code {self.code}."


class Signal(msgspec.Struct, frozen=True):
    number: int
    core_dumped: bool = False

    @property
    def message(self) -> str:
        try:
            name = signal.Signals(self.number).name
            description = signal.strsignal(self.number) or "unknown"
        except ValueError:
            name, description = f"signal {self.number}", "unknown"
        core = ", core dumped" if self.core_dumped else ""
        return f"Killed by {name} ({description}{core})."


class Unknown(msgspec.Struct, frozen=True):
    message: str = "How it ended is not known."


Exit: TypeAlias = Success | ExitCode | Signal | Unknown


def classify_status(status: int) -> Exit:
    """From the status of `wait`."""
    if os.WIFSIGNALED(status):
        return Signal(os.WTERMSIG(status), core_dumped=os.WCOREDUMP(status))
    code = os.waitstatus_to_exitcode(status)
    return ExitCode(code) if code else Success()


def classify(code: int, status: int) -> Exit:
    """From `si_code` and `si_status` of `waitid`."""
    if code == os.CLD_EXITED:
        return ExitCode(status) if status else Success()
    if code in (os.CLD_KILLED, os.CLD_DUMPED):
        return Signal(status, core_dumped=code == os.CLD_DUMPED)
    return Unknown()
