"""What a manager remembers across a restart: its workers, and the highest epoch it saw."""

import os
from pathlib import Path

import msgspec
import structlog

logger = structlog.get_logger("penstock.manager")


class RecordedWorker(msgspec.Struct, frozen=True):
    number: int
    pid: int
    start_ticks: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int = 0
    boot_id: str = ""
    """The run of the machine in which the workers lived."""
    workers: list[RecordedWorker] = []


class StateFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> State:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=State)
        except FileNotFoundError:
            return State()
        except (OSError, msgspec.DecodeError, ValueError) as error:
            logger.error("state_file_unreadable", path=str(self._path), error=str(error))
            return State()

    def write(self, state: State) -> None:
        """A full disk must not stop the manager: only the next one will know less."""
        new = self._path.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode(state))
            os.replace(new, self._path)
        except OSError as error:
            logger.error("state_not_kept_on_disk", path=str(self._path), error=str(error))
