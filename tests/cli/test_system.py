"""The command line against a real system, started and stopped by it."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests import servers

from penstock import Client
from penstock.cli import main
from penstock.client import Task


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(words), input=stdin)


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """A system that `penstock up` started in the background."""
    with servers.scratch_directory() as directory, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
            if not name.startswith("PENSTOCK_TEST_"):
                patch.delenv(name)
        patch.setenv("PENSTOCK_DATA", str(directory / "data"))
        started = run("up", "--detach", "--listen", "127.0.0.1:0", "--workers", "2")
        assert started.exit_code == 0, started.output
        try:
            yield directory / "data"
        finally:
            assert run("down").exit_code == 0
            assert run("status").exit_code == 5


def of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout)


async def ended(data: Path, task_id: int) -> Task:
    async with Client(data=data) as client:
        return await client.wait(task_id, timeout_seconds=30)


pytestmark = pytest.mark.usefixtures("data")


def test_a_second_system_in_the_same_directory_is_refused(data: Path) -> None:
    result = run("up", "--detach", "--listen", "127.0.0.1:0")
    assert result.exit_code == 4
    assert "penstock down" in result.stderr


def test_a_command_is_run_and_its_output_passed_through() -> None:
    script = "echo out; echo err >&2"
    result = run("submit", "--wait", "--", "sh", "-c", script)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "out\n", "err\n")


def test_a_command_that_fails_is_exit_code_one_and_says_why() -> None:
    result = run("submit", "--wait", "--", "sh", "-c", "exit 3")
    assert result.exit_code == 1
    assert "failed: exit code 3" in result.stderr


def test_a_handler_gets_its_arguments_and_gives_its_result() -> None:
    task = of(
        run(
            "submit", "--wait", "-o", "json", "--handler", "penstock.samples:add", "--args", "[1,2]"
        )
    )
    assert (task["state"], task["result"]) == ("succeeded", 3)
    shown = run("submit", "--wait", "--handler", "penstock.samples:add", "--args", "[1,2]")
    assert shown.stdout == "3\n"


def test_an_array_runs_once_for_each_index() -> None:
    of(run("group", "create", "indexes", "-o", "json"))
    tally = of(
        run(
            *("submit", "--group", "indexes", "--array", "5-14:3", "--progress", "-o", "json"),
            *("--", "echo", "{index}"),
        )
    )
    assert (tally["count"], tally["succeeded"]) == (4, 4)
    first, count = tally["ranges"][0]
    result = run("task", "output", f"{first}-{first + count - 1}")
    assert result.stdout == "5\n8\n11\n14\n"


def test_lines_become_tasks_and_a_failure_among_them_is_exit_code_one() -> None:
    of(run("group", "create", "lines", "-o", "json"))
    result = run(
        *("submit", "--group", "lines", "--each-line", "-", "--wait", "-o", "json"),
        *("--", "sh", "-c", "{line}"),
        stdin="true\n\nexit 4\n",
    )
    assert result.exit_code == 1
    tally = msgspec.json.decode(result.stdout)
    assert (tally["count"], tally["failed"]) == (2, 1)
    failed = run("task", "list", "--group", "lines", "--state", "failed")
    assert "exit code 4" in failed.stdout


def test_a_repeat_with_the_same_key_submits_nothing_new() -> None:
    words = ["submit", "--key", "once", "-o", "quiet", "--", "true"]
    assert run(*words).stdout == run(*words).stdout


def test_a_task_that_runs_is_cancelled(data: Path) -> None:
    task_id = run("submit", "-o", "quiet", "--", "sleep", "60").stdout.strip()
    assert run("task", "cancel", task_id, "--reason", "enough").exit_code == 0
    assert asyncio.run(ended(data, int(task_id))).state == "cancelled"
    assert "enough" in run("log", "tail", "-n", "50", "--no-follow").stdout


def test_a_task_that_takes_too_long_is_ended() -> None:
    result = run("submit", "--wait", "-o", "json", "--timeout", "200ms", "--", "sleep", "60")
    assert result.exit_code == 1
    task = msgspec.json.decode(result.stdout)
    assert (task["state"], task["cause"]) == ("failed", "timeout")


def test_the_last_task_is_the_newest() -> None:
    task_id = run("submit", "-o", "quiet", "--", "true").stdout
    assert run("task", "show", "last", "-o", "quiet").stdout == task_id


def test_a_task_group_lives_from_creation_to_completion() -> None:
    created = of(run("group", "create", "night", "--description", "all of it", "-o", "json"))
    assert run("group", "create", "night").exit_code == 4
    assert run("submit", "--group", "night", "--wait", "--", "true").exit_code == 0
    assert of(run("group", "close", "night", "-o", "json"))["state"] in ("closed", "complete")
    assert run("submit", "--group", "night", "--", "true").exit_code == 4
    assert of(run("group", "show", "night", "-o", "json"))["counts"]["succeeded"] == 1
    assert str(created["id"]) in run("group", "list", "-o", "quiet").stdout.split()


def test_a_task_group_is_cancelled_with_its_tasks() -> None:
    of(run("group", "create", "doomed", "-o", "json"))
    run("submit", "--group", "doomed", "--array", "1000", "--", "sleep", "60")
    cancelled = of(run("group", "cancel", "doomed", "-o", "json"))
    assert cancelled["ready_cancelled"] + cancelled["running_cancelled"] == 1000


def test_what_is_not_there_is_exit_code_three() -> None:
    assert run("task", "show", "999999999").exit_code == 3
    assert run("group", "show", "nowhere").exit_code == 3
    assert run("manager", "show", "nobody").exit_code == 3
    assert run("submit", "--group", "nowhere", "--", "true").exit_code == 3
    assert run("log", "show", "999999999").exit_code == 3


def test_a_wrong_token_is_exit_code_six(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("not the token of anybody")
    result = run("status", "--token-file", str(tmp_path / "token"))
    assert result.exit_code == 6


def test_the_manager_is_shown() -> None:
    (manager,) = of(run("manager", "list", "-o", "json"))
    assert manager["worker_count"] == 2
    assert manager["id"] in run("manager", "show", manager["id"]).stdout


def test_the_log_can_be_read_and_folded_and_equals_the_live_state() -> None:
    assert run("submit", "--array", "20", "--wait", "--", "true").exit_code == 0
    first = of(run("log", "show", "1", "-o", "json"))
    assert first["sequence"] == 1
    replayed = run("replay", "--verify")
    assert replayed.exit_code == 0, replayed.output
    early = of(run("replay", "--to", "1", "-o", "json"))
    assert early["task_groups"] == []


def test_the_read_model_equals_the_log_before_and_after_a_rebuild() -> None:
    assert run("projections", "verify").exit_code == 0
    assert run("projections", "rebuild").exit_code == 0
    assert run("projections", "verify").exit_code == 0
    assert of(run("projections", "status", "-o", "json"))["behind"] == 0


def test_a_workload_prints_one_line_about_the_system_it_was_given(data: Path) -> None:
    url = msgspec.json.decode((data / "address.json").read_bytes())["url"]
    result = run("bench", "noop", "--tasks", "200", "--url", url)
    assert result.exit_code == 0, result.output
    measured = msgspec.json.decode(result.stdout)
    assert (measured["workload"], measured["n"], measured["workers"]) == ("noop", 200, 2)
