"""The supervisor starts a system, keeps it running, and leaves nothing behind."""

import asyncio
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from penstock.errors import Conflict, Corrupt, Invalid, Unavailable
from penstock.up import leftovers, main
from penstock.up.command import Command
from penstock.up.data_directory import DataDirectory, Owner
from penstock.up.guard import Server, next_delay
from penstock.up.supervisor import Settings, System, choose_address

pytestmark = pytest.mark.anyio

STAND_IN = str(Path(__file__).with_name("stand_in.py"))


def stand_ins(system: System) -> dict[str, Server]:
    def one(name: str, **settings: str) -> Server:
        return Command(
            name,
            [sys.executable, STAND_IN],
            environment=system.environment(**settings),
            log=system.data.log(name),
        )

    return {
        "coordinator": one("coordinator", listen=system.url.removeprefix("http://")),
        "manager": one("manager"),
    }


def a_system(data: Path, *, restart: bool = True) -> System:
    return System(Settings(data=data, listen="127.0.0.1:0", restart=restart), stand_ins)


def alive(pids: list[int]) -> list[int]:
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


def working_in(directory: Path) -> list[psutil.Process]:
    """Every process that was started for this directory, children of children too."""

    def belongs(process: psutil.Process) -> bool:
        return (
            str(directory) in " ".join(process.cmdline())
            or process.cwd().startswith(str(directory))
            or process.environ().get("PENSTOCK_DATA") == str(directory)
        )

    return leftovers.find(belongs)


async def test_a_system_starts_tells_where_it_is_and_leaves_no_process_behind(
    scratch: Path,
) -> None:
    async with a_system(scratch) as system:
        assert set(system.processes) == {"nats", "postgres", "coordinator", "manager"}
        address = system.data.address()
        assert address is not None
        assert (address.url, address.nats_url) == (system.url, system.nats_url)
        assert address.token_file == str(system.data.token_file)
        assert len(working_in(scratch)) >= 4
    assert not alive([one.pid for one in system.processes.values()])
    assert working_in(scratch) == []
    assert system.data.address() is None
    assert not system.data.pid_file.exists()


async def test_secrets_are_for_their_owner_only_and_stay_the_same(scratch: Path) -> None:
    tokens = []
    for _ in range(2):
        async with a_system(scratch) as system:
            tokens.append((system.token, system.nats_url))
            secret = [
                system.data.token_file,
                system.data.nats_credentials,
                system.data.address_file,
            ]
            assert {stat.S_IMODE(file.stat().st_mode) for file in secret} == {0o600}
    assert tokens[0] == tokens[1]
    assert len(tokens[0][0]) >= 32


async def test_whatever_is_killed_is_started_again(scratch: Path) -> None:
    async with a_system(scratch) as system:
        for name, process in system.processes.items():
            await system.kill(name)
            other = await asyncio.wait_for(system.replaced(name, process.pid), 20)
            assert other.pid != process.pid
        await system.ready()


async def test_without_restart_the_dead_stay_dead_until_they_are_started_again(
    scratch: Path,
) -> None:
    async with a_system(scratch, restart=False) as system:
        await system.kill("manager")
        await system.stop("coordinator")
        assert system.processes["manager"].returncode == -signal.SIGKILL
        assert system.processes["coordinator"].returncode is not None
        await system.start_again("coordinator")
        await system.ready()
        assert system.processes["manager"].returncode == -signal.SIGKILL


async def test_a_second_supervisor_is_refused_and_disturbs_nothing(scratch: Path) -> None:
    async with a_system(scratch) as system:
        with pytest.raises(Conflict, match=f"process {os.getpid()} .*penstock down --data"):
            await a_system(scratch).start()
        assert system.data.address() is not None
        assert system.data.owner() is not None
        await system.ready()


async def test_a_process_that_does_not_stay_up_ends_the_start_with_its_own_words(
    scratch: Path,
) -> None:
    def broken(system: System) -> dict[str, Server]:
        words = "import sys; sys.exit('no spoon')"
        return {
            "coordinator": Command(
                "coordinator",
                [sys.executable, "-c", words],
                environment=system.environment(),
                log=system.data.log("coordinator"),
            )
        }

    system = System(Settings(data=scratch, listen="127.0.0.1:0"), broken)
    with pytest.raises(Unavailable, match="no spoon"):
        await system.start()
    assert not alive([one.pid for one in system.processes.values()])


