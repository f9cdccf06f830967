"""What `penstock up` keeps on disk, and the lock that lets one supervisor at a time work with it.

data/
├── nats/              the log, written by nats-server
├── nats.credentials   user, password and port of nats-server          (0600)
├── postgres/          the read models
├── admin.token        the token for the HTTP interface                (0600)
├── manager/           what the manager must not forget
├── logs/              one file per process
├── penstock.lock      held while a supervisor runs
├── penstock.pid       which process that is
└── address.json       where everything listens, while it is ready     (0600)
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.errors import Conflict, Invalid
from penstock.up import private

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process, told apart from a later one with the same pid."""

    pid: int
    start_ticks: int
    boot: str


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a ready system listens; what clients on this machine look for."""

    url: str
    token_file: str
    nats_url: str
    database_url: str
    pid: int


class DataDirectory:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.nats = self.root / "nats"
        self.nats_credentials = self.root / "nats.credentials"
        self.postgres = self.root / "postgres"
        self.token_file = self.root / "admin.token"
        self.manager = self.root / "manager"
        self.logs = self.root / "logs"
        self.lock_file = self.root / "penstock.lock"
        self.pid_file = self.root / "penstock.pid"
        self.address_file = self.root / "address.json"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def create(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.logs.mkdir(exist_ok=True)
            self.manager.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise Invalid(
                f"The data directory {self.root} cannot be used: {error.strerror}."
                " Choose another with --data."
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory; the kernel lets go of it when this process dies, however it does."""
        with self.lock_file.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Conflict(self._in_use()) from error
            private.write(self.pid_file, msgspec.json.encode(_this_process()).decode())
            try:
                yield
            finally:
                self.address_file.unlink(missing_ok=True)
                self.pid_file.unlink(missing_ok=True)

    def owner(self) -> Owner | None:
        """The supervisor that works here now; None when there is none, or only its old file."""
        try:
            owner = msgspec.json.decode(self.pid_file.read_bytes(), type=Owner)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return owner if _identify(owner.pid) == owner else None

    def publish(self, address: Address) -> None:
        private.write(self.address_file, msgspec.json.encode(address).decode())

    def address(self) -> Address | None:
        """Where the system listens, once it is ready."""
        try:
            return msgspec.json.decode(self.address_file.read_bytes(), type=Address)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _in_use(self) -> str:
        owner, address = self.owner(), self.address()
        process = f"process {owner.pid}" if owner else "another process"
        where = f" ({address.url})" if address else ""
        return (
            f"{self.root} is in use: {process} runs Penstock there{where}."
            f" Stop it with 'penstock down --data {self.root}', or choose another --data."
        )


def _this_process() -> Owner:
    owner = _identify(os.getpid())
    if owner is None:
        raise Invalid("Penstock needs /proc to tell its processes apart. Mount it.")
    return owner


def _identify(pid: int) -> Owner | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in brackets may hold spaces; the state and the start time come after it.
    fields = text.rpartition(")")[2].split()
    if fields[0] == "Z":
        return None
    return Owner(pid=pid, start_ticks=int(fields[19]), boot=_BOOT.read_text().strip())
