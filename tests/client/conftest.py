from collections.abc import AsyncIterator

import pytest
from tests.client.scripted import Script, serving

from penstock import Client


@pytest.fixture
async def script(anyio_backend: str) -> AsyncIterator[Script]:
    async with serving(Script()) as script:
        yield script


@pytest.fixture
async def client(script: Script) -> AsyncIterator[Client]:
    async with Client(script.url, "secret", retry_seconds=5, timeout_seconds=5) as client:
        yield client
