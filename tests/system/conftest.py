import asyncio
from collections.abc import Iterator

import pytest
from tests import servers

from penstock.up import Settings, System


class Running:
    """A system and the loop that it lives in, shared by the tests of a module."""

    def __init__(self, runner: asyncio.Runner, system: System) -> None:
        self.runner = runner
        self.system = system


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with servers.scratch_directory() as directory, asyncio.Runner() as runner:
        settings = Settings(data=directory / "data", listen="127.0.0.1:0", workers=2)
        system = System(settings)
        runner.run(system.start())
        try:
            yield Running(runner, system)
        finally:
            runner.run(system.aclose())
