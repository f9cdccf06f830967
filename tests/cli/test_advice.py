"""What messages advise can be done."""

import re
import shlex
from pathlib import Path

import click
import pytest

import penstock
from penstock.cli import main

PACKAGE = Path(penstock.__file__).parent
PARTS = ("cli", "client", "coordinator", "events", "manager", "projections", "up", "worker")
ADVICE = re.compile(r"['`]penstock ([a-z][^'`\"]*[^'`\"\s])['`]|: penstock ([a-z][^'`\"]*)\"")

found = sorted(
    {
        next(filter(None, match.groups()))
        for part in PARTS
        for file in (PACKAGE / part).rglob("*.py")
        for match in ADVICE.finditer(file.read_text())
    }
)


def test_advice_is_found() -> None:
    assert {"group list", "up", "projections rebuild"} <= set(found)


@pytest.mark.parametrize("advice", found)
def test_every_command_that_a_message_names_exists(advice: str) -> None:
    command: click.Command = main
    for word in shlex.split(advice):
        if word == "--":
            break
        if word.startswith("-"):
            name = word.partition("=")[0]
            assert name in {option for one in command.params for option in one.opts}, advice
        elif isinstance(command, click.Group):
            assert word in command.commands, advice
            command = command.commands[word]
