"""Retries, idempotency keys, errors and the kept-alive connection."""

import asyncio
import socket

import aiohttp
import pytest
from tests.client.scripted import Script, hang_up, problem, says, serving

from penstock import Client, TaskSpec, errors

pytestmark = pytest.mark.anyio

SUBMISSION = {"task_group_id": 1, "ranges": [[7, 1]], "count": 1}
TASK = {"id": 7, "task_group_id": 1, "state": "succeeded", "result": 42}
ECHO = TaskSpec(command=["echo"])


async def test_a_submission_whose_answer_got_lost_is_repeated_with_the_same_key(
    script: Script, client: Client
) -> None:
    script.add(hang_up, hang_up, says(SUBMISSION, 201))
    submission = await client.submit(ECHO)
    keys = {request.headers["Idempotency-Key"] for request in script.received}
    assert (submission.task_ids, len(script.received), len(keys)) == ([7], 3, 1)


async def test_two_submissions_have_different_keys(script: Script, client: Client) -> None:
    script.add(says(SUBMISSION, 201), says(SUBMISSION, 201))
    await client.submit(ECHO)
    await client.submit(ECHO)
    first, second = (request.headers["Idempotency-Key"] for request in script.received)
    assert first != second


async def test_the_key_of_the_caller_is_sent(script: Script, client: Client) -> None:
    script.add(says(SUBMISSION, 201))
    await client.submit([ECHO], key="mine")
    assert script.received[0].headers["Idempotency-Key"] == "mine"
    assert script.received[0].json == {"task_group": "default", "tasks": [{"command": ["echo"]}]}


async def test_a_cancellation_whose_answer_got_lost_is_not_repeated(
    script: Script, client: Client
) -> None:
    script.add(hang_up, says(TASK))
    with pytest.raises(errors.Unavailable, match="See what is there"):
        await client.cancel_task(7)
    assert len(script.received) == 1


async def test_a_busy_coordinator_is_asked_again_after_the_time_that_it_names(
    script: Script, client: Client
) -> None:
    busy = problem(429, "unavailable", "Slow down.", retry_after="0.3")
    script.add(busy, problem(503, "not_leader", "Ask the leader."), says(TASK))
    clock = asyncio.get_running_loop()
    began = clock.time()
    await client.cancel_task(7)
    assert clock.time() - began >= 0.3
    assert len(script.received) == 3


async def test_retries_end_at_the_time_limit_with_what_the_coordinator_said(
    script: Script,
) -> None:
    script.add(*[problem(503, "unavailable", "Not yet.")] * 20)
    async with Client(script.url, "secret", retry_seconds=0.3) as client:
        with pytest.raises(errors.Unavailable, match=r"^Not yet\.$"):
            await client.task(7)
    assert 2 <= len(script.received) < 20


async def test_a_full_log_is_reported_at_once(script: Script, client: Client) -> None:
    script.add(problem(503, "log_full", "Make room."))
    with pytest.raises(errors.LogFull):
        await client.submit(ECHO)
    assert len(script.received) == 1


async def test_a_restart_of_the_coordinator_is_sat_out() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}", "secret") as client:
        async with serving(Script(), port) as first:
            first.add(says(SUBMISSION, 201))
            await client.submit(ECHO)
        submitting = asyncio.create_task(client.submit(ECHO))
        done, _ = await asyncio.wait([submitting], timeout=0.2)
        assert not done
        async with serving(Script(), port) as second:
            second.add(says(SUBMISSION, 201))
            assert (await submitting).count == 1


async def test_an_address_where_nobody_answers_is_reported_soon_with_advice() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}", first_answer_seconds=0.2) as client:
        with pytest.raises(errors.Unavailable, match="penstock up"):
            await client.health()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid", errors.Invalid),
        (422, "unsupported", errors.Unsupported),
        (401, "unauthenticated", errors.Unauthenticated),
        (403, "forbidden", errors.Forbidden),
        (404, "not_found", errors.NotFound),
        (409, "rejected", errors.Rejected),
        (409, "conflict", errors.Conflict),
        (500, "corrupt", errors.Corrupt),
        (500, "something_new", errors.PenstockError),
    ],
)
async def test_a_problem_is_raised_as_the_error_of_its_code(
    script: Script, client: Client, status: int, code: str, kind: type[errors.PenstockError]
) -> None:
    script.add(problem(status, code, "What to do.", field="command"))
    with pytest.raises(errors.PenstockError) as raised:
        await client.submit(ECHO)
    assert type(raised.value) is kind
    assert raised.value.message == "What to do."
    assert raised.value.facts["field"] == "command"


async def test_an_error_that_is_not_from_a_coordinator_names_the_address(
    script: Script, client: Client
) -> None:
    async def page(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(text="<h1>It works!</h1>", status=404)

    script.add(page)
    with pytest.raises(errors.NotFound, match=script.url):
        await client.task(7)


async def test_an_answer_that_is_not_understood_is_an_error(script: Script, client: Client) -> None:
    script.add(says({"id": "seven"}))
    with pytest.raises(errors.PenstockError, match="same version"):
        await client.task(7)


async def test_requests_share_one_connection(script: Script, client: Client) -> None:
    script.add(*[says(TASK)] * 5)
    for _ in range(5):
        await client.task(7)
    assert len({request.peer for request in script.received}) == 1


async def test_every_request_shows_the_token(script: Script, client: Client) -> None:
    script.add(says({"status": "ok"}))
    await client.health()
    assert script.received[0].headers["Authorization"] == "Bearer secret"


async def test_reads_see_what_the_client_wrote_before(script: Script, client: Client) -> None:
    written = says(SUBMISSION, 201, {"Penstock-Sequence": "31"})
    script.add(says(TASK), written, says(TASK))
    await client.task(7)
    submission = await client.submit(ECHO)
    await client.task(7)
    targets = [request.target for request in script.received]
    assert submission.sequence == 31
    assert targets == ["/tasks/7", "/tasks", "/tasks/7?at_least=31"]
