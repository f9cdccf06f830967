from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner, Result
from tests.client.scripted import Script, serving

from penstock.cli import main

Penstock = Callable[..., Result]


@pytest.fixture(autouse=True)
def _forget_logging() -> Iterator[None]:
    """Commands that run in this process set up its logging; other tests must not inherit that."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def script() -> Iterator[Script]:
    """A scripted coordinator, in a thread of its own."""
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(serving(Script())) as script:
            yield script


@pytest.fixture
def penstock(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """Runs the command line against the scripted coordinator."""
    for name in ("PENSTOCK_TOKEN", "PENSTOCK_DATA"):
        monkeypatch.delenv(name, raising=False)
    token = tmp_path / "token"
    token.write_text("secret")
    monkeypatch.setenv("PENSTOCK_URL", script.url)
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(token))
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(words), input=stdin)

    return run
