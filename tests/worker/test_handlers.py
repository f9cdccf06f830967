"""Handler tasks, run by a real worker."""

from pathlib import Path

import msgspec
import pytest
from tests.worker.harness import WorkerUnderTest, batch

from penstock.events.worker_protocol import EXIT_LEFT


def test_arguments_go_in_and_the_result_comes_out(one_worker: WorkerUnderTest) -> None:
    by_position = one_worker.run(handler="sample_handlers:echo", arguments=[1, "two", {"a": []}])
    assert by_position.result == {"args": [1, "two", {"a": []}], "kwargs": {}}
    by_name = one_worker.run(2, handler="sample_handlers:echo", arguments={"a": 1})
    assert by_name.result == {"args": [], "kwargs": {"a": 1}}
    without = one_worker.run(3, handler="sample_handlers:nothing")
    assert (without.outcome, without.result) == ("succeeded", None)


def test_a_handler_that_changes_its_arguments_changes_them_for_itself(
    one_worker: WorkerUnderTest,
) -> None:
    one_worker.run(1, 3, handler="sample_handlers:change", arguments=[[]])
    assert [one_worker.results[task].result for task in (1, 2, 3)] == [[0], [0], [0]]


def test_an_exception_fails_the_task_with_its_traceback(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(handler="sample_handlers:fail")
    assert (result.outcome, result.cause) == ("failed", "exception")
    assert result.message == "ValueError: the reason"
    assert "sample_handlers.py" in result.stderr
    assert "penstock" not in result.stderr


def test_sys_exit_is_an_exception_of_the_task(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(handler="sample_handlers:leave")
    assert (result.outcome, result.cause) == ("failed", "exception")
    assert result.message == "SystemExit: 3"


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("sample_handlers:missing", "has no attribute 'missing'"),
        ("sample_handlers:value", "is int, not a function"),
        ("broken_handlers:f", "RuntimeError: broken module"),
    ],
)
def test_a_handler_that_cannot_be_loaded_says_why(
    one_worker: WorkerUnderTest, handler: str, message: str
) -> None:
    result = one_worker.run(handler=handler)
    assert (result.outcome, result.cause) == ("failed", "not_startable")
    assert message in result.message


@pytest.mark.parametrize(
    ("handler", "message"),
    [("not_json", "type object is no JSON value"), ("too_big", "at most 65536 are kept")],
)
def test_a_result_that_cannot_be_kept_fails_the_task(
    one_worker: WorkerUnderTest, handler: str, message: str
) -> None:
    result = one_worker.run(handler=f"sample_handlers:{handler}")
    assert (result.outcome, result.cause) == ("failed", "exception")
    assert message in result.message


@pytest.mark.parametrize("depth", [101, 978, 1000, 10_000])
def test_a_result_that_is_nested_too_deeply_fails_the_task(
    one_worker: WorkerUnderTest, depth: int
) -> None:
    result = one_worker.run(handler="sample_handlers:nested", arguments=[depth])
    assert (result.outcome, result.cause) == ("failed", "exception")
    assert one_worker.run(2, handler="sample_handlers:nested", arguments=[100]).result


def test_arguments_that_are_nested_too_deeply_fail_the_task(one_worker: WorkerUnderTest) -> None:
    spec = b'{"handler": "sample_handlers:nothing", "arguments": [%s]}'
    for task, depth in enumerate((900, 5000), start=1):
        deep = spec % (b"[" * depth + b"]" * depth)
        one_worker.send(msgspec.structs.replace(batch(task, 1, array=True), spec=deep))
        one_worker.until(lambda task=task: task in one_worker.results)
    assert one_worker.results[2].cause == "not_startable"
    assert one_worker.process.poll() is None


def test_what_a_handler_prints_belongs_to_its_task(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(handler="sample_handlers:print_both")
    assert (result.stdout, result.stderr) == ("to stdout\nbytes", "to stderr")
    assert one_worker.run(2, handler="sample_handlers:nothing").stdout == ""
    much = one_worker.run(3, handler="sample_handlers:print_much")
    assert much.output_truncated
    assert len(much.stdout) < 64 * 1024


def test_a_handler_has_its_surroundings_to_itself(
    one_worker: WorkerUnderTest, tmp_path: Path
) -> None:
    inside = one_worker.run(
        handler="sample_handlers:surroundings",
        working_directory=str(tmp_path),
        environment={"COLOUR": "blue"},
    )
    assert inside.result == [str(tmp_path), "blue", False]
    after = one_worker.run(2, handler="sample_handlers:surroundings")
    assert after.result == [str(one_worker.directory.resolve()), None, False]


def test_a_missing_working_directory_is_named(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(handler="sample_handlers:nothing", working_directory="/no/such/place")
    assert (result.outcome, result.cause) == ("failed", "not_startable")
    assert "/no/such/place" in result.message


def test_a_coroutine_function_is_run_to_its_end(one_worker: WorkerUnderTest) -> None:
    assert one_worker.run(handler="sample_handlers:later", arguments=[5]).result == 5


def test_a_handler_that_runs_out_of_time_is_interrupted(one_worker: WorkerUnderTest) -> None:
    result = one_worker.run(handler="sample_handlers:sleep", arguments=[600], timeout_seconds=0.2)
    assert (result.outcome, result.cause) == ("failed", "timeout")
    assert one_worker.run(2, handler="sample_handlers:nothing").outcome == "succeeded"


def test_a_cancelled_handler_is_interrupted(one_worker: WorkerUnderTest) -> None:
    one_worker.begin(1, handler="sample_handlers:sleep", arguments=[600])
    one_worker.cancel(1, reason="not needed")
    one_worker.until(lambda: 1 in one_worker.results)
    assert one_worker.results[1].outcome == "cancelled"
    assert one_worker.results[1].message == "Cancelled: not needed"


def test_a_handler_that_cannot_be_interrupted_takes_the_worker_with_it(
    one_worker: WorkerUnderTest, tmp_path: Path
) -> None:
    one_worker.begin(1, handler="sample_handlers:stubborn", arguments=[str(tmp_path / "on")])
    one_worker.cancel(1, grace_seconds=0.2)
    one_worker.until(lambda: 1 in one_worker.results)
    assert one_worker.results[1].outcome == "cancelled"
    assert one_worker.process.wait(10) == EXIT_LEFT


def test_the_children_of_a_handler_are_its_own_to_wait_for(one_worker: WorkerUnderTest) -> None:
    one_worker.run(1, command=["true"])
    one_worker.run(2, handler="sample_handlers:start_child")
    for task in range(3, 6):
        one_worker.run(task, command=["true"])
    assert one_worker.run(6, handler="sample_handlers:wait_for_child").result == 3
