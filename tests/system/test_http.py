"""The HTTP interface of a whole, running system: good requests and bad ones."""

import asyncio
import io
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.system.conftest import Running

Answer = tuple[int, Any, dict[str, str]]


@pytest.fixture
def ask(running: Running) -> Callable[..., Answer]:
    """Send a request and return status, document and headers."""

    async def send(method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        data = body if isinstance(body, bytes | str | io.BytesIO | None) else json.dumps(body)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, running.system.url + path, data=data, headers=headers
            ) as response,
        ):
            text = await response.text()
            one = response.content_type in ("application/json", "application/problem+json")
            document = json.loads(text) if one else text
            return response.status, document, {k.lower(): v for k, v in response.headers.items()}

    def ask(method: str, path: str, body: Any = None, **headers: str) -> Answer:
        given = {"Authorization": f"Bearer {running.system.token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        return running.runner.run(send(method, path, body, given))

    return ask


def noop(index: int = 0) -> dict[str, Any]:
    return {"handler": "penstock.samples:noop", "arguments": [index]}


def test_submitting_and_waiting_is_one_exchange(ask: Callable[..., Answer]) -> None:
    status, document, headers = ask("POST", "/tasks?wait=20", {"task": noop(7)})
    assert status == 201
    assert document["results"][0]["result"] == 7
    assert int(headers["penstock-sequence"]) > 0


def test_a_read_sees_the_write_whose_sequence_it_names(ask: Callable[..., Answer]) -> None:
    for place in range(20):
        _, created, headers = ask("POST", "/task-groups", {"name": f"own-write-{place}"})
        sequence = headers["penstock-sequence"]
        status, shown, _ = ask("GET", f"/task-groups/{created['id']}?at_least={sequence}")
        assert (status, shown["name"]) == (200, f"own-write-{place}")


def test_a_read_of_the_future_says_that_it_is_not_there_yet(
    ask: Callable[..., Answer],
) -> None:
    status, problem, headers = ask("GET", "/status?at_least=999999999")
    assert (status, problem["code"]) == (503, "unavailable")
    assert headers["retry-after"]


def test_a_repeated_submission_under_one_key_is_answered_with_the_first_tasks(
    ask: Callable[..., Answer],
) -> None:
    body = {"tasks": [noop(n) for n in range(5)]}
    _, first, _ = ask("POST", "/tasks", body, Idempotency_Key="a-key")
    status, again, _ = ask("POST", "/tasks", body, Idempotency_Key="a-key")
    assert status == 201
    assert again["ranges"] == first["ranges"]
    assert again["duplicate"]
    status, problem, _ = ask("POST", "/tasks", {"tasks": [noop()]}, Idempotency_Key="a-key")
    assert (status, problem["code"]) == (409, "conflict")


def test_a_repeated_submission_that_waits_gets_the_result_of_the_first(
    ask: Callable[..., Answer],
) -> None:
    body = {"task": noop(11)}
    _, first, _ = ask("POST", "/tasks?wait=20", body, Idempotency_Key="waiting-key")
    _, again, _ = ask("POST", "/tasks?wait=20", body, Idempotency_Key="waiting-key")
    assert again["results"][0]["id"] == first["results"][0]["id"]
    assert again["results"][0]["result"] == 11


def test_tasks_as_lines(ask: Callable[..., Answer]) -> None:
    lines = "\n".join(json.dumps(noop(n)) for n in range(3000))
    status, document, _ = ask("POST", "/tasks", lines, Content_Type="application/x-ndjson")
    assert (status, document["count"]) == (201, 3000)


def test_a_faulty_line_is_named_and_the_error_says_what_was_accepted(
    ask: Callable[..., Answer],
) -> None:
    lines = [json.dumps(noop(n)) for n in range(10)]
    lines[6] = '{"handler": 5}'
    status, problem, _ = ask(
        "POST", "/tasks", "\n".join(lines), Content_Type="application/x-ndjson"
    )
    assert (status, problem["line"], problem["accepted"]) == (400, 7, 0)


def test_the_log_can_be_read(ask: Callable[..., Answer]) -> None:
    status, text, _ = ask("GET", "/log?from=1&to=3")
    lines = [json.loads(line) for line in text.splitlines()]
    assert status == 200
    assert [line["sequence"] for line in lines] == [1, 2, 3]
    assert lines[0]["commit"]["events"][0]["type"] == "leader_elected"


def test_a_cancelled_task_is_killed_and_says_who_and_why(ask: Callable[..., Answer]) -> None:
    _, submitted, _ = ask("POST", "/tasks", {"task": {"command": ["sleep", "60"]}})
    task = submitted["ranges"][0][0]
    status, _shown, _ = ask("POST", f"/tasks/{task}/cancel", {"reason": "a test"})
    assert status == 200
    _, ended, _ = ask("GET", f"/tasks/{task}?wait=20")
    assert (ended["state"], ended["cause"]) == ("cancelled", "cancelled")
    status, problem, _ = ask("POST", f"/tasks/{task}/cancel")
    assert (status, problem["code"]) == (409, "rejected")


def test_a_task_that_takes_too_long_is_ended(ask: Callable[..., Answer]) -> None:
    spec = {"command": ["sleep", "60"], "timeout_seconds": 0.2}
    _, document, _ = ask("POST", "/tasks?wait=20", {"task": spec})
    [task] = document["results"]
    assert (task["state"], task["cause"]) == ("failed", "timeout")


def test_a_failing_task_is_retried_and_every_attempt_is_kept(ask: Callable[..., Answer]) -> None:
    retry = {"max_attempts": 3, "backoff_seconds": 0}
    spec = {"command": ["sh", "-c", "echo no >&2; exit 3"], "retry": retry}
    _, document, _headers = ask("POST", "/tasks?wait=20", {"task": spec})
    task = document["ranges"][0][0]
    _, shown, _ = ask("GET", f"/tasks/{task}?wait=20")
    assert (shown["state"], shown["attempt"], shown["exit_code"]) == ("failed", 3, 3)
    assert [attempt["cause"] for attempt in shown["attempts"]] == ["exit_code", "exit_code"]
    assert shown["spec"]["retry"]["max_attempts"] == 3


def test_the_output_of_a_command_is_kept(ask: Callable[..., Answer]) -> None:
    spec = {"command": ["sh", "-c", "echo out; echo err >&2"]}
    _, document, headers = ask("POST", "/tasks?wait=20", {"task": spec})
    task = document["ranges"][0][0]
    sequence = headers["penstock-sequence"]
    _, output, _ = ask("GET", f"/tasks/{task}/output?at_least={sequence}")
    assert (output["stdout"], output["stderr"]) == ("out\n", "err\n")


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"command": ["/no/such/program"]}, "not_startable"),
        ({"command": ["true"], "working_directory": "/no/such/place"}, "not_startable"),
        ({"handler": "no.such.module:function"}, "not_startable"),
        ({"handler": "penstock.samples:no_such_function"}, "not_startable"),
        ({"handler": "os:getcwd", "arguments": [1, 2, 3]}, "exception"),
        ({"handler": "math:sqrt", "arguments": [-1]}, "exception"),
        ({"command": ["sh", "-c", "kill -SEGV $$"]}, "signal"),
    ],
)
def test_a_task_that_cannot_work_fails_with_a_message(
    ask: Callable[..., Answer], spec: dict[str, Any], cause: str
) -> None:
    _, document, _ = ask("POST", "/tasks?wait=20", {"task": spec})
    [task] = document["results"]
    assert (task["state"], task["cause"]) == ("failed", cause)
    assert task["message"]


