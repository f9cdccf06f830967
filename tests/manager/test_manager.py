"""A real manager with real workers, and a coordinator that does as it is told."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from tests.manager.scripted import (
    MANAGER,
    TOKEN,
    ManagerProcess,
    ScriptedCoordinator,
    batch,
    coordinator,
    manager,
)
from tests.worker.harness import wait_for_end

from penstock.events.manager_protocol import (
    CancelTasks,
    Drain,
    ReleaseGroup,
    Resync,
    Shutdown,
    Sync,
    SyncReply,
    TaskBatch,
    Tasks,
)
from penstock.events.tasks import Attempt
from penstock.up.nats import NatsServer

pytestmark = pytest.mark.anyio

NOOP = {"handler": "penstock.samples:noop"}
SLEEP = {"command": ["sleep", "600"]}


@pytest.fixture
async def scripted(nats_url: str, prefix: str) -> AsyncIterator[ScriptedCoordinator]:
    async with coordinator(nats_url, prefix) as started:
        yield started


@pytest.fixture
async def running(
    scripted: ScriptedCoordinator, nats_url: str, scratch: Path
) -> AsyncIterator[ManagerProcess]:
    async with manager(scripted, nats_url, scratch) as started:
        yield started


async def test_a_manager_registers_synchronises_and_runs_tasks(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    assert scripted.registrations[0]["manager_id"] == MANAGER
    assert scripted.registrations[0]["worker_count"] == 2
    assert scripted.registrations[0]["groups"] == ["default"]
    assert scripted.syncs[0].held == []
    assert scripted.syncs[0].capacity == 6
    await scripted.run(1, handler="penstock.samples:add", arguments=[2, 3])
    (result,) = await scripted.ended(1)
    assert (result.outcome, result.result) == ("succeeded", 5)
    await scripted.run(2, command=["echo", "hello"])
    (result,) = await scripted.ended(2)
    assert result.stdout == "hello\n"
    await scripted.until(lambda: scripted.heartbeats)
    assert scripted.heartbeats[-1].epoch == 1


async def test_thousands_of_short_tasks_take_few_reports_and_each_counts_once(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, 5000, handler="penstock.samples:noop", arguments=["{index}"])
    results = await scripted.ended(*range(1, 5001))
    assert [result.result for result in results] == list(range(5000))
    assert scripted.repeated == []
    assert len(scripted.reports) < 200


async def test_a_long_task_is_reported_started_and_holds_nothing_up(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, 100, **NOOP)
    await scripted.ended(*range(1, 101))
    await scripted.push(Tasks(batches=[batch(1000, **SLEEP), batch(1001, 500, **NOOP)]))
    await scripted.ended(*range(1001, 1501))
    await scripted.until(lambda: scripted.started(1000))
    await scripted.push(CancelTasks(tasks=[Attempt(1000, 1)]))
    (result,) = await scripted.ended(1000)
    assert result.outcome == "cancelled"


async def test_a_cancelled_command_ends_with_its_grandchildren(
    scripted: ScriptedCoordinator, running: ManagerProcess, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    script = f"(sleep 600 & echo $! > {pid_file}; wait) & wait"
    await scripted.run(1, command=["sh", "-c", script])
    await scripted.until(lambda: scripted.started(1))
    await scripted.push(CancelTasks(tasks=[Attempt(1, 1)], reason="enough"))
    (result,) = await scripted.ended(1)
    assert (result.outcome, result.signal) == ("cancelled", signal.SIGTERM)
    assert result.message == "Cancelled: enough"
    await asyncio.to_thread(wait_for_end, int(pid_file.read_text()))


async def test_a_killed_worker_fails_its_task_alone_and_is_replaced(
    scripted: ScriptedCoordinator, running: ManagerProcess, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; sleep 600"
    await scripted.run(1, command=["sh", "-c", script])
    await scripted.until(lambda: scripted.started(1))
    start = next(start for report in scripted.reports for start in report.started)
    worker = running.workers()[start.worker]
    await scripted.run(2, 50, **NOOP)
    os.kill(worker, signal.SIGKILL)
    (result,) = await scripted.ended(1)
    assert (result.outcome, result.cause, result.signal) == ("failed", "worker_death", 9)
    assert (result.started_at, result.worker) == (start.started_at, start.worker)
    await scripted.ended(*range(2, 52))
    # What the dead worker's task had started must not go on while the task runs elsewhere.
    await asyncio.to_thread(wait_for_end, int(pid_file.read_text()))
    await scripted.run(100, 4, command=["true"])
    await scripted.ended(100, 101, 102, 103)
    await scripted.until(lambda: len(running.workers()) == 2)
    assert worker not in running.workers().values()


async def test_a_handler_that_ends_its_process_is_a_worker_death(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, handler="os:_exit", arguments=[5])
    (result,) = await scripted.ended(1)
    assert (result.cause, result.exit_code) == ("worker_death", 5)


async def test_workers_killed_at_random_lose_nothing_and_finish_nothing_twice(
    scripted: ScriptedCoordinator, running: ManagerProcess, tmp_path: Path
) -> None:
    count = 3000
    log = tmp_path / "ran"
    await scripted.offer(1, count, command=["sh", "-c", f"echo $PENSTOCK_TASK_ID >> {log}"])
    deaths = 0
    for done in (300, 700, 1200, 2000):
        await scripted.until(lambda done=done: len(scripted.finished) >= done)
        os.kill(next(iter(running.workers().values())), signal.SIGKILL)
        deaths += 1
    results = await scripted.all_ended(1, count)
    failed = [result for result in results if result.outcome != "succeeded"]
    assert {result.cause for result in failed} <= {"worker_death"}
    assert len(failed) <= deaths
    assert scripted.repeated == []
    ran = [int(line) for line in log.read_text().split()]
    assert len(ran) == len(set(ran))
    assert len(ran) >= count - deaths


async def test_a_manager_killed_at_random_runs_nothing_twice(
    scripted: ScriptedCoordinator, running: ManagerProcess, tmp_path: Path
) -> None:
    count = 3000
    log = tmp_path / "ran"
    await scripted.offer(1, count, command=["sh", "-c", f"echo $PENSTOCK_TASK_ID >> {log}"])
    for done in (200, 600, 1100, 1700):
        await scripted.until(lambda done=done: len(scripted.finished) >= done)
        await running.kill()
        await running.start()
    results = await scripted.all_ended(1, count)
    assert {result.outcome for result in results} == {"succeeded"}
    ran = [int(line) for line in log.read_text().split()]
    assert sorted(ran) == list(range(1, count + 1))


async def test_a_restarted_manager_adopts_its_workers_and_what_they_run(
    scripted: ScriptedCoordinator, running: ManagerProcess, tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"
    script = f"echo began >> {tmp_path}/began; until [ -e {go_on} ]; do sleep 0.05; done"
    await scripted.run(1, command=["sh", "-c", script])
    await scripted.until(lambda: scripted.started(1))
    workers = running.workers()
    await running.kill()
    await running.start()
    assert running.workers() == workers
    assert [(held.task_id, held.begun) for held in scripted.syncs[-1].held] == [(1, True)]
    assert scripted.syncs[-1].incarnation != scripted.syncs[0].incarnation
    go_on.touch()
    (result,) = await scripted.ended(1)
    assert result.outcome == "succeeded"
    assert (tmp_path / "began").read_text() == "began\n"


async def test_a_task_that_ends_while_the_manager_is_away_is_reported_by_the_next(
    scripted: ScriptedCoordinator, running: ManagerProcess, tmp_path: Path
) -> None:
    go_on, done = tmp_path / "go_on", tmp_path / "done"
    script = f"until [ -e {go_on} ]; do sleep 0.02; done; touch {done}; echo out"
    await scripted.run(1, command=["sh", "-c", script])
    await scripted.until(lambda: scripted.started(1))
    await running.kill()
    go_on.touch()
    await asyncio.to_thread(_wait_for_file, done)
    await running.start()
    (result,) = await scripted.ended(1)
    assert result.stdout == "out\n"


async def test_a_worker_that_dies_while_the_manager_is_away_is_accounted_for(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, **SLEEP)
    await scripted.until(lambda: scripted.started(1))
    start = next(start for report in scripted.reports for start in report.started)
    worker = running.workers()[start.worker]
    await running.kill()
    os.kill(worker, signal.SIGKILL)
    await asyncio.to_thread(wait_for_end, worker)
    await running.start()
    assert [held.task_id for held in scripted.syncs[-1].held] == [1]
    (result,) = await scripted.ended(1)
    assert result.cause == "worker_death"
    assert "how is not known" in result.message
    await asyncio.to_thread(wait_for_end, start.pid)


async def test_a_worker_that_does_not_answer_the_next_manager_is_killed(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, **SLEEP)
    await scripted.until(lambda: scripted.started(1))
    start = next(start for report in scripted.reports for start in report.started)
    worker = running.workers()[start.worker]
    await running.kill()
    os.kill(worker, signal.SIGSTOP)
    await running.start()
    (result,) = await scripted.ended(1)
    assert result.cause == "worker_death"
    await asyncio.to_thread(wait_for_end, worker)
    await scripted.run(2, **NOOP)
    await scripted.ended(2)


async def test_reports_that_were_not_answered_are_repeated_after_a_restart(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    scripted.answers_reports = False
    await scripted.run(1, 300, handler="penstock.samples:noop", arguments=["{index}"])
    await scripted.until(lambda: any(report.finished for report in scripted.reports))
    await running.kill()
    scripted.answers_reports = True
    missing: list[int] = []

    def lacking(sync: Sync) -> list[TaskBatch]:
        held = {held.task_id for held in sync.held}
        missing.extend(task for task in range(1, 301) if task not in held)
        return [batch(task, handler="penstock.samples:noop") for task in missing]

    scripted.lacking = lacking
    await running.start()
    results = await scripted.ended(*range(1, 301))
    reported_before = {r.task_id for r in scripted.reports[0].finished}
    assert reported_before.isdisjoint(missing)
    for result in results:
        if result.task_id not in missing:
            assert result.result == result.task_id - 1


async def test_a_report_is_repeated_until_it_is_answered(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    scripted.report_error = "unavailable"
    await scripted.run(1, **NOOP)
    await scripted.until(lambda: len(scripted.reports) >= 3)
    assert scripted.reports[0].finished == scripted.reports[2].finished
    scripted.report_error = ""
    await scripted.ended(1)
    assert len(scripted.syncs) == 1


async def test_a_manager_that_is_not_known_synchronises_and_repeats(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    scripted.report_error = "not_synchronised"
    await scripted.run(1, **NOOP)
    await scripted.until(lambda: len(scripted.syncs) >= 2)
    assert [(held.task_id, held.begun) for held in scripted.syncs[1].held] == [(1, True)]
    scripted.report_error = ""
    await scripted.ended(1)


async def test_a_gap_among_the_pushes_leads_to_a_synchronisation(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, **NOOP)
    await scripted.ended(1)
    scripted.lacking = lambda sync: [batch(2, **NOOP)]
    await scripted.push(Tasks(batches=[batch(3, **NOOP)]), number=3)
    await scripted.ended(2)
    assert len(scripted.syncs) == 2
    await scripted.run(4, **NOOP)
    await scripted.ended(4)


async def test_what_was_pushed_before_a_synchronisation_does_not_count_after_it(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    answer = scripted.on_sync
    scripted.on_sync = lambda sync: SyncReply(error="unavailable")
    await scripted.push(Resync())
    await scripted.until(lambda: len(scripted.syncs) >= 2)
    await scripted.push(Tasks(batches=[batch(1, **NOOP)]), number=1)
    syncs = len(scripted.syncs)
    await scripted.until(lambda: len(scripted.syncs) >= syncs + 2)
    scripted.on_sync = answer
    syncs, beats = len(scripted.syncs), len(scripted.heartbeats)
    await scripted.until(lambda: len(scripted.syncs) > syncs and len(scripted.heartbeats) > beats)
    await scripted.run(2, **NOOP)
    await scripted.ended(2)
    assert (1, 1) not in scripted.finished


@pytest.mark.parametrize("epoch", [4, 6])
async def test_an_answer_of_another_epoch_settles_no_report(
    scripted: ScriptedCoordinator, running: ManagerProcess, epoch: int
) -> None:
    scripted.epoch = 5
    await scripted.push(Resync())
    await scripted.until(lambda: len(scripted.syncs) == 2)
    scripted.answers_as_epoch = epoch
    await scripted.run(1, **NOOP)
    await scripted.until(lambda: len(scripted.reports) >= 3)
    assert scripted.reports[0].finished == scripted.reports[2].finished
    assert (len(scripted.syncs) > 2) == (epoch > 5)
    scripted.answers_as_epoch = None
    beats = len(scripted.heartbeats) + 1
    await scripted.until(lambda: any(beat.held == 0 for beat in scripted.heartbeats[beats:]))


async def test_tasks_that_prove_long_are_given_back_for_others_to_run(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, 3000, **NOOP)
    await scripted.ended(*range(1, 3001))
    await scripted.until(lambda: scripted.capacity > 1000)
    await scripted.run(10_000, 1000, **SLEEP)
    await scripted.until(lambda: any(report.returned for report in scripted.reports))
    returned = {task.task_id for report in scripted.reports for task in report.returned}
    kept = set(range(10_000, 11_000)) - returned
    assert len(kept) == scripted.capacity < 50
    assert len([task for task in kept if scripted.started(task)]) == 2
    await scripted.push(CancelTasks(tasks=[Attempt(task, 1) for task in kept]))
    await scripted.ended(*kept)


async def test_a_worker_that_the_manager_does_not_know_is_turned_away(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    known = running.workers()
    command = psutil.Process(known[1]).cmdline()
    stranger = await asyncio.create_subprocess_exec(*command, start_new_session=True)
    assert await asyncio.wait_for(stranger.wait(), 20) == -signal.SIGKILL
    await scripted.run(1, 4, command=["true"])
    await scripted.ended(1, 2, 3, 4)
    assert running.workers() == known


async def test_a_manager_tells_its_groups_tags_and_labels(
    scripted: ScriptedCoordinator, nats_url: str, scratch: Path
) -> None:
    process = ManagerProcess(scripted, nats_url, scratch, workers=1)
    process.environment |= {
        "PENSTOCK_GROUPS": "physics,default",
        "PENSTOCK_TAGS": " gpu, big-memory,",
        "PENSTOCK_LABELS": "rack-7",
    }
    await process.start()
    await process.stop()
    (told,) = scripted.registrations
    assert told["groups"] == ["physics", "default"]
    assert told["tags"] == ["gpu", "big-memory"]
    assert told["labels"] == ["rack-7"]


async def test_a_coordinator_may_ask_for_a_synchronisation(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.push(Resync())
    await scripted.until(lambda: len(scripted.syncs) == 2)


async def test_a_deposed_leader_is_refused_also_after_a_restart(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    scripted.epoch = 9
    await scripted.push(Resync())
    await scripted.until(lambda: len(scripted.syncs) == 2)
    scripted.epoch = 8
    await scripted.run(1, **NOOP)
    scripted.epoch, scripted.pushes = 9, 0
    await scripted.run(2, **NOOP)
    await scripted.ended(2)
    assert (1, 1) not in scripted.finished
    await running.kill()
    await running.start()
    assert scripted.syncs[-1].epoch == 9


async def test_a_stopped_manager_returns_and_ends_everything(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, 2, **SLEEP)
    await scripted.until(lambda: scripted.started(1) and scripted.started(2))
    pids = [start.pid for report in scripted.reports for start in report.started]
    await scripted.run(3, 2, **NOOP)
    workers = running.workers()
    await scripted.until(lambda: any(beat.held == 4 for beat in scripted.heartbeats))
    assert await running.stop() == 0
    results = await scripted.ended(1, 2)
    assert {(result.outcome, result.cause) for result in results} == {("failed", "executor_lost")}
    returned = [task for report in scripted.reports for task in report.returned]
    assert returned == [Attempt(3, 1), Attempt(4, 1)]
    for pid in (*pids, *workers.values()):
        await asyncio.to_thread(wait_for_end, pid)


async def test_a_drained_manager_finishes_what_runs_and_takes_nothing_new(
    scripted: ScriptedCoordinator, running: ManagerProcess, tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"
    script = f"until [ -e {go_on} ]; do sleep 0.02; done"
    await scripted.run(1, 3, command=["sh", "-c", script])
    await scripted.until(lambda: scripted.started(1) and scripted.started(2))
    await scripted.push(Drain())
    await scripted.until(lambda: any(report.returned for report in scripted.reports))
    go_on.touch()
    await scripted.ended(1, 2)
    assert scripted.reports[-1].capacity == 0
    await scripted.push(Shutdown())
    assert running.process is not None
    assert await running.process.wait() == 0


async def test_a_released_group_gets_its_waiting_tasks_back(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    await scripted.run(1, 4, **SLEEP)
    await scripted.until(lambda: scripted.started(1) and scripted.started(2))
    await scripted.push(ReleaseGroup(task_group_id=1))
    await scripted.until(lambda: any(report.returned for report in scripted.reports))
    returned = [task for report in scripted.reports for task in report.returned]
    assert returned == [Attempt(3, 1), Attempt(4, 1)]
    await scripted.push(CancelTasks(tasks=[Attempt(1, 1), Attempt(2, 1)]))
    await scripted.ended(1, 2)


async def test_a_second_manager_on_the_same_directory_is_refused(
    scripted: ScriptedCoordinator, running: ManagerProcess
) -> None:
    second = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "penstock.manager",
        env=running.environment,
        stderr=subprocess.PIPE,
    )
    _, errors = await second.communicate()
    assert second.returncode != 0
    assert "Another manager works with" in errors.decode()
    assert TOKEN not in errors.decode()


def _wait_for_file(path: Path) -> None:
    subprocess.run(
        ["sh", "-c", f"until [ -e {path} ]; do sleep 0.02; done"], check=True, timeout=20
    )


async def test_results_wait_for_nats_to_come_back(
    own_nats: NatsServer, prefix: str, scratch: Path
) -> None:
    async with coordinator(own_nats.url, prefix) as scripted:
        async with manager(scripted, own_nats.url, scratch) as running:
            go_on = scratch / "go_on"
            script = f"until [ -e {go_on} ]; do sleep 0.02; done; echo out"
            await scripted.run(1, 2, command=["sh", "-c", script])
            await scripted.until(lambda: scripted.started(1) and scripted.started(2))
            workers = running.workers()
            await own_nats.stop()
            go_on.touch()
            await own_nats.start()
            results = await scripted.ended(1, 2)
            assert [result.stdout for result in results] == ["out\n", "out\n"]
            assert len(scripted.syncs) >= 2
            assert running.workers() == workers
            await scripted.run(3, **NOOP)
            await scripted.ended(3)
