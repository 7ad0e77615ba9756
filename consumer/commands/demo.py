"""`demo`: the service at work on a simulated fleet and an embedded broker."""

import sys

import click

from consumer.commands.parameter_types import DurationType, FiniteRange
from consumer.demo.run import run_demo


@click.command("demo")
@click.option(
    "--duration", "seconds", type=DurationType(), help="Stop after this time, such as 15s or 2m."
)
@click.option(
    "--rate",
    type=FiniteRange(min=0.1, max=500),
    default=40.0,
    show_default=True,
    help="Requests per second that the fleet serves.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random traffic.")
def command(*, seconds: float | None, rate: float, seed: int) -> None:
    """Show the service at work, without Kafka.

    A simulated fleet sends its traffic to a broker inside this process. The demo ends on Ctrl-C or
    after --duration, and leaves no files behind.
    """
    sys.exit(run_demo(duration=seconds, rate=rate, seed=seed))
