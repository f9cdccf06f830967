"""A log without room refuses, keeps what it has, and goes on when there is room."""

import asyncio
import secrets
import time
from pathlib import Path

import msgspec
import pytest
from tests.system.campaign import Campaign

from penstock import Client, TaskSpec
from penstock.client import Submission
from penstock.errors import LogFull, Unavailable
from penstock.events.connection import connect
from penstock.events.jetstream_api import StreamAnswer, ask, stream_info
from penstock.events.lease import TTL_SECONDS
from penstock.events.subjects import Subjects
from penstock.up import Settings, System

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

STORE_BYTES = 2 * 1024 * 1024


async def limit_log(system: System, max_bytes: int) -> None:
    connection = await connect(system.nats_url, "test")
    try:
        stream = Subjects().log_stream
        config = (await stream_info(connection, stream)).config
        config["max_bytes"] = max_bytes
        await ask(connection, f"STREAM.UPDATE.{stream}", config, StreamAnswer)
    finally:
        await connection.close()


async def submit_when_there_is_room(client: Client, specs: list[TaskSpec]) -> Submission:
    async with asyncio.timeout(20):
        while True:
            try:
                return await client.submit(specs)
            except Unavailable:
                await asyncio.sleep(0.1)


async def submitted_until_full(client: Client, spec: TaskSpec) -> set[int]:
    accepted: set[int] = set()
    while True:
        try:
            accepted.update((await client.submit(spec)).task_ids)
        except LogFull:
            return accepted


async def test_a_full_log_refuses_submissions_and_loses_nothing(scratch: Path) -> None:
    settings = Settings(data=scratch / "data", listen="127.0.0.1:0", workers=2)
    async with System(settings) as system:
        async with Client(system.url, system.token, retry_seconds=0) as client:
            campaign = Campaign(system, scratch)
            await campaign.submit(client, 3, 10, 0.0)
            await campaign.done(client)
            await limit_log(system, 1)
            with pytest.raises(Unavailable) as refused:
                await client.submit(campaign.specs(5, 0.0), key="while-full")
            assert isinstance(refused.value, LogFull)
            await limit_log(system, -1)
            submission = await submit_when_there_is_room(client, campaign.specs(5, 0.0))
            campaign.accepted.update(submission.task_ids)
            await campaign.done(client)


async def test_storage_that_is_full_costs_submissions_and_not_the_leadership(
    scratch: Path,
) -> None:
    settings = Settings(
        data=scratch / "data", listen="127.0.0.1:0", workers=2, max_store_bytes=STORE_BYTES
    )
    async with System(settings) as system:
        async with Client(system.url, system.token, retry_seconds=0) as client:
            campaign = Campaign(system, scratch)
            await campaign.submit(client, 1, 10, 0.0)
            await campaign.done(client)
            epoch = (await client.status()).epoch
            # Random, so that compression does not make room.
            filling = TaskSpec(command=["true", secrets.token_hex(50_000)])
            campaign.accepted.update(await submitted_until_full(client, filling))
            # Longer than a lease lasts.
            until = time.monotonic() + 2 * TTL_SECONDS
            while time.monotonic() < until:
                with pytest.raises(LogFull):
                    await client.submit(filling)
                await asyncio.sleep(0.2)
            assert (await client.status()).epoch == epoch
    roomy = msgspec.structs.replace(settings, max_store_bytes=None)
    async with System(roomy) as system:
        async with Client(system.url, system.token) as client:
            await campaign.submit(client, 1, 10, 0.0)
            await campaign.done(client)