BAD = [
    ("POST", "/tasks", "{", 400, "invalid"),
    ("POST", "/tasks", b"\xff\xfe", 400, "invalid"),
    ("POST", "/tasks", "[]", 400, "invalid"),
    ("POST", "/tasks", "", 400, "invalid"),
    ("POST", "/tasks", {}, 400, "invalid"),
    ("POST", "/tasks", {"tasks": []}, 400, "invalid"),
    ("POST", "/tasks", {"task": noop(), "tasks": [noop()]}, 400, "invalid"),
    ("POST", "/tasks", {"task": {}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"command": []}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"command": "true"}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"comand": ["true"]}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"command": ["true"], "handler": "a:b"}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"handler": "nonsense"}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"command": ["a\0b"]}}, 400, "invalid"),
    (
        "POST",
        "/tasks",
        {"task": {"command": ["true"], "environment": {"A=B": "c"}}},
        400,
        "invalid",
    ),
    ("POST", "/tasks", {"task": {"command": ["true"], "timeout_seconds": -1}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"command": ["true"], "priority": "urgent"}}, 400, "invalid"),
    ("POST", "/tasks", {"task": {"command": ["true"], "dependencies": [1]}}, 422, "unsupported"),
    ("POST", "/tasks", {"task": {"command": ["true"], "fingerprint": "x"}}, 422, "unsupported"),
    ("POST", "/tasks", {"task": {"command": ["true"], "tags": ["gpu"]}}, 422, "unsupported"),
    ("POST", "/tasks", {"task": {"command": ["true"], "artifacts": ["x"]}}, 422, "unsupported"),
    ("POST", "/tasks", {"task": {"command": ["true"], "estimate_seconds": 5}}, 422, "unsupported"),
    ("POST", "/tasks", {"task": {"command": ["x" * 200_000]}}, 413, "too_large"),
    ("POST", "/tasks", {"task_group": "nowhere", "task": noop()}, 404, "not_found"),
    ("POST", "/tasks", {"task_group": 987654, "task": noop()}, 404, "not_found"),
    ("POST", "/tasks", {"array": {"template": noop(), "count": 0}}, 400, "invalid"),
    ("POST", "/tasks", {"array": {"template": noop(), "count": 10**12}}, 400, "invalid"),
    ("POST", "/tasks", {"array": {"template": noop()}}, 400, "invalid"),
    ("POST", "/tasks", {"array": {"template": noop(), "parameters": []}}, 400, "invalid"),
    (
        "POST",
        "/tasks",
        {"array": {"template": noop(), "parameters": [{"a": 1}, {"b": 2}]}},
        400,
        "invalid",
    ),
    ("POST", "/tasks?wait=forever", {"task": noop()}, 400, "invalid"),
    ("POST", "/tasks?wait=1", {"tasks": [noop()]}, 400, "invalid"),
    ("GET", "/tasks/abc", None, 400, "invalid"),
    ("GET", "/tasks/99999999999999999999999", None, 400, "invalid"),
    ("GET", "/tasks/123456789", None, 404, "not_found"),
    ("GET", "/tasks/0", None, 404, "not_found"),
    ("POST", "/tasks/123456789/cancel", {}, 404, "not_found"),
    ("GET", "/tasks?state=sleeping", None, 400, "invalid"),
    ("GET", "/tasks?limit=0", None, 400, "invalid"),
    ("GET", "/tasks?limit=many", None, 400, "invalid"),
    ("GET", "/tasks?cursor=nonsense", None, 400, "invalid"),
    ("GET", "/status?at_least=x", None, 400, "invalid"),
    ("GET", "/task-groups/nowhere", None, 404, "not_found"),
    ("GET", "/task-groups/987654/progress", None, 404, "not_found"),
    ("POST", "/task-groups/nowhere/close", {}, 404, "not_found"),
    ("POST", "/task-groups", {"name": ""}, 400, "invalid"),
    ("POST", "/task-groups", {"name": "12"}, 400, "invalid"),
    ("POST", "/task-groups", {"name": "a/b"}, 400, "invalid"),
    ("POST", "/task-groups", {"name": "x", "group": "unknown"}, 404, "not_found"),
    ("POST", "/task-groups", {"name": "default"}, 409, "conflict"),
    ("POST", "/task-groups", {"name": "x", "env_preparation": {"args": ["a"]}}, 422, "unsupported"),
    ("GET", "/managers/nobody", None, 404, "not_found"),
    ("POST", "/managers", {"manager_id": "a.b", "worker_count": 1}, 400, "invalid"),
    ("POST", "/managers", {"manager_id": "*", "worker_count": 1}, 400, "invalid"),
    ("POST", "/managers", {"worker_count": -1}, 400, "invalid"),
    ("GET", "/nowhere", None, 404, "not_found"),
    ("DELETE", "/tasks", None, 405, "method_not_allowed"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), BAD)
