"""`penstock coordinator` and `penstock projector`: the processes, configured by the environment."""

from collections.abc import Callable

import click

from penstock.errors import Corrupt


@click.command()
def coordinator() -> None:
    """Run a coordinator.

    Configured by the environment: PENSTOCK_NATS_URL, PENSTOCK_DATABASE_URL, PENSTOCK_LISTEN,
    PENSTOCK_NODE, PENSTOCK_TOKEN_FILE. Any number may run; one of them leads.
    """
    from penstock.coordinator.main import run

    _run(run)


@click.command()
def projector() -> None:
    """Run a projector.

    Configured by the environment: PENSTOCK_NATS_URL, PENSTOCK_DATABASE_URL. It writes what is in
    the log to the read models in Postgres. One works at a time.
    """
    from penstock.projections.read_models.main import run

    _run(run)


def _run(process: Callable[[], None]) -> None:
    """Run a process to its end. Damage ends it as such, wherever in it that was found."""
    try:
        process()
    except BaseExceptionGroup as group:
        damage: BaseException | None = group.subgroup(Corrupt)
        if damage is None:
            raise
        while isinstance(damage, BaseExceptionGroup):
            damage = damage.exceptions[0]
        raise damage from None
