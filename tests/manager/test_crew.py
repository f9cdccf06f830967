"""The worker processes of a manager: whom it takes for its own, and what keeps it going."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.worker.harness import wait_for_end

from penstock.events.worker_journal import JournalWriter
from penstock.events.worker_protocol import Place
from penstock.manager import pool as pool_module
from penstock.manager.core import Core
from penstock.manager.crew import Crew
from penstock.manager.pool import Pool
from penstock.manager.processes import kill_session, kill_tasks_left_in, start_ticks
from penstock.manager.spool import Spool
from penstock.manager.state_file import RecordedWorker, State, StateFile

pytestmark = pytest.mark.anyio

WITHIN_SECONDS = 20.0


@pytest.fixture
def innocent() -> "AsyncIterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


@asynccontextmanager
async def _crew(directory: Path) -> AsyncIterator[Crew]:
    crew = Crew(
        Core(1),
        Spool(directory / "reports"),
        Place(str(directory)),
        directory,
        dict(os.environ),
        on_news=lambda: None,
        on_change=lambda: None,
        on_capacity=lambda: None,
    )
    try:
        yield crew
    finally:
        await crew.stop()
        crew.close()


@pytest.mark.parametrize("rebooted", [True, False])
async def test_a_process_that_got_the_number_of_a_worker_is_left_alone(
    scratch: Path, innocent: "subprocess.Popen[bytes]", rebooted: bool
) -> None:
    ticks = start_ticks(innocent.pid) or 0
    # After a reboot even the start time may be the same; without one, the number was used again.
    record = RecordedWorker(1, innocent.pid, ticks if rebooted else ticks - 1)
    async with _crew(scratch) as crew:
        await crew.assemble([record], rebooted=rebooted)
        assert record not in crew.records
        assert len(crew.records) == 1
    assert innocent.poll() is None


async def test_what_a_worker_left_behind_before_a_reboot_is_lost(scratch: Path) -> None:
    journal = JournalWriter(Place(str(scratch)).journal(1, 5))
    journal.mark(7, 1, 1, 1)
    async with _crew(scratch) as crew:
        await crew.assemble([RecordedWorker(1, 5, 5)], rebooted=True)
        assert not (scratch / "1.5.journal").exists()
        (results,) = (scratch / "reports").glob("*.results")
        assert results.stat().st_size == 0


async def test_a_worker_that_is_not_wanted_any_more_is_ended(
    scratch: Path, innocent: "subprocess.Popen[bytes]"
) -> None:
    record = RecordedWorker(2, innocent.pid, start_ticks(innocent.pid) or 0)
    async with _crew(scratch) as crew:
        await crew.assemble([record], rebooted=False)
    assert innocent.wait(WITHIN_SECONDS) == -signal.SIGKILL


def test_only_what_says_that_it_is_a_task_is_ended_in_a_session_that_may_be_anothers(
    innocent: "subprocess.Popen[bytes]",
) -> None:
    kill_tasks_left_in(innocent.pid)
    assert innocent.poll() is None
    script = "PENSTOCK_TASK_ID=1 sh -c 'echo $$; exec sleep 600' &"
    with subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        task = int(shell.stdout.readline())
        shell.wait()
        kill_tasks_left_in(shell.pid)
        wait_for_end(task)


def test_a_command_that_became_another_user_does_not_stop_the_manager(
    monkeypatch: pytest.MonkeyPatch, innocent: "subprocess.Popen[bytes]"
) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as other_user:
        other_user.setattr(os, "kill", refuse)
        kill_session(innocent.pid)
    assert innocent.poll() is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "LONGEST_DELAY_SECONDS", 0.05)


@asynccontextmanager
async def _pool(directory: Path, on_change: Callable[[], None]) -> AsyncIterator[Pool]:
    place = Place(str(directory))
    pool = Pool(place, directory, dict(os.environ), lambda record, how: None, on_change)
    try:
        yield pool
    finally:
        await pool.stopped(0.0)


async def _until(condition: Callable[[], object], changed: asyncio.Event) -> None:
    async with asyncio.timeout(WITHIN_SECONDS):
        while not condition():
            changed.clear()
            await changed.wait()


@pytest.mark.usefixtures("quick")
async def test_a_dead_worker_is_replaced_whatever_else_fails(scratch: Path) -> None:
    changed = asyncio.Event()
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: complaints.append(context["exception"]))
    fail = False

    def on_change() -> None:
        changed.set()
        if fail:
            raise OSError(28, "No space left on device")

    async with _pool(scratch, on_change) as pool:
        pool.spawn(1)
        (first,) = pool.records
        fail = True
        os.kill(first.pid, signal.SIGKILL)
        await _until(lambda: pool.records and pool.records != [first], changed)
        fail = False
    assert all(isinstance(complaint, OSError) for complaint in complaints)


@pytest.mark.usefixtures("quick")
async def test_a_worker_whose_log_cannot_be_opened_is_started_later(scratch: Path) -> None:
    changed = asyncio.Event()
    async with _pool(scratch / "logs", changed.set) as pool:
        pool.spawn(1)
        assert pool.records == []
        (scratch / "logs").mkdir()
        await _until(lambda: pool.records, changed)


def test_a_full_disk_does_not_stop_the_manager_and_spoils_no_state(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    state = State(epoch=3, boot_id="b", workers=[RecordedWorker(1, 2, 3)])
    file.write(state)
    (tmp_path / "state.new").mkdir()
    file.write(State(epoch=4))
    assert file.read() == state
