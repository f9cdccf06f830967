"""Command tasks, run by a real worker."""

import itertools
import os
import signal
import stat
import sys
from pathlib import Path

import msgspec
import pytest
from tests.worker.harness import WorkerUnderTest, alive, wait_for_end

from penstock.events.spec import TaskSpec
from penstock.worker.commands import Command, Commands
from penstock.worker.outputs import OutputFiles
from penstock.worker.queue import Task


def test_a_command_that_succeeds_tells_its_times_and_output(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["sh", "-c", "echo out; echo err >&2"])
    assert result.outcome == "succeeded"
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert result.exit_code == 0
    assert not result.output_truncated
    assert 0 < result.started_at < result.ended_at
    assert result.cpu_seconds > 0


def test_a_command_that_fails_tells_its_exit_code(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["sh", "-c", "exit 7"])
    assert (result.outcome, result.cause, result.exit_code) == ("failed", "exit_code", 7)
    assert result.message == "Exited with code 7."


def test_a_command_that_kills_itself_tells_the_signal(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["sh", "-c", "kill -SEGV $$"])
    assert (result.outcome, result.cause) == ("failed", "signal")
    assert result.signal == signal.SIGSEGV
    assert "SIGSEGV" in result.message


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-program-anywhere"], "is not in the PATH"),
        (["/no/such/program"], "does not exist"),
        (["{directory}/plain.txt"], "may not be executed"),
        (["{directory}/nonsense"], "Exec format error"),
        (["{directory}"], "may not be executed"),
    ],
)
def test_a_command_that_cannot_be_started_says_why(
    one_worker: WorkerUnderTest, command: list[str], message: str
) -> None:
    (one_worker.directory / "plain.txt").write_text("no program")
    nonsense = one_worker.directory / "nonsense"
    nonsense.write_text("nonsense")
    nonsense.chmod(nonsense.stat().st_mode | stat.S_IXUSR)
    command = [part.replace("{directory}", str(one_worker.directory)) for part in command]
    result = one_worker.run(command=command)
    assert (result.outcome, result.cause) == ("failed", "not_startable")
    assert message in result.message


def test_a_command_runs_in_its_working_directory_and_the_worker_stays_in_its_own(
    one_worker: WorkerUnderTest, tmp_path: Path
) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "script").chmod(0o755)
    there = one_worker.run(command=["./script"], working_directory=str(tmp_path))
    assert there.stdout.strip() == str(tmp_path)
    home = one_worker.run(2, command=["pwd"])
    assert home.stdout.strip() == os.path.realpath(one_worker.directory)


def test_a_missing_working_directory_is_named(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["true"], working_directory="/no/such/place")
    assert (result.outcome, result.cause) == ("failed", "not_startable")
    assert "'/no/such/place' does not exist" in result.message


