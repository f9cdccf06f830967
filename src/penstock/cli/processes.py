"""`penstock coordinator` and `penstock projector`: the processes, configured by the environment."""

import click


@click.command()
def coordinator() -> None:
    """Run a coordinator.

    Configured by the environment: PENSTOCK_NATS_URL, PENSTOCK_DATABASE_URL, PENSTOCK_LISTEN,
    PENSTOCK_NODE, PENSTOCK_TOKEN_FILE. Any number may run; one of them leads.
    """
    from penstock.coordinator.main import run

    run()


@click.command()
def projector() -> None:
    """Run a projector.

    Configured by the environment: PENSTOCK_NATS_URL, PENSTOCK_DATABASE_URL. It writes what is in
    the log to the read models in Postgres. One works at a time.
    """
    from penstock.projections.read_models.main import run

    run()
