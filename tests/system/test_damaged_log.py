"""One bit of the log is flipped: whoever meets it stops, and says where and what to do."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests import servers

from penstock import Client, TaskSpec
from penstock.cli import main
from penstock.up import Settings, System

pytestmark = pytest.mark.timeout(120)

COMMITS = 60


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--data", str(data), *words])


async def write_a_log(data: Path) -> None:
    async with System(Settings(data=data, listen="127.0.0.1:0", workers=1)) as system:
        async with Client(system.url, system.token) as client:
            for number in range(COMMITS):
                # Never the same, so that compression leaves something to damage everywhere.
                await client.submit(TaskSpec(command=["true", f"{number:06d}" * 20]))


def flip_a_bit(data: Path) -> None:
    [directory] = (data / "nats").glob("jetstream/**/streams/LOG/msgs")
    block = max(directory.glob("*.blk"))
    content = bytearray(block.read_bytes())
    content[len(content) // 2] ^= 1
    block.write_bytes(content)


@pytest.fixture(scope="module")
def damaged() -> Iterator[Path]:
    """A data directory whose log has a commit that cannot be read; nothing runs in it."""
    with servers.scratch_directory() as directory:
        data = directory / "data"
        asyncio.run(write_a_log(data))
        flip_a_bit(data)
        yield data


def test_reading_over_the_damage_says_at_once_which_commit_it_is(damaged: Path) -> None:
    # The coordinator starts from a snapshot behind the damage, and the read model is behind it too.
    started = run(damaged, "up", "--detach", "--listen", "127.0.0.1:0")
    assert started.exit_code == 0, started.output
    try:
        for words in (["replay"], ["log", "tail", "--no-follow", "-n", "10000"]):
            result = run(damaged, *words)
            assert result.exit_code == 7
            assert "Commit at sequence" in result.stderr
            assert "damaged" in result.stderr
        readable = result.stdout.splitlines()
        assert readable[0].split()[0] == "1"
    finally:
        assert run(damaged, "down").exit_code == 0


@pytest.mark.parametrize("detach", [True, False])
def test_a_system_that_cannot_be_started_on_it_ends_and_says_what_to_do(
    damaged: Path, detach: bool
) -> None:
    shutil.rmtree(damaged / "postgres", ignore_errors=True)
    result = run(damaged, "up", "--listen", "127.0.0.1:0", *(["--detach"] if detach else []))
    assert result.exit_code == 7
    assert "commits are missing" in result.stderr
    assert "docs/how-to/operate.md" in result.stderr
    assert "{" not in result.stderr
    assert run(damaged, "down").stdout.startswith("Nothing runs")