def test_bad_requests_get_a_problem_that_says_what_is_wrong(
    ask: Callable[..., Answer], method: str, path: str, body: Any, status: int, code: str
) -> None:
    answered, problem, headers = ask(method, path, body)
    assert (answered, problem["code"]) == (status, code), problem
    assert headers["content-type"] == "application/problem+json"
    assert problem["detail"]


def test_a_huge_body_is_refused(ask: Callable[..., Answer]) -> None:
    status, problem, _ = ask("POST", "/tasks", io.BytesIO(b" " * (17 * 1024 * 1024)))
    assert (status, problem["code"]) == (413, "too_large")


@pytest.mark.parametrize("token", ["", "Bearer wrong", "Basic abc", "Bearer "])
def test_every_request_needs_a_token(ask: Callable[..., Answer], token: str) -> None:
    for method, path in [("GET", "/status"), ("POST", "/tasks"), ("GET", "/log")]:
        status, problem, headers = ask(method, path, Authorization=token)
        assert (status, problem["code"]) == (401, "unauthenticated")
        assert headers["www-authenticate"] == "Bearer"


def test_health_needs_no_token(ask: Callable[..., Answer]) -> None:
    assert ask("GET", "/health", Authorization="")[0] == 200
    assert ask("GET", "/ready", Authorization="")[0] == 200


