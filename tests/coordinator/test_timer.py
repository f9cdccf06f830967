"""The timer fires when the clock that it was given says so."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.clock import ManualClock, SystemClock
from penstock.coordinator.timer import Timer


class Calls:
    """An event loop's `call_later`, stepped by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None], asyncio.TimerHandle]] = []

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        loop = asyncio.new_event_loop()
        handle = asyncio.TimerHandle(0, callback, (), loop)
        loop.close()
        self.waiting.append((seconds, callback, handle))
        return handle

    def step(self) -> float:
        """Make the call that waits and was not cancelled; returns after how long it was due."""
        [(seconds, callback, _)] = [one for one in self.waiting if not one[2].cancelled()]
        self.waiting.clear()
        callback()
        return seconds


def test_it_fires_when_the_time_has_come() -> None:
    fired: list[int] = []
    clock, calls = ManualClock(1_000_000), Calls()
    timer = Timer(clock, lambda: fired.append(clock.now()), calls.later)
    timer.set(3_500_000)
    clock.advance(2_500_000)
    assert calls.step() == 2.5
    assert fired == [3_500_000]
    assert calls.waiting == []


def test_it_does_not_fire_while_the_clock_is_behind() -> None:
    fired: list[int] = []
    clock, calls = ManualClock(1_000_000), Calls()
    timer = Timer(clock, lambda: fired.append(clock.now()), calls.later)
    timer.set(1_000_500)
    calls.step()
    assert fired == []
    clock.advance(500)
    calls.step()
    assert fired == [1_000_500]


def test_another_time_replaces_the_one_before_and_none_cancels() -> None:
    fired: list[int] = []
    clock, calls = ManualClock(0), Calls()
    timer = Timer(clock, lambda: fired.append(clock.now()), calls.later)
    timer.set(1_000_000)
    timer.set(5_000_000)
    clock.advance(5_000_000)
    assert calls.step() == 5.0
    assert fired == [5_000_000]
    timer.set(9_000_000)
    timer.set(None)
    assert all(handle.cancelled() for _, _, handle in calls.waiting)


@pytest.mark.anyio
async def test_it_fires_in_a_real_loop() -> None:
    fired = asyncio.Event()
    clock = SystemClock()
    timer = Timer(clock, fired.set)
    due = clock.now() + 2_000
    timer.set(due)
    await asyncio.wait_for(fired.wait(), 5)
    assert clock.now() >= due
