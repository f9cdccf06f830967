"""The lease: one holder, and a quick successor."""

import asyncio
import time

import pytest
from tests.log.proxy import Proxy

from penstock.events import Subjects
from penstock.events.connection import Connection, connect
from penstock.events.lease import Lease
from penstock.events.streams import ensure_streams
from penstock.up.nats import NatsServer

pytestmark = pytest.mark.anyio


def _lease(connection: Connection, subjects: Subjects, node: str, ttl_seconds: int = 3) -> Lease:
    return Lease(connection, subjects, node, f"http://{node}", ttl_seconds=ttl_seconds)


async def _acquired(lease: Lease) -> None:
    while not await lease.acquire():
        await lease.wait_for_change()


async def test_one_candidate_holds_the_lease(connection: Connection, subjects: Subjects) -> None:
    leases = [_lease(connection, subjects, f"n{i}") for i in range(5)]
    outcomes = await asyncio.gather(*(lease.acquire() for lease in leases))
    assert sorted(outcomes) == [False] * 4 + [True]
    [winner] = [lease for lease, won in zip(leases, outcomes, strict=True) if won]
    holder = await leases[0].holder()
    assert holder is not None
    assert (holder.node, holder.url) == (winner.node, f"http://{winner.node}")
    assert 0 < winner.remaining <= 3
    assert all(lease.remaining == 0 for lease in leases if lease is not winner)


async def test_a_lease_that_is_renewed_outlives_its_time_and_then_lapses(
    connection: Connection, subjects: Subjects
) -> None:
    holder = _lease(connection, subjects, "a", ttl_seconds=1)
    standby = _lease(connection, subjects, "b", ttl_seconds=1)
    assert await holder.acquire()
    began = time.monotonic()
    while time.monotonic() < began + 2.2:
        assert await holder.renew()
        assert not await standby.acquire()
        await standby.wait_for_change()
    async with asyncio.timeout(5):
        await _acquired(standby)
    assert holder.remaining == 0
    assert not await holder.renew()


async def test_a_restarted_node_takes_its_own_lease_at_once(
    connection: Connection, subjects: Subjects
) -> None:
    before = _lease(connection, subjects, "a")
    assert await before.acquire()
    after = _lease(connection, subjects, "a")
    assert await after.acquire()
    assert not await before.renew()
    assert before.remaining == 0
    assert await after.renew()


async def test_a_server_that_was_restarted_costs_the_holder_nothing(own_nats: NatsServer) -> None:
    connection = await connect(own_nats.url, "test")
    subjects = Subjects()
    await ensure_streams(connection, subjects)
    holder = _lease(connection, subjects, "a", ttl_seconds=20)
    assert await holder.acquire()
    assert await holder.renew()
    await own_nats.kill()
    await own_nats.start()
    assert await holder.renew()
    assert await holder.renew()
    assert not await _lease(connection, subjects, "b").acquire()
    await connection.close()


async def test_after_a_restart_the_first_to_come_holds_the_lease(own_nats: NatsServer) -> None:
    connection = await connect(own_nats.url, "test")
    subjects = Subjects()
    await ensure_streams(connection, subjects)
    holder = _lease(connection, subjects, "a", ttl_seconds=20)
    standby = _lease(connection, subjects, "b", ttl_seconds=20)
    assert await holder.acquire()
    assert await holder.renew()
    await own_nats.kill()
    await own_nats.start()
    await connection.ready()
    assert await standby.acquire()
    assert not await holder.renew()
    assert holder.remaining == 0
    await connection.close()


async def test_a_released_lease_is_taken_at_once(
    connection: Connection, subjects: Subjects
) -> None:
    holder, standby = _lease(connection, subjects, "a", 9), _lease(connection, subjects, "b", 9)
    assert await holder.acquire()
    waiting = asyncio.create_task(_acquired(standby))
    # A renewal wakes nobody for good.
    assert await holder.renew()
    await asyncio.wait({waiting}, timeout=0.05)
    assert not waiting.done()
    await holder.release()
    async with asyncio.timeout(1):
        await waiting
    assert holder.remaining == 0
    assert not await holder.renew()


async def test_the_time_that_remains_is_counted_from_before_the_request(
    connection: Connection, subjects: Subjects, nats_url: str
) -> None:
    async with Proxy(nats_url) as proxy:
        distant = await connect(proxy.url, "distant")
        lease = _lease(distant, subjects, "a")
        assert await lease.acquire()
        proxy.hold_answers()
        renewing = asyncio.create_task(lease.renew())
        await proxy.answered.wait()
        asyncio.get_running_loop().call_later(0.4, proxy.release)
        assert await renewing
        assert lease.remaining < 3 - 0.4
        await distant.close()


async def test_a_renewal_whose_answer_was_lost_is_found_again(
    connection: Connection, subjects: Subjects, nats_url: str
) -> None:
    async with Proxy(nats_url) as proxy:
        distant = await connect(proxy.url, "distant")
        lease = _lease(distant, subjects, "a", ttl_seconds=5)
        assert await lease.acquire()
        proxy.hold_answers()
        renewing = asyncio.create_task(lease.renew())
        await proxy.answered.wait()
        await proxy.cut()
        proxy.release()
        assert await renewing
        assert not await _lease(connection, subjects, "b").acquire()
        assert await lease.renew()
        await distant.close()


async def test_a_holder_that_reaches_nobody_knows_when_its_lease_is_over(
    connection: Connection, subjects: Subjects, nats_url: str
) -> None:
    async with Proxy(nats_url) as proxy:
        distant = await connect(proxy.url, "distant")
        lease = _lease(distant, subjects, "a", ttl_seconds=1)
        assert await lease.acquire()
        proxy.hold_requests()
        async with asyncio.timeout(1.5):
            assert not await lease.renew()
        assert lease.remaining == 0
        async with asyncio.timeout(5):
            await _acquired(_lease(connection, subjects, "b", ttl_seconds=1))
        await distant.close()
