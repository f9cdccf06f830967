"""The root of the command line: what there is, and what becomes of an error.

Modules of commands import only what their options need; the rest is imported inside a command, so
that `--help` and completion answer at once.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from penstock import exit_codes
from penstock.cli.bench import bench
from penstock.cli.completion import completion
from penstock.cli.group import group
from penstock.cli.log import log
from penstock.cli.manager import manager
from penstock.cli.processes import coordinator, projector
from penstock.cli.projections import projections
from penstock.cli.replay import replay
from penstock.cli.session import Group
from penstock.cli.status import status
from penstock.cli.submit import submit
from penstock.cli.task import task
from penstock.cli.up import demo, down, up
from penstock.errors import PenstockError, Unauthenticated

SECTIONS = {
    "A system on this machine": ["up", "down", "demo", "status"],
    "Work": ["submit", "group", "task", "manager"],
    "History": ["log", "replay", "projections"],
    "Parts and tools": ["coordinator", "projector", "bench", "completion"],
}


class Root(Group):
    """Turns errors into one or two lines and an exit code."""

    anywhere_hidden = False

    def main(self, args: Sequence[str] | None = None, *more: Any, **kwargs: Any) -> NoReturn:
        kwargs["standalone_mode"] = False
        try:
            result = super().main(args, *more, **kwargs)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except PenstockError as error:
            click.echo(f"penstock: {error.message}", err=True)
            if isinstance(error, Unauthenticated):
                click.echo("Name its file with --token-file or PENSTOCK_TOKEN_FILE.", err=True)
            sys.exit(exit_codes.exit_code(error))
        except (KeyboardInterrupt, click.Abort):
            click.echo("Interrupted.", err=True)
            sys.exit(exit_codes.INTERRUPTED)
        except BrokenPipeError:
            # The reader of our output has seen enough. Python would complain when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(exit_codes.OK)
        sys.exit(result if isinstance(result, int) else exit_codes.OK)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS.items():
            rows = [(name, self.commands[name].get_short_help_str(60)) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in exit_codes.MEANINGS.items()])


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="penstock", message="penstock %(version)s")
def main() -> None:
    """Run campaigns of tasks on your own machines, on a durable log.

    \b
    penstock up --detach
    penstock submit --array 1-10 --progress -- echo {index}
    penstock task output 1-10
    """


for _command in (
    up,
    down,
    demo,
    status,
    submit,
    group,
    task,
    manager,
    log,
    replay,
    projections,
    coordinator,
    projector,
    bench,
    completion,
):
    main.add_command(_command)
