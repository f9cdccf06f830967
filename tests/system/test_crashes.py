"""kill -9 of anything, at any moment, loses no accepted task and finishes none twice."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from tests.system.campaign import Campaign, check_everything, whole_log

from penstock import Client
from penstock.events import LeaderElected
from penstock.up import Settings, System

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

KILLS = 3


def settings(directory: Path) -> Settings:
    return Settings(data=directory / "data", listen="127.0.0.1:0", workers=2)


def workers(system: System) -> list[psutil.Process]:
    """The worker processes of this system, wherever they hang in the tree."""
    place = str(system.data.root)
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        command = process.info["cmdline"] or []
        if "penstock.worker" in command and place in str(process.info["environ"]):
            found.append(process)
    return found


async def kill_process(system: System, name: str) -> None:
    pid = system.processes[name].pid
    await system.kill(name)
    await system.replaced(name, pid)


async def kill_a_worker(system: System, dice: random.Random) -> None:
    found = workers(system)
    if found:
        victim = dice.choice(found)
        victim.kill()
        await asyncio.to_thread(victim.wait)


@pytest.mark.parametrize("victim", ["coordinator", "projector", "manager", "worker", "nats"])
async def test_whoever_is_killed_under_load_every_task_ends_exactly_once(
    victim: str, scratch: Path
) -> None:
    dice = random.Random(victim)
    async with System(settings(scratch)) as system, Client(system.url, system.token) as client:
        campaign = Campaign(system, scratch)
        submitting = asyncio.create_task(campaign.submit(client, 60, 10, 0.01))
        for _ in range(KILLS):
            before = len(campaign.accepted)
            await until(lambda before=before: len(campaign.accepted) > before or submitting.done())
            await asyncio.sleep(dice.uniform(0, 0.3))
            if victim == "worker":
                await kill_a_worker(system, dice)
            else:
                await kill_process(system, victim)
        await submitting
        await campaign.done(client)
        ran_again = await check_everything(campaign)
        if victim == "worker":
            assert len(ran_again) <= KILLS
        else:
            assert ran_again == set(), "what still ran needed not run again"


async def test_a_second_coordinator_takes_over_and_a_paused_leader_changes_nothing(
    scratch: Path,
) -> None:
    async with System(settings(scratch)) as system:
        await system.add("standby", system.coordinator("standby", "127.0.0.1:0"))
        log = system.data.log("standby")
        await until(lambda: log.exists() and "listening" in log.read_text())
        standby_url = next(
            line.split('"url": "')[1].split('"')[0]
            for line in log.read_text().splitlines()
            if "listening" in line
        )
        leader = system.processes["coordinator"].pid
        async with (
            Client(system.url, system.token) as client,
            Client(standby_url, system.token) as other,
        ):
            campaign = Campaign(system, scratch)
            await campaign.submit(other, 2, 10, 0.01)
            assert (await client.status()).leader == "coordinator"

            os.kill(leader, signal.SIGSTOP)
            try:
                await until_async(lambda: leads(other, "standby"))
                await campaign.submit(other, 5, 10, 0.01)
            finally:
                os.kill(leader, signal.SIGCONT)
            # The woken one passes on what it is asked for, or says that it cannot.
            await campaign.submit(client, 5, 10, 0.01)
            await campaign.done(other)
            assert (await client.status()).leader == "standby"
        assert await check_everything(campaign) == set()
        elections = [
            (commit.epoch, event.node)
            for commit in await whole_log(system)
            for event in commit.events
            if isinstance(event, LeaderElected)
        ]
        assert [node for _, node in elections] == ["coordinator", "standby"]


async def leads(client: Client, node: str) -> bool:
    return (await client.status()).leader == node


async def until(condition: Callable[[], bool], limit_seconds: float = 30) -> None:
    async def check() -> bool:
        return condition()

    await until_async(check, limit_seconds)


async def until_async(condition: Callable[[], Awaitable[bool]], limit_seconds: float = 30) -> None:
    """Wait for a condition of another process, which sends no signal."""
    async with asyncio.timeout(limit_seconds):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
