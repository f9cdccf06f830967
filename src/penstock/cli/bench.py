"""`penstock bench`: measure a system."""

import click

from penstock.cli.session import Command, Session, pass_session

WORKLOADS = ["noop", "command", "latency", "backlog", "array"]


@click.command(cls=Command)
@click.argument("workload", type=click.Choice([*WORKLOADS, "all"]))
@click.option("--tasks", type=click.IntRange(1), metavar="N", help="How many; each has a default.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, metavar="N")
@pass_session
def bench(session: Session, *, workload: str, tasks: int | None, workers: int) -> None:
    """Measure throughput, latency, memory.

    Starts a system of its own in a scratch directory, or uses the one at --url. Prints one line
    of JSON for each workload on stdout, and nothing else there.

    \b
    noop      no-op handler tasks, from the queue to the read model
    command   /bin/true, compared with a bare posix_spawn loop in as many processes
    latency   one no-op at a time, from the call to the result
    backlog   lists of tasks, accepted while nobody works; memory; restart
    array     the same with one array of ten million
    """
    import uvloop

    from penstock.bench import Options, run
    from penstock.logging import set_up_logging

    # What the supervisor reports belongs on stderr: stdout is for results.
    set_up_logging("error")
    options = Options(tasks=tasks, workers=workers, url=session.url, token_file=session.token_file)
    uvloop.run(run(WORKLOADS if workload == "all" else [workload], options))
