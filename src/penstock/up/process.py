"""One child process: started, watched, stopped.

The exit is awaited on a pidfd, so that a process belongs to no event loop: it can be started under
one, watched under another and stopped without any. Each child is a session of its own; a Ctrl-C at
the terminal reaches the supervisor alone, which then stops the children in order.

The child is told to stop when the thread that started it ends: start processes from the main
thread.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.up import launch

_LOG_LIMIT_BYTES = 64 * 1024 * 1024


class Process:
    """A running child. `returncode` is None until its exit was noticed."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self._popen = popen
        self._logged_before = log.stat().st_size if log.exists() else 0

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    async def wait(self) -> int:
        """Wait for the exit."""
        if (code := self._popen.poll()) is not None:
            return code
        pidfd = os.pidfd_open(self.pid)
        loop = asyncio.get_running_loop()
        exited = asyncio.Event()
        loop.add_reader(pidfd, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        return self._popen.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended: then its pid may belong to another."""
        self._popen.send_signal(number)

    async def stop(
        self, number: signal.Signals = signal.SIGTERM, limit_seconds: float = 10.0
    ) -> int:
        """Ask it to stop; kill it when it does not."""
        self.send(number)
        try:
            return await asyncio.wait_for(self.wait(), limit_seconds)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        self.send(signal.SIGKILL)
        return await self.wait()

    def last_words(self) -> str:
        """The message with which one of our own processes gave up."""
        *_, line = ["", *self.output().splitlines()]
        return line.removeprefix("penstock: ")

    def output(self, lines: int = 12) -> str:
        """The end of what this process wrote to its log, to explain a failure."""
        with self.log.open("rb") as file:
            file.seek(min(self._logged_before, os.fstat(file.fileno()).st_size))
            text = file.read(1024 * 1024).decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def start(
    name: str,
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    signal_when_orphaned: signal.Signals | None = signal.SIGTERM,
    identity: str = "same",
) -> Process:
    """Start a command through `launch`; its output is added to the log file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    launcher = [sys.executable, "-I", "-S", launch.__file__]
    launcher += [str(os.getpid()), str(int(signal_when_orphaned or 0)), identity]
    launcher += [str(directory or ""), *command]
    with log.open("ab") as output:
        popen = subprocess.Popen(
            launcher,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
    return Process(name, popen, log)