def test_a_command_sees_its_task_and_no_secrets(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(42, command=["env"], environment={"COLOUR": "blue"})
    lines = set(result.stdout.splitlines())
    assert {
        "COLOUR=blue",
        "PENSTOCK_TASK_ID=42",
        "PENSTOCK_ATTEMPT=1",
        "PENSTOCK_TASK_GROUP_ID=7",
    } <= lines
    assert not any(line.startswith(("PENSTOCK_TOKEN", "PENSTOCK_INDEX")) for line in lines)


def test_the_path_of_the_task_finds_its_program(
    one_worker: WorkerUnderTest, tmp_path: Path
) -> None:
    program = tmp_path / "my-own-program"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    result = one_worker.run(command=["my-own-program"], environment={"PATH": path})
    assert result.stdout == "found\n"


def test_signals_are_not_ignored_in_a_command(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["sh", "-c", "kill -PIPE $$; echo survived"])
    assert result.signal == signal.SIGPIPE


def test_long_output_keeps_its_beginning_and_its_end(one_worker: WorkerUnderTest) -> None:
    script = "print('first'); print('x' * 3_000_000); print('last')"
    result = one_worker.run(command=[sys.executable, "-c", script])
    assert result.output_truncated
    assert result.stdout.startswith("first\nxxx")
    assert result.stdout.endswith("xxx\nlast\n")
    assert len(result.stdout) < 70_000


def test_output_that_is_no_text_is_shown_as_far_as_it_goes(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["printf", r"caf\303\251 \377"])
    assert result.stdout == "café \ufffd"


def test_what_a_command_writes_to_its_own_dev_stdout_does_not_overwrite(
    one_worker: WorkerUnderTest,
) -> None:
    result = one_worker.run(command=["sh", "-c", "echo one; echo two >> /dev/stdout; echo three"])
    assert result.stdout == "one\ntwo\nthree\n"


def test_processes_that_a_command_leaves_behind_end_with_it(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["sh", "-c", "sleep 600 & echo $!"])
    wait_for_end(int(result.stdout))


def test_a_command_that_runs_out_of_time_ends_with_its_children(
    one_worker: WorkerUnderTest,
) -> None:
    result = one_worker.run(command=["sh", "-c", "sleep 600 & echo $!; wait"], timeout_seconds=0.3)
    assert (result.outcome, result.cause) == ("failed", "timeout")
    assert "0.3 s" in result.message
    wait_for_end(int(result.stdout))
    assert one_worker.run(2, command=["true"]).outcome == "succeeded"


def test_a_cancelled_command_may_clean_up(one_worker: WorkerUnderTest) -> None:
    script = "trap 'echo cleaned; exit 0' TERM; sleep 600 & wait"
    one_worker.begin(1, command=["sh", "-c", script])
    one_worker.cancel(1)
    one_worker.until(lambda: 1 in one_worker.results)
    result = one_worker.results[1]
    assert (result.outcome, result.cause) == ("cancelled", "cancelled")
    assert result.stdout == "cleaned\n"


def test_a_cancelled_command_that_does_not_listen_is_killed(one_worker: WorkerUnderTest) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    start = one_worker.begin(1, command=[sys.executable, "-c", script])
    assert alive(start.pid)
    one_worker.cancel(1, grace_seconds=0.2)
    one_worker.until(lambda: 1 in one_worker.results)
    assert one_worker.results[1].outcome == "cancelled"
    assert one_worker.results[1].signal == signal.SIGKILL
    wait_for_end(start.pid)


def test_endless_output_does_not_fill_the_memory(one_worker: WorkerUnderTest) -> None:
    start = one_worker.begin(1, command=["sh", "-c", "yes | head -c 300000000; sleep 600"])
    output = Path(f"/proc/{start.pid}/fd/1")
    one_worker.until_true(
        lambda: output.stat().st_size == 300_000_000 and output.stat().st_blocks * 512 < 2_000_000
    )
    one_worker.cancel(1)
    one_worker.until(lambda: 1 in one_worker.results)
    assert one_worker.results[1].stdout.startswith("y\ny\n")
    assert one_worker.results[1].output_truncated


def test_output_that_json_would_swell_stays_small(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(command=["head", "-c", "60000", "/dev/zero"])
    assert len(msgspec.json.encode(result)) < 256 * 1024


def test_a_daemon_that_outlives_its_command_cannot_write_into_the_output_of_another(
    one_worker: WorkerUnderTest, tmp_path: Path
) -> None:
    ready, go_on, written = tmp_path / "ready", tmp_path / "go_on", tmp_path / "written"
    daemon = f"touch {ready}; {_until(go_on)}; echo intruder; touch {written}"
    script = f'setsid sh -c "{daemon}" & {_until(ready)}; echo first'
    first = one_worker.run(1, command=["sh", "-c", script])
    assert first.stdout == "first\n"
    go_on.touch()
    second = one_worker.run(2, command=["sh", "-c", f"{_until(written)}; echo second"])
    assert second.stdout == "second\n"


def test_output_of_one_command_does_not_appear_in_the_next(one_worker: WorkerUnderTest) -> None:
    for task, text in enumerate(["much longer than the next", "short", ""], start=1):
        result = one_worker.run(task, command=["printf", text])
        assert (result.stdout, result.stderr) == (text, "")


def test_a_worker_leaves_no_zombies(one_worker: WorkerUnderTest) -> None:
    one_worker.run(1, 20, command=["sh", "-c", "setsid true & setsid sh -c 'true & true' & true"])
    tasks = itertools.count(100)
    # Each command is followed by a look at what the ones before it left.
    one_worker.until_true(
        lambda: (
            one_worker.run(next(tasks), command=["true"]) and _children(one_worker.process.pid) == 0
        )
    )


def _children(pid: int) -> int:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(len((task / "children").read_text().split()) for task in tasks)


def _until(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.02; done"


class _NoOrphans:
    adopting = True

    def are_gone(self) -> bool:
        return True


def test_a_command_that_became_another_user_does_not_end_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(group: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", refuse)
    commands = Commands(os.environ, _NoOrphans())  # type: ignore[arg-type]
    command = Command(commands, TaskSpec(command=["true"]), 1, array=False)
    ending = command.execute(Task(command, 1, 1, None, None))
    assert ending is not None
    assert ending["exit_code"] == 0
    commands.running = os.getpid(), OutputFiles()
    assert commands.signal(signal.SIGTERM)