DAMAGED = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print('{"event": "found", "level": "error"}', flush=True)
signal.sigwait({signal.SIGUSR1})
print("penstock: The log jumps.", flush=True)
raise SystemExit(7)
"""


async def test_a_process_that_finds_the_log_damaged_is_not_started_again(scratch: Path) -> None:
    def table(system: System) -> dict[str, Server]:
        finder = Command(
            "projector",
            [sys.executable, "-c", DAMAGED],
            environment=system.environment(),
            log=system.data.log("projector"),
        )
        return {"projector": finder, **stand_ins(system)}

    async with System(Settings(data=scratch, listen="127.0.0.1:0"), table) as system:
        projector = system.processes["projector"]
        projector.send(signal.SIGUSR1)
        with pytest.raises(Corrupt, match=r"^The log jumps\.\n.*projector.*operate.md"):
            await asyncio.wait_for(system.until_damaged(), 10)
        assert system.processes["projector"] is projector


async def test_a_manager_that_is_late_does_not_hold_up_the_start_for_ever(
    scratch: Path,
) -> None:
    def without_managers(system: System) -> dict[str, Server]:
        lonely = Command(
            "coordinator",
            [sys.executable, STAND_IN, "no managers"],
            environment=system.environment(listen=system.url.removeprefix("http://")),
            log=system.data.log("coordinator"),
        )
        return stand_ins(system) | {"coordinator": lonely}

    settings = Settings(data=scratch, listen="127.0.0.1:0", manager_seconds=0.3)
    async with System(settings, without_managers) as system:
        assert system.data.address() is not None


async def test_settings_of_another_system_do_not_reach_the_children(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "of another")
    monkeypatch.setenv("PGPORT", "1")
    async with a_system(scratch) as system:
        environment = psutil.Process(system.processes["manager"].pid).environ()
    assert "PENSTOCK_TOKEN" not in environment
    assert "PGPORT" not in environment
    assert environment["PENSTOCK_DATA"] == str(scratch)


async def test_down_with_an_old_pid_file_harms_nobody(scratch: Path) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        data = DataDirectory(scratch)
        data.create()
        old = Owner(pid=bystander.pid, start_ticks=1, boot="an earlier one")
        data.pid_file.write_bytes(msgspec.json.encode(old))
        assert await main.down(scratch) is False
        assert bystander.returncode is None
        assert not data.pid_file.exists()
    finally:
        bystander.kill()
        await bystander.wait()


async def test_down_of_a_directory_that_does_not_exist_makes_none(scratch: Path) -> None:
    assert await main.down(scratch / "nothing") is False
    assert not (scratch / "nothing").exists()


SUPERVISE = """
import asyncio, pathlib, sys
from penstock.up import main, supervisor
sys.path.insert(0, sys.argv[2])
from test_supervisor import stand_ins
supervisor.our_processes = stand_ins
asyncio.run(main.run(
    supervisor.Settings(data=pathlib.Path(sys.argv[1]), listen="127.0.0.1:0"),
    lambda system: print(*(one.pid for one in system.processes.values()), flush=True),
))
"""


async def supervise(data: Path) -> tuple[asyncio.subprocess.Process, list[int]]:
    """Another process that supervises stand-ins on this directory, and the pids of its children."""
    supervisor = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SUPERVISE,
        str(data),
        str(Path(__file__).parent),
        stdout=asyncio.subprocess.PIPE,
    )
    assert supervisor.stdout is not None
    line = await asyncio.wait_for(supervisor.stdout.readline(), 30)
    return supervisor, [int(word) for word in line.split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stops_everything_cleanly(scratch: Path, number: signal.Signals) -> None:
    supervisor, children = await supervise(scratch)
    supervisor.send_signal(number)
    assert await asyncio.wait_for(supervisor.wait(), 30) == 0
    assert len(children) == 4
    assert not alive(children)
    assert "is shut down" in (scratch / "logs" / "postgres.log").read_text()


async def test_down_stops_a_system_and_waits_until_it_is_gone(scratch: Path) -> None:
    supervisor, children = await supervise(scratch)
    assert await main.down(scratch) is True
    assert not alive(children)
    assert await asyncio.wait_for(supervisor.wait(), 5) == 0


async def test_nothing_outlives_a_supervisor_that_is_killed_and_the_next_one_recovers(
    scratch: Path,
) -> None:
    supervisor, children = await supervise(scratch)
    supervisor.kill()
    await supervisor.wait()
    processes = [psutil.Process(pid) for pid in alive(children)]
    assert await leftovers.gone(processes, 15)
    async with a_system(scratch) as system:
        await system.ready()


def test_restarts_become_more_patient_and_forget_after_a_healthy_while() -> None:
    delays = [0.0]
    for _ in range(8):
        delays.append(next_delay(delays[-1], lived_seconds=1))
    assert delays[1:] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert next_delay(5.0, lived_seconds=10) == 0.1


@pytest.mark.parametrize("listen", ["8470", "host", "127.0.0.1:", ":1", "127.0.0.1:99999", "a:b"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(Invalid, match="HOST:PORT"):
        choose_address(listen)


def test_an_address_in_use_says_what_to_do() -> None:
    host, port = choose_address("127.0.0.1:0")
    with socket.socket() as other:
        other.bind((host, port))
        other.listen()
        with pytest.raises(Unavailable, match="--listen"):
            choose_address(f"{host}:{port}")
