"""The other commands, against a scripted coordinator."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.cli.conftest import Penstock
from tests.client.scripted import Script, problem, says, streams

from penstock import exit_codes
from penstock.cli import main
from penstock.cli.session import Session

STATUS = {"version": "1", "leader": "a", "epoch": 1, "sequence": 9, "read_model_sequence": 9}
GROUP = {"id": 4, "name": "night", "state": "open", "counts": {"total": 3, "failed": 1}}
TASK = {"id": 7, "task_group_id": 4, "state": "running", "manager_id": "m"}
MANAGER = {"id": "m", "state": "idle", "worker_count": 2, "device": {"hostname": "here"}}


def items(*found: Any) -> Any:
    return says({"items": found, "next": None})


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "json", "task", "show", "7"],
        ["task", "-o", "json", "show", "7"],
        ["task", "show", "7", "--output", "json"],
        ["--output", "quiet", "task", "show", "7", "--output", "json"],
    ],
)
def test_the_output_format_may_stand_anywhere(
    penstock: Penstock, script: Script, words: list[str]
) -> None:
    script.add(says(STATUS), says(TASK))
    assert msgspec.json.decode(penstock(*words).stdout)["id"] == 7


@pytest.mark.parametrize(
    ("words", "answers", "ids"),
    [
        (["group", "list"], [says(STATUS), items(GROUP)], "4\n"),
        (["group", "show", "night"], [says(STATUS), says(GROUP)], "4\n"),
        (["group", "create", "night"], [says(GROUP, 201)], "4\n"),
        (["group", "close", "night"], [says(GROUP)], "4\n"),
        (["group", "reopen", "night"], [says(GROUP)], "4\n"),
        (["group", "cancel", "night"], [says({"ready_cancelled": 2})], "night\n"),
        (["task", "list"], [says(STATUS), items(TASK)], "7\n"),
        (["task", "list", "7-8"], [says(STATUS), says(TASK), says({**TASK, "id": 8})], "7\n8\n"),
        (["task", "show", "7"], [says(STATUS), says(TASK)], "7\n"),
        (["task", "cancel", "7"], [says(TASK)], "7\n"),
        (["manager", "list"], [says(STATUS), items(MANAGER)], "m\n"),
        (["manager", "show", "m"], [says(STATUS), says(MANAGER)], "m\n"),
        (["status"], [says(STATUS)], "9\n"),
    ],
)
def test_each_command_speaks_to_people_to_programs_and_to_pipes(
    penstock: Penstock, script: Script, words: list[str], answers: list[Any], ids: str
) -> None:
    script.add(*answers, *answers, *answers)
    human, json, quiet = (penstock(*words, "-o", form) for form in ("human", "json", "quiet"))
    assert [human.exit_code, json.exit_code, quiet.exit_code] == [0, 0, 0]
    assert quiet.stdout == ids
    assert json.stdout.count("\n") == 1
    msgspec.json.decode(json.stdout)
    assert human.stdout not in ("", json.stdout, quiet.stdout)
    assert script.answers == []


def test_a_table_in_a_pipe_is_plain_and_whole(penstock: Penstock, script: Script) -> None:
    name = "a-name-that-is-wider-than-many-a-terminal-" * 4
    script.add(says(STATUS), items({**GROUP, "name": name}))
    result = penstock("group", "list")
    head, row = result.stdout.splitlines()
    assert head.split()[:3] == ["ID", "NAME", "STATE"]
    assert row.split()[:3] == ["4", name, "open"]


def test_a_list_of_task_groups_tells_how_tasks_ended(penstock: Penstock, script: Script) -> None:
    counts = {"total": 9, "succeeded": 1, "failed": 2, "cancelled": 3}
    script.add(says(STATUS), items({**GROUP, "counts": counts}))
    head, row = penstock("group", "list").stdout.splitlines()
    shown = dict(zip(head.split(), row.split(), strict=True))
    assert [shown[name] for name in ("TOTAL", "SUCCEEDED", "FAILED", "CANCELLED")] == list("9123")


def test_cancelling_a_task_group_does_not_call_assigned_tasks_running(
    penstock: Penstock, script: Script
) -> None:
    script.add(says({"ready_cancelled": 5, "running_cancelled": 4096}))
    said = penstock("group", "cancel", "night").stdout
    assert "asked 4,096 that managers hold to end" in said


def test_tasks_that_are_missing_from_a_selection_are_noted(
    penstock: Penstock, script: Script
) -> None:
    missing = problem(404, "not_found", "There is no such task.")
    script.add(says(STATUS), says(TASK), missing, missing)
    result = penstock("task", "list", "7-9", "-o", "quiet")
    assert (result.exit_code, result.stdout) == (0, "7\n")
    assert result.stderr == "There is no task 8-9.\n"
    script.add(says(STATUS), missing, missing)
    result = penstock("task", "list", "8-9")
    assert (result.exit_code, result.stdout) == (3, "")


def test_a_setting_that_is_misspelt_is_refused(
    penstock: Penstock, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_URLL", "x")
    result = penstock("status")
    assert (result.exit_code, script.received) == (2, [])
    assert "PENSTOCK_URLL" in result.stderr
    assert penstock("status", "--help").exit_code == 0


def test_a_task_may_run_our_commands(
    penstock: Penstock, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TASK_ID", "TASK_GROUP_ID", "ATTEMPT", "INDEX", "TEST_NATS_URL"):
        monkeypatch.setenv(f"PENSTOCK_{name}", "1")
    script.add(says(STATUS))
    assert penstock("status").exit_code == 0


def test_a_reader_sees_what_was_accepted_before_it_asked(
    penstock: Penstock, script: Script
) -> None:
    script.add(says(STATUS), says(GROUP))
    penstock("group", "show", "night")
    assert script.received[1].target == "/task-groups/night?at_least=9"


def test_the_last_task_can_be_named(penstock: Penstock, script: Script) -> None:
    counted = says({**STATUS, "tasks": {"succeeded": 4, "running": 2, "ready": 1}})
    script.add(says(STATUS), says(STATUS), counted, says(TASK))
    assert penstock("task", "show", "last", "-o", "quiet").stdout == "7\n"
    assert script.received[-1].target == "/tasks/7?at_least=9"


def test_output_goes_where_the_task_wrote_it(penstock: Penstock, script: Script) -> None:
    written = says({"stdout": "out\n", "stderr": "err\n", "truncated": False})
    script.add(says(STATUS), written, says(STATUS), written)
    both = penstock("task", "output", "7")
    only = penstock("task", "output", "7", "--stderr")
    assert (both.stdout, both.stderr) == ("out\n", "err\n")
    assert (only.stdout, only.stderr) == ("err\n", "")


def test_a_failed_task_says_why(penstock: Penstock, script: Script) -> None:
    failed = {**TASK, "state": "failed", "cause": "signal", "signal": 9}
    script.add(says(STATUS), items(failed))
    assert "signal 9" in penstock("task", "list", "--state", "failed").stdout


def test_the_log_is_one_line_an_event(penstock: Penstock, script: Script) -> None:
    event = {"type": "task_group_closed", "at": 0, "actor": "user:ann", "task_group_id": 4}
    spans = {"type": "tasks_assigned", "at": 0, "actor": "x", "tasks": [[n, 1] for n in range(99)]}
    commit = {"id": "c", "counter": 9, "previous": "", "at": 0, "events": [event, spans]}
    line = msgspec.json.encode({"sequence": 9, "hash": "h", "commit": commit})
    script.add(says(STATUS), streams(line + b"\n"))
    result = penstock("log", "tail", "-n", "1", "--no-follow")
    first, second = result.stdout.splitlines()
    assert "user:ann" in first
    assert "task_group_closed task_group_id=4" in first
    assert "[99: " in second
    assert script.received[1].target == "/log?from=9&to=9"


def test_a_commit_that_is_not_there_is_not_found(penstock: Penstock, script: Script) -> None:
    script.add(streams())
    assert penstock("log", "show", "99").exit_code == 3


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "invalid", 2),
        (422, "unsupported", 2),
        (404, "not_found", 3),
        (409, "rejected", 4),
        (409, "conflict", 4),
        (503, "log_full", 5),
        (401, "unauthenticated", 6),
        (403, "forbidden", 6),
        (500, "corrupt", 7),
        (500, "internal", 8),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_no_traceback(
    penstock: Penstock, script: Script, status: int, code: str, expected: int
) -> None:
    script.add(problem(status, code, "This is why."))
    result = penstock("group", "close", "night")
    assert (result.exit_code, result.stdout) == (expected, "")
    assert result.stderr.startswith("penstock: This is why.\n")
    assert len(result.stderr.splitlines()) <= 2


def test_without_a_coordinator_the_user_is_told_how_to_start_one(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_DATA"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(main, ["status"])
    assert result.exit_code == 5
    assert "penstock up" in result.stderr


def test_a_misspelt_log_level_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "inof")
    result = CliRunner().invoke(main, ["up"])
    assert result.exit_code == 2
    assert "debug, info, warning, error, not 'inof'" in result.stderr


@pytest.mark.parametrize("how", [["--detach"], []])
def test_a_system_that_does_not_start_says_why_in_the_background_too(
    tmp_path: Any, how: list[str]
) -> None:
    words = ["up", *how, "--listen", "nowhere", "--data", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert result.stderr == (
        "penstock: 'nowhere' is not an address to listen on. Write HOST:PORT.\n"
    )


def test_an_interruption_is_exit_code_130(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "ask", interrupt)
    result = penstock("status")
    assert (result.exit_code, result.stdout) == (130, "")


def test_help_names_every_exit_code_and_every_command() -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    assert all(meaning in text for meaning in exit_codes.MEANINGS.values())
    assert all(f"\n  {name} " in text for name in main.commands)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert "_PENSTOCK_COMPLETE" in result.stdout


def test_help_loads_nothing_heavy() -> None:
    check = (
        "import sys, penstock.cli\n"
        "heavy = {'aiohttp', 'rich', 'structlog', 'sqlalchemy', 'nats', 'uvloop'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
