"""The streams a deployment needs, and the connection to them."""

import asyncio

import pytest
from tests.log.proxy import Proxy

from penstock.errors import Invalid, Unauthenticated, Unavailable
from penstock.events import Subjects
from penstock.events.append import Unanswered
from penstock.events.connection import Connection, connect
from penstock.events.jetstream_api import Refused, StreamAnswer, ask, stream_info
from penstock.events.streams import ensure_streams, stream_configurations
from penstock.up.nats import NatsServer

pytestmark = pytest.mark.anyio


async def test_streams_are_made_once_however_many_ask(
    connection: Connection, subjects: Subjects
) -> None:
    await asyncio.gather(*(ensure_streams(connection, subjects) for _ in range(4)))
    log = (await stream_info(connection, subjects.log_stream)).config
    assert (log["storage"], log["discard"], log["compression"]) == ("file", "new", "s2")
    assert log["deny_delete"]
    assert log["max_age"] == 0
    assert (await stream_info(connection, subjects.lease_stream)).config["storage"] == "memory"


async def test_deployments_with_other_prefixes_do_not_meet(
    connection: Connection, subjects: Subjects
) -> None:
    other = Subjects(prefix=f"{subjects.prefix}-2")
    await ensure_streams(connection, other)
    assert (await stream_info(connection, other.log_stream)).state.last_seq == 0


async def test_the_log_cannot_be_deleted_from_or_rolled_up(
    connection: Connection, subjects: Subjects
) -> None:
    for headers in ({"Nats-Rollup": "all"}, {"Nats-TTL": "1s"}):
        answer = await connection.call(subjects.log_commit, b"x", headers=headers)
        assert b'"error"' in answer.data
    await connection.call(subjects.log_commit, b"x")
    with pytest.raises(Refused):
        await ask(connection, f"STREAM.MSG.DELETE.{subjects.log_stream}", {"seq": 1}, StreamAnswer)


@pytest.mark.parametrize(
    "wrong",
    [{"discard": "old"}, {"max_age": 10**12}, {"storage": "memory"}, {"deny_delete": False}],
    ids=str,
)
async def test_a_log_that_breaks_a_promise_is_refused(
    nats_url: str, subjects: Subjects, wrong: dict[str, object]
) -> None:
    connection = await connect(nats_url, "test")
    config = stream_configurations(subjects)["LOG"] | wrong
    await ask(connection, f"STREAM.CREATE.{subjects.log_stream}", config, StreamAnswer)
    with pytest.raises(Invalid, match=next(iter(wrong))):
        await ensure_streams(connection, subjects)
    await connection.close()


async def test_an_operator_may_keep_events_for_another_time(
    connection: Connection, subjects: Subjects
) -> None:
    await ensure_streams(connection, subjects, events_max_age_seconds=60)


async def test_a_lease_that_was_made_on_disk_may_stay_there(
    nats_url: str, subjects: Subjects
) -> None:
    connection = await connect(nats_url, "test")
    config = stream_configurations(subjects)["LEASE"] | {"storage": "file"}
    await ask(connection, f"STREAM.CREATE.{subjects.lease_stream}", config, StreamAnswer)
    await ensure_streams(connection, subjects)
    await connection.close()


async def test_nobody_at_the_address_is_said_after_a_while(nats_url: str) -> None:
    async with Proxy(nats_url) as proxy:
        address = proxy.url
    with pytest.raises(Unavailable, match="PENSTOCK_NATS_URL"):
        await connect(address, "test", within_seconds=0.6)


async def test_wrong_credentials_are_said_at_once(own_nats: NatsServer) -> None:
    address = own_nats.url.replace("://penstock:", "://penstock:not-")
    with pytest.raises(Unauthenticated):
        async with asyncio.timeout(10):
            await connect(address, "test")


async def test_a_request_ends_when_the_line_is_cut(nats_url: str) -> None:
    async with Proxy(nats_url) as proxy:
        connection = await connect(proxy.url, "test")
        proxy.hold_answers()
        asking = asyncio.create_task(connection.call("$JS.API.INFO", timeout_seconds=60))
        await proxy.answered.wait()
        await proxy.cut()
        async with asyncio.timeout(5):
            with pytest.raises(Unanswered):
                await asking
            proxy.release()
            await connection.ready()
        assert b"api" in (await connection.call("$JS.API.INFO")).data
        await connection.close()
        with pytest.raises(Unavailable):
            await connection.ready()
        assert connection.closed_for_good.is_set()


async def test_a_request_without_an_answer_ends_in_time(nats_url: str) -> None:
    connection = await connect(nats_url, "test")
    with pytest.raises(Unanswered):
        await connection.call("nobody.is.here", timeout_seconds=60)
    await connection.subscribe("silent", cb=_say_nothing)
    with pytest.raises(Unanswered):
        await connection.call("silent", timeout_seconds=0.05)
    await connection.close()


async def _say_nothing(_: object) -> None:
    return
