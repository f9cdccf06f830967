"""Facts about processes from /proc, and the end of whole sessions."""

import os
import select
import signal
from collections.abc import Callable, Iterator


def start_ticks(pid: int) -> int | None:
    """When a process began: with its pid, this names it for good, as pids are used again."""
    fields = _stat(pid)
    return int(fields[19]) if fields is not None else None


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            content = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything, spaces included.
    return content.rpartition(")")[2].split()


def boot_id() -> str:
    """Names this run of the machine: process numbers and start times begin again with each."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def command_line(pid: int) -> list[str]:
    return _words(pid, "cmdline")


def _words(pid: int, name: str) -> list[str]:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="surrogateescape") as file:
            return file.read().split("\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def members(session: int) -> Iterator[int]:
    """Living processes of a session. Its number is not used again while it has any."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            fields = _stat(int(name))
            if fields is not None and fields[3] == str(session) and fields[0] not in "ZX":
                yield int(name)


def kill_session(session: int) -> None:
    """End a worker and all that its tasks started, in whatever process groups they are.

    To be called only while the worker is known to be alive, or to have just ended: another session
    may get its number later.
    """
    _kill_all(lambda: list(members(session)))


def kill_tasks_left_in(session: int) -> None:
    """End what the tasks of a worker left behind that died unseen.

    By now the session may be another's, so only what says that it is a task is ended.
    """
    _kill_all(lambda: [pid for pid in members(session) if _is_task(pid)])


def _is_task(pid: int) -> bool:
    return any(word.startswith("PENSTOCK_TASK_ID=") for word in _words(pid, "environ"))


def _kill_all(look: Callable[[], list[int]]) -> None:
    while pids := look():
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                # Gone, or a command that became another user.
                continue
        # One that forks faster than we look is found in the next round.
        if all(_wait_for_end(pid) for pid in pids):
            continue
        return


def _wait_for_end(pid: int) -> bool:
    """Whether a killed process has ended; one that the kernel holds is left to it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 0.5)[0])
    finally:
        os.close(descriptor)
