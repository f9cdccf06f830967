"""A log without room refuses, keeps what it has, and goes on when there is room."""

import asyncio
from pathlib import Path

import pytest
from tests.system.campaign import Campaign

from penstock import Client
from penstock.errors import LogFull, Unavailable
from penstock.events.connection import connect
from penstock.events.jetstream_api import StreamAnswer, ask, stream_info
from penstock.events.subjects import Subjects
from penstock.up import Settings, System

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def limit_log(system: System, max_bytes: int) -> None:
    connection = await connect(system.nats_url, "test")
    try:
        stream = Subjects().log_stream
        config = (await stream_info(connection, stream)).config
        config["max_bytes"] = max_bytes
        await ask(connection, f"STREAM.UPDATE.{stream}", config, StreamAnswer)
    finally:
        await connection.close()


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
            async with asyncio.timeout(20):
                while True:
                    try:
                        submission = await client.submit(campaign.specs(5, 0.0))
                        break
                    except Unavailable:
                        await asyncio.sleep(0.1)
            campaign.accepted.update(submission.task_ids)
            await campaign.done(client)
