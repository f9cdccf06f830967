"""What every command shares: the options that may stand anywhere, and the way to the coordinator.

`--url`, `--token-file`, `--data` and `--output` are accepted before the subcommand and after it;
the last one wins.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from penstock.configuration import DEFAULT_DATA, refuse_unknown

if TYPE_CHECKING:
    from penstock.client import Client

T = TypeVar("T")

OutputFormat = Literal["human", "json", "quiet"]


class Session:
    """The options that hold for the whole command line."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.token_file: str | None = None
        self.data: str | None = None
        self.output: OutputFormat = "human"

    def client(self, first_answer_seconds: float = 2.0) -> "Client":
        from penstock.client import Client

        return Client(
            self.url,
            token_file=self.token_file,
            data=self.data,
            first_answer_seconds=first_answer_seconds,
        )

    def ask(self, question: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
        """Run one conversation with the coordinator."""

        async def conversation() -> T:
            async with self.client() as client:
                return await question(client)

        return asyncio.run(conversation())

    def ask_fresh(self, question: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
        """The same for a reader: it sees all that was accepted before it asked.

        Commands of a script run one after the other; each must find what the one before it did.
        """

        async def conversation(client: "Client") -> T:
            client.see_at_least((await client.status()).sequence)
            return await question(client)

        return self.ask(conversation)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    session = ctx.ensure_object(Session)
    if value is not None and parameter.name is not None:
        setattr(session, parameter.name, value)


def _anywhere(hidden: bool) -> list[click.Parameter]:
    def option(*names: str, help_text: str, **more: Any) -> click.Option:
        return click.Option(
            names, expose_value=False, callback=_remember, hidden=hidden, help=help_text, **more
        )

    return [
        option("--url", metavar="URL", help_text="Address of the coordinator [PENSTOCK_URL]."),
        option(
            "--token-file",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help_text="File that holds the token [PENSTOCK_TOKEN_FILE].",
        ),
        option(
            "--data",
            type=click.Path(file_okay=False),
            metavar="DIRECTORY",
            help_text=f"Data directory of a local system [PENSTOCK_DATA, ./{DEFAULT_DATA}].",
        ),
        option(
            "--output",
            "-o",
            type=click.Choice(["human", "json", "quiet"]),
            help_text="For people, for programs, or ids only.",
        ),
    ]


class Command(click.Command):
    """A command that takes the options that may stand anywhere."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_anywhere(hidden=False))

    def invoke(self, ctx: click.Context) -> Any:
        # Here and not earlier: `--help` answers in any environment.
        refuse_unknown(os.environ)
        return super().invoke(ctx)


class Group(click.Group):
    """Commands of one noun."""

    command_class = Command
    anywhere_hidden = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_anywhere(hidden=self.anywhere_hidden))


pass_session = click.make_pass_decorator(Session, ensure=True)
