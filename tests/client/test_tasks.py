"""Submitting, waiting, listing, streaming."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.client.scripted import Script, problem, says
from tests.client.scripted import streams as pieces

from penstock import Client, TaskSpec
from penstock.client import streams
from penstock.errors import Invalid, NotFound

pytestmark = pytest.mark.anyio

RUNNING = {"id": 7, "task_group_id": 1, "state": "running"}
DONE = {"id": 7, "task_group_id": 1, "state": "succeeded", "result": [1, 2]}


def accepted(first: int, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"task_group_id": 1, "ranges": [[first, count]], "count": count, **more}


async def test_a_short_task_is_run_in_one_exchange(script: Script, client: Client) -> None:
    script.add(says(accepted(7, results=[DONE]), 201))
    task = await client.run(TaskSpec(handler="a:b", arguments=[1]))
    assert (task.succeeded, task.result) == (True, [1, 2])
    assert script.received[0].target == "/tasks?wait=30.0"


async def test_a_long_task_is_waited_for(script: Script, client: Client) -> None:
    script.add(says(accepted(7), 201), says(RUNNING), says(DONE))
    task = await client.run(TaskSpec(command=["sleep", "40"]))
    assert task.ended
    assert [request.target for request in script.received[1:]] == ["/tasks/7?wait=30.0"] * 2


async def test_waiting_ends_at_the_time_limit_with_the_present_state(
    script: Script, client: Client
) -> None:
    script.add(says(RUNNING))
    task = await client.wait(7, timeout_seconds=0)
    assert task.state == "running"


async def test_a_list_cannot_be_waited_for(client: Client) -> None:
    with pytest.raises(Invalid):
        await client.submit([TaskSpec(command=["true"])], wait=1)


async def test_an_array_is_one_template(script: Script, client: Client) -> None:
    script.add(says(accepted(1, 1000), 201))
    template = TaskSpec(command=["echo", "{index}"])
    submission = await client.submit_array(template, count=1000, first_index=1)
    assert script.received[0].json["array"] == {
        "template": {"command": ["echo", "{index}"]},
        "count": 1000,
        "first_index": 1,
    }
    assert (1000 in submission, 1001 in submission) == (True, False)


async def test_a_stream_is_sent_in_pieces_with_keys_of_their_own(
    script: Script, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PIECE_LINES", 2)
    script.add(*(says(accepted(first, n), 201) for first, n in [(1, 2), (3, 2), (9, 1)]))

    async def source() -> AsyncIterator[TaskSpec]:
        for number in range(5):
            yield TaskSpec(command=["echo", str(number)])

    submission = await client.submit_stream(source(), task_group="night", key="k")
    assert (submission.ranges, submission.count) == ([(1, 4), (9, 1)], 5)
    assert [r.headers["Idempotency-Key"] for r in script.received] == ["k-0", "k-1", "k-2"]
    assert {r.target for r in script.received} == {"/tasks?task_group=night"}
    assert {r.headers["Content-Type"] for r in script.received} == {"application/x-ndjson"}
    lines = [line for r in script.received for line in r.body.split(b"\n")]
    assert [msgspec.json.decode(line)["command"][1] for line in lines] == list("01234")


async def test_an_empty_stream_is_an_error(script: Script, client: Client) -> None:
    with pytest.raises(Invalid, match="empty"):
        await client.submit_lines([b"", b"\n"])


async def test_a_body_of_many_megabytes_arrives_whole(script: Script, client: Client) -> None:
    script.add(says(accepted(1, 20_000), 201))
    await client.submit([TaskSpec(command=["echo", "x" * 200])] * 20_000)
    assert len(script.received[0].json["tasks"]) == 20_000


async def test_a_listing_follows_the_cursor_to_its_end(script: Script, client: Client) -> None:
    script.add(says({"items": [DONE], "next": "abc"}), says({"items": [RUNNING], "next": None}))
    found = [task.state async for task in client.tasks(task_group=1, state="running")]
    assert found == ["succeeded", "running"]
    assert "cursor=abc" in script.received[1].target


async def test_a_listing_ends_at_its_limit(script: Script, client: Client) -> None:
    script.add(says({"items": [DONE], "next": "abc"}))
    assert len([task async for task in client.tasks(limit=1)]) == 1


async def test_progress_is_followed_until_all_is_done(script: Script, client: Client) -> None:
    half = b'{"task_group_id":1,"state":"open","finished":1,"total":2}'
    whole = b'{"task_group_id":1,"state":"open","finished":2,"total":2}'
    broken = pieces(b"event: progress\ndata: " + half + b"\n\nevent: prog", then_break=True)
    rest = pieces(b": ping\n\nevent: progress\r\nda", b"ta: " + whole + b"\r\n\r\n")
    done = pieces(b"event: done\ndata: " + whole + b"\n\n", b"event: progress\ndata: {}\n\n")
    script.add(broken, rest, done)
    seen = [progress.finished async for progress in client.follow_progress("night")]
    assert seen == [1, 2, 2]
    assert script.received[0].headers["Accept"] == "text/event-stream"


async def test_the_progress_of_an_unknown_group_is_not_found(
    script: Script, client: Client
) -> None:
    script.add(problem(404, "not_found", "There is no task group 'night/1'."))
    with pytest.raises(NotFound):
        await anext(client.follow_progress("night/1"))
    assert script.received[0].target == "/task-groups/night%2F1/progress"


async def test_a_log_that_breaks_off_is_taken_up_where_it_stopped(
    script: Script, client: Client
) -> None:
    def line(sequence: int) -> bytes:
        return b'{"sequence":%d,"hash":"h","commit":{"id": "x"}}\n' % sequence

    script.add(
        pieces(line(3), line(4), line(5)[:9], then_break=True), pieces(line(5), line(6)[:-1])
    )
    seen = [commit async for commit in client.log(3, 6)]
    assert [commit.sequence for commit in seen] == [3, 4, 5, 6]
    assert bytes(seen[0].commit) == b'{"id": "x"}'
    assert [r.target for r in script.received] == ["/log?from=3&to=6", "/log?from=5&to=6"]
