"""`penstock manager`: the daemon of this device, and a look at all of them."""

from typing import TYPE_CHECKING

import click

from penstock.cli import show
from penstock.cli.session import Group, Session, pass_session

if TYPE_CHECKING:
    from penstock.client import Client, Manager


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def manager(ctx: click.Context) -> None:
    """Managers: list, show; alone, run the manager of this device.

    The manager is configured by the environment: PENSTOCK_NATS_URL, PENSTOCK_URL,
    PENSTOCK_TOKEN_FILE, PENSTOCK_MANAGER_ID, PENSTOCK_WORKERS, PENSTOCK_DATA.
    """
    if ctx.invoked_subcommand is None:
        from penstock.manager.main import run

        run()


@manager.command("list")
@pass_session
def list_managers(session: Session) -> None:
    """List managers."""

    async def conversation(client: "Client") -> "list[Manager]":
        return [found async for found in client.managers()]

    managers = session.ask_fresh(conversation)
    if session.output == "json":
        show.json(managers)
    elif session.output == "quiet":
        for found in managers:
            click.echo(found.id)
    else:
        show.table(
            ["id", "state", "workers", "task group", "groups", "tags", "host", "since"],
            [
                [
                    found.id,
                    found.state,
                    found.worker_count,
                    found.task_group_id,
                    found.groups,
                    found.tags,
                    found.device.get("hostname"),
                    found.offline_at if found.state == "offline" else found.online_at,
                ]
                for found in managers
            ],
            "There are no managers. Start one with 'penstock manager'.",
        )


@manager.command("show")
@click.argument("manager_id")
@pass_session
def show_manager(session: Session, *, manager_id: str) -> None:
    """Show one manager."""
    found = session.ask_fresh(lambda client: client.manager(manager_id))
    if session.output == "json":
        show.json(found)
    elif session.output == "quiet":
        click.echo(found.id)
    else:
        memory = found.device.get("memory_bytes")
        show.facts(
            [
                ("Manager", found.id),
                ("State", found.state),
                ("Task group", found.task_group_id),
                ("Workers", found.worker_count),
                ("Groups", found.groups),
                ("Tags", found.tags),
                ("Labels", found.labels),
                ("Host", found.device.get("hostname")),
                ("Cores", found.device.get("cores")),
                ("Memory", f"{memory / 2**30:.1f} GiB" if memory else None),
                ("Platform", found.device.get("platform")),
                ("Registered", found.registered_at),
                ("Online since", found.online_at),
                ("Offline since", found.offline_at),
            ]
        )
