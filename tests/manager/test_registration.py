"""What a manager says of itself reaches those who look."""

from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from tests.manager.scripted import MANAGER, TOKEN

from penstock import Client
from penstock.cli import root
from penstock.errors import Invalid
from penstock.events.managers import Device
from penstock.manager.registration import Registration
from penstock.up import Settings, System
from penstock.up import main as up_main

pytestmark = pytest.mark.anyio


async def test_the_manager_of_a_system_has_the_tags_that_the_system_was_given(
    scratch: Path,
) -> None:
    settings = Settings(data=scratch / "data", listen="127.0.0.1:0", workers=1, tags=["gpu", "big"])
    async with System(settings) as system, Client(system.url, token=system.token) as client:
        (manager,) = [found async for found in client.managers()]
        assert set(manager.tags) == {"gpu", "big"}


@pytest.mark.parametrize(
    ("arguments", "environment", "tags"),
    [
        (["--tag", "gpu", "--tag", "big"], {"PENSTOCK_TAGS": "other"}, ["gpu", "big"]),
        ([], {"PENSTOCK_TAGS": "gpu, big"}, ["gpu", "big"]),
        ([], {}, []),
    ],
)
def test_up_passes_tags_on(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environment: dict[str, str],
    tags: list[str],
) -> None:
    given: list[Settings] = []

    async def run(settings: Settings, when_ready: object) -> None:
        given.append(settings)

    monkeypatch.setattr(up_main, "run", run)
    result = CliRunner().invoke(root.main, ["up", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    assert [settings.tags for settings in given] == [tags]


async def test_a_group_that_does_not_exist_is_an_error_and_another_404_is_not() -> None:
    answers = [
        web.Response(status=404, text="no such page"),
        web.json_response({"code": "not_found", "detail": "There is no group 'x'."}, status=404),
    ]

    async def register(request: web.Request) -> web.Response:
        return answers.pop(0)

    application = web.Application()
    application.router.add_post("/managers", register)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    registration = Registration(
        url=f"http://{host}:{port}",
        token=TOKEN,
        manager_id=MANAGER,
        worker_count=1,
        device=Device(),
        groups=["x"],
    )
    try:
        with pytest.raises(Invalid, match="There is no group 'x'"):
            await registration.register()
    finally:
        await runner.cleanup()
    assert answers == []
