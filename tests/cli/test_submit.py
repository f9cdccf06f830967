"""`penstock submit`: what is sent, what is printed, how it ends."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Penstock
from tests.client.scripted import Script, problem, says, streams

from penstock.cli import submit


def accepted(first: int, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"task_group_id": 4, "ranges": [[first, count]], "count": count, **more}


def ended(**more: Any) -> dict[str, Any]:
    return {"id": 7, "task_group_id": 4, "state": "succeeded", "stdout": "hello\n", **more}


def test_a_command_is_sent_word_by_word(penstock: Penstock, script: Script) -> None:
    script.add(says(accepted(7), 201))
    result = penstock("submit", "--group", "night", "--", "grep", "-r", "a b", "--wait")
    assert script.received[0].json == {
        "task_group": "night",
        "task": {"command": ["grep", "-r", "a b", "--wait"]},
    }
    assert (result.exit_code, result.stdout) == (0, "Submitted task 7 to task group 4.\n")


def test_every_option_reaches_the_spec(penstock: Penstock, script: Script, tmp_path: Path) -> None:
    script.add(says(accepted(7), 201))
    penstock(
        *("submit", "--handler", "pack.module:function", "--args", '{"a": [1]}'),
        *("--env", "A=b=c", "--env", "E=", "--cwd", ".", "--timeout", "1h30m"),
        *("--priority", "high", "--retries", "2", "--label", "x", "--label", "y", "--key", "k"),
    )
    assert script.received[0].json["task"] == {
        "handler": "pack.module:function",
        "arguments": {"a": [1]},
        "environment": {"A": "b=c", "E": ""},
        "working_directory": str(tmp_path),
        "timeout_seconds": 5400.0,
        "priority": "high",
        "retry": {"max_attempts": 3},
        "labels": ["x", "y"],
    }
    assert script.received[0].headers["Idempotency-Key"] == "k"


def test_an_array_is_sent_as_one_template(penstock: Penstock, script: Script) -> None:
    script.add(says(accepted(10, 50), 201))
    result = penstock("submit", "-o", "quiet", "--array", "1-100:2", "--", "echo", "{index}")
    assert script.received[0].json["array"] == {
        "template": {"command": ["echo", "{index}"]},
        "count": 50,
        "first_index": 1,
        "step": 2,
    }
    assert result.stdout == "10-59\n"


def test_lines_are_sent_in_pieces_that_continue_each_other(
    penstock: Penstock, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "LINES_IN_A_REQUEST", 2)
    script.add(says(accepted(1, 2), 201), says(accepted(3, 1), 201))
    result = penstock(
        *("submit", "--each-line", "-", "--key", "k", "-o", "json", "--", "gzip", "{line}"),
        stdin="ä b\r\n\nc\nd",
    )
    first, second = (request.json["array"] for request in script.received)
    assert first["parameters"] == [{"line": "ä b"}, {"line": "c"}]
    assert (second["parameters"], second["first_index"]) == ([{"line": "d"}], 2)
    assert [r.headers["Idempotency-Key"] for r in script.received] == ["k-0", "k-2"]
    assert msgspec.json.decode(result.stdout)["ranges"] == [[1, 3]]


def test_an_empty_file_is_an_error(penstock: Penstock, script: Script) -> None:
    result = penstock("submit", "--each-line", "-", "--", "true", stdin="\n\n")
    assert (result.exit_code, script.received) == (2, [])
    assert "empty" in result.stderr


def test_a_file_that_is_not_text_is_an_error(penstock: Penstock, script: Script) -> None:
    result = penstock("submit", "--each-line", "-", "--", "true", stdin=b"a\n\xff\n")
    assert (result.exit_code, script.received) == (2, [])
    assert "Line 2 is not UTF-8" in result.stderr


def test_a_single_task_that_is_waited_for_passes_its_output_through(
    penstock: Penstock, script: Script
) -> None:
    script.add(says(accepted(7, results=[ended(stderr="oh\n")]), 201))
    result = penstock("submit", "--wait", "--", "echo", "hello")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\n", "oh\n")


def test_a_failed_task_that_is_waited_for_is_exit_code_one(
    penstock: Penstock, script: Script
) -> None:
    failed = ended(state="failed", cause="exit_code", exit_code=5)
    script.add(says(accepted(7, results=[failed]), 201))
    result = penstock("submit", "--wait", "--", "false")
    assert result.exit_code == 1
    assert "Task 7 failed: exit code 5." in result.stderr


def test_a_reason_that_is_a_sentence_gets_no_second_full_stop(
    penstock: Penstock, script: Script
) -> None:
    failed = ended(state="failed", cause="timeout", message="Ran longer than its timeout of 1 s.")
    script.add(says(accepted(7, results=[failed]), 201))
    result = penstock("submit", "--wait", "--", "sleep", "9")
    assert "Task 7 failed: Ran longer than its timeout of 1 s.\n" in result.stderr


def progress(**counts: int) -> dict[str, Any]:
    counts["succeeded"] = counts["total"] - counts.get("failed", 0) - counts.get("running", 0)
    return {"task_group_id": 4, "state": "open", "counts": counts}


def event(name: str, document: Any) -> Any:
    return streams(f"event: {name}\ndata: ".encode() + msgspec.json.encode(document) + b"\n\n")


def items(*found: Any) -> Any:
    return says({"items": found, "next": None})


@pytest.mark.parametrize(("failed", "code"), [([], 0), ([ended(id=11, state="failed")], 1)])
def test_a_failure_among_many_is_exit_code_one(
    penstock: Penstock, script: Script, failed: list[Any], code: int
) -> None:
    # Task 5 had failed before, tasks 1 and 2 of others go on.
    failures = [ended(id=5, state="failed"), *failed]
    script.add(
        says(progress(total=3, failed=1, running=2)),
        says(accepted(10, 20), 201),
        event("progress", progress(total=23, failed=1, running=22)),
        # The stream goes on: what others do is not waited for.
        event("progress", progress(total=23, failed=len(failures), running=2)),
        items(ended(id=1, state="running"), ended(id=12, state="running")),
        says(ended(id=12)),
        items(),
        items(),
        items(),
        items(*failures),
        items(),
    )
    result = penstock("submit", "--array", "20", "--progress", "-o", "json", "--", "true")
    assert result.exit_code == code
    assert script.received[4].target == "/tasks?task_group=4&state=running&cursor=9&limit=500"
    tally = msgspec.json.decode(result.stdout)
    assert (tally["succeeded"], tally["failed"]) == (20 - len(failed), len(failed))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Nothing to run"),
        (["--handler", "a:b", "--", "true"], "one of --handler and a command"),
        (["--args", "[]", "--", "true"], "--args belongs to --handler"),
        (["--handler", "a:b", "--args", "{"], "not JSON"),
        (["--handler", "a:b", "--args", "1"], "list or object"),
        (["--handler", "no function"], "package.module:function"),
        (["--array", "9-1", "--", "true"], "empty"),
        (["--array", "9", "--each-line", "-", "--", "true"], "one of --array"),
        (["--timeout", "soon", "--", "true"], "not a duration"),
        (["--timeout", "0s", "--", "true"], "timeout_seconds"),
        (["--priority", "urgent", "--", "true"], "priority"),
        (["--env", "A", "--", "true"], "NAME=VALUE"),
    ],
)
def test_wrong_usage_is_exit_code_two_and_sends_nothing(
    penstock: Penstock, script: Script, words: list[str], said: str
) -> None:
    result = penstock("submit", *words)
    assert (result.exit_code, script.received, result.stdout) == (2, [], "")
    assert said in result.stderr


def test_an_unknown_task_group_is_exit_code_three_with_advice(
    penstock: Penstock, script: Script
) -> None:
    script.add(problem(404, "not_found", "There is no task group 'night'."))
    result = penstock("submit", "--group", "night", "--", "true")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "There is no task group 'night'." in result.stderr
    assert "penstock group create night" in result.stderr