def test_progress_is_streamed_until_all_is_done(running: Running) -> None:
    async def follow() -> list[str]:
        headers = {"Authorization": f"Bearer {running.system.token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            url = running.system.url
            await session.post(f"{url}/task-groups", json={"name": "streamed"})
            array = {"template": {"command": ["sleep", "0.05"]}, "count": 20}
            accepted = await session.post(
                f"{url}/tasks", json={"task_group": "streamed", "array": array}
            )
            sequence = accepted.headers["Penstock-Sequence"]
            async with session.get(
                f"{url}/task-groups/streamed/progress?at_least={sequence}",
                headers={"Accept": "text/event-stream"},
            ) as response:
                return (await response.text()).splitlines()

    lines = running.runner.run(asyncio.wait_for(follow(), 30))
    assert "event: progress" in lines
    done = json.loads(lines[lines.index("event: done") + 1].removeprefix("data: "))
    assert (done["finished"], done["total"]) == (20, 20)


def test_a_task_group_may_be_named_with_its_group_in_a_path(ask: Callable[..., Answer]) -> None:
    # Its name is that of an endpoint on purpose.
    _, created, _ = ask("POST", "/task-groups", {"name": "progress"})
    status, shown, _ = ask("GET", "/task-groups/default%2Fprogress")
    assert (status, shown.get("id")) == (200, created["id"])
    status, shown, _ = ask("GET", "/task-groups/default%2fprogress/progress")
    assert (status, shown.get("task_group_id")) == (200, created["id"])
    status, shown, _ = ask("POST", "/task-groups/default%2Fprogress/close")
    assert (status, shown["state"]) == (200, "complete")


@pytest.mark.parametrize("name", ["", "bad name", "12", "a/b", "ä", "x" * 129])
def test_a_name_that_is_none_is_refused_in_words(ask: Callable[..., Answer], name: str) -> None:
    status, problem, _ = ask("POST", "/task-groups", {"name": name})
    assert (status, problem["code"]) == (400, "invalid")
    assert "letters (a-z), digits, '_', '.' and '-', and not only digits" in problem["detail"]
