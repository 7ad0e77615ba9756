"""`run`: the service itself."""

import sys
from typing import Any

import click

from consumer import app
from consumer.commands.exit_codes import exit_on_error, print_error
from consumer.exit_codes import REFUSED
from consumer.kafka.errors import PropertyError
from consumer.settings.click_options import click_options, settings_from_click_options
from consumer.settings.sources import SettingsError
from consumer.telemetry import logging_setup
from consumer.telemetry.log_events import LogEvent


@click.command(
    "run",
    epilog="""\b
Example:
  acceptance-consumer run --bootstrap-servers kafka:9092 --topics serving-responses \\
      -X security.protocol=SASL_SSL -X sasl.mechanism=PLAIN
ACCEPTANCE_KAFKA_SASL_PASSWORD_FILE=/run/secrets/kafka keeps the password off the command line.""",
)
@click.option("--check", is_flag=True, help="Check the settings and the connection, then exit.")
@click_options
def command(*, check: bool, **options: Any) -> None:
    """Run the service until SIGTERM or SIGINT.

    The service reads response events from the input topics, publishes one acceptance record per
    request to the output topic, and sends messages that it cannot read to the dead-letter topic. It
    exits with 0 after a signal; with 1 if Kafka fails permanently or no broker answers for a
    minute; and with 2 if a setting is wrong, a topic is missing, the HTTP port is in use, or a
    newer version of the service made a commit. With --check, it exits with 2 if no broker answers
    within ten seconds.
    """
    logging_setup.configure()
    report = print_error if check or sys.stderr.isatty() else _log_error
    # Only --check raises NoBrokerError; without it, the service logs the error and exits with 1.
    with exit_on_error(no_broker=REFUSED, report=report):
        settings = settings_from_click_options(options)
        logging_setup.configure(
            settings.log_format, settings.log_level, preview_bytes=settings.log_preview_bytes
        )
        if check:
            cluster = app.check(settings)
            click.echo(f"settings are valid, cluster {cluster} is reachable, all topics exist")
            return
        logging_setup.toggle_debug_on_sigusr1(settings.log_level)
        code = app.run(settings)
    sys.exit(code)


def _log_error(error: Exception) -> None:
    log = logging_setup.get_logger()
    if not isinstance(error, SettingsError):
        is_setting = isinstance(error, PropertyError)
        event = LogEvent.SETTINGS_REJECTED if is_setting else LogEvent.START_FAILED
        log.error(event, error=str(error))
        return
    for problem in error.problems:
        log.error(
            LogEvent.SETTINGS_REJECTED,
            setting=problem.setting,
            source=problem.source,
            given=problem.given,
            error=problem.message,
        )
