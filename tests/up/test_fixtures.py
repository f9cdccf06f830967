"""The servers that all tests share answer, and each test has its own part of them."""

import asyncpg
import nats
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_has_an_empty_database(database_url: str, turn: int) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("CREATE TABLE mine (turn int)")
    finally:
        await connection.close()


async def test_the_address_works_for_sqlalchemy(database_url: str) -> None:
    engine = create_async_engine(database_url.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT current_database()"))).scalar_one() in (
            database_url
        )
    await engine.dispose()


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_has_its_own_streams(nats_url: str, prefix: str, turn: int) -> None:
    connection = await nats.connect(nats_url)
    try:
        jetstream = connection.jetstream()
        await jetstream.add_stream(name=f"{prefix}_LOG", subjects=[f"{prefix}.log.>"])
        assert (await jetstream.publish(f"{prefix}.log.commit", b"")).seq == 1
    finally:
        await connection.close()
