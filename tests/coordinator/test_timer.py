"""The timer fires when the clock that it was given says so."""

import asyncio

import pytest

from penstock.clock import ManualClock, SystemClock
from penstock.coordinator.timer import Timer

pytestmark = pytest.mark.anyio


async def test_it_fires_once_when_the_time_has_come() -> None:
    fired = asyncio.Event()
    clock = SystemClock()
    timer = Timer(clock, fired.set)
    due = clock.now() + 5_000
    timer.set(due)
    await asyncio.wait_for(fired.wait(), 5)
    assert clock.now() >= due


async def test_a_later_time_replaces_an_earlier_one_and_none_cancels() -> None:
    fired = asyncio.Event()
    clock = SystemClock()
    timer = Timer(clock, fired.set)
    timer.set(clock.now())
    timer.set(clock.now() + 3600_000_000)
    timer.set(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not fired.is_set()


async def test_it_does_not_fire_while_the_clock_is_behind() -> None:
    fired = asyncio.Event()
    clock = ManualClock(1_000_000)
    timer = Timer(clock, fired.set)
    timer.set(1_000_500)
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert not fired.is_set()
    clock.advance(500)
    await asyncio.wait_for(fired.wait(), 5)
