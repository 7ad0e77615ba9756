"""`create-topics`: create the output topics that do not exist."""

from typing import Any

import click

from consumer.commands.exit_codes import exit_on_error
from consumer.exit_codes import REFUSED
from consumer.kafka import topics
from consumer.settings.click_options import cluster_options, settings_from_click_options
from consumer.telemetry import logging_setup


@click.command(
    "create-topics",
    epilog="""\b
Example:
  acceptance-consumer create-topics --bootstrap-servers kafka:9092 --partitions 12""",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Number of partitions of the output topic; the dead-letter topic gets one.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=-1),
    default=-1,
    show_default=True,
    help="Number of copies of each partition; -1 uses the brokers' default.",
)
@cluster_options("bootstrap_servers", "output_topic", "dead_letter_topic", "dead_letters")
def command(*, partitions: int, replication_factor: int, **options: Any) -> None:
    """Create the output topics that do not exist.

    The command leaves existing topics unchanged. It reads the environment and the settings file as
    `run` does. It exits with 0 if all topics exist in the end, and with 2 if a setting is wrong, no
    broker answers or a topic cannot be created.
    """
    logging_setup.configure()
    with exit_on_error(no_broker=REFUSED):
        settings = settings_from_click_options(options, require=("bootstrap_servers",))
        created = topics.create_topics(settings, partitions, replication_factor)
    click.echo(f"created {', '.join(created)}" if created else "all topics exist")
