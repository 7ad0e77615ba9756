"""The command line."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, get_args

import click

from consumer import app
from consumer.commands.capture_files import CaptureError, CaptureFormat
from consumer.commands.oncall import dead_letters_command, explain_command, tail_command
from consumer.commands.parameter_types import CONTEXT
from consumer.commands.progress import of_files
from consumer.commands.replay import OutputError, Replay
from consumer.commands.report.command import report_command
from consumer.core.adapters.registry import AdapterError, load_adapters
from consumer.core.partition import Pipeline
from consumer.demo.run import run_demo
from consumer.kafka import topics
from consumer.kafka.errors import ClusterError
from consumer.settings.click_options import (
    click_options,
    cluster_options,
    settings_from_click_options,
)
from consumer.settings.settings import SettingsError, duration, load
from consumer.telemetry import logging_setup
from consumer.telemetry.http_server import AddressError
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.outcome_counts import totals_by_name
from schemas import published

_WRONG_SETTING = 2
_REFUSALS = (SettingsError, ClusterError, AdapterError, AddressError, CaptureError, OutputError)


class _Number(click.FloatRange):
    """A number of a range; NaN, which is never out of one, is none, and neither is infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class _Duration(click.ParamType[float]):
    """A duration of at least a second, as the settings are written."""

    name = "DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds, or fail."""
        try:
            seconds = duration(str(value))
        except ValueError:
            seconds = 0.0
        if seconds < 1:
            self.fail(f"{value!r} is no duration of 1s or more, such as 15, 15s or 2m", param, ctx)
        return seconds


@click.group(
    context_settings=CONTEXT,
    epilog="""\b
See it work, without a Kafka:
  acceptance-consumer demo
Run it on your fleet's topic:
  acceptance-consumer run --bootstrap-servers kafka:9092 --topics serving-responses
Look into captured messages:
  kcat -C -b kafka:9092 -t serving-responses -J -e | acceptance-consumer replay -
See how well the drafts of the last day were accepted:
  acceptance-consumer report --bootstrap-servers kafka:9092 -o report.html""",
)
@click.version_option(package_name="acceptance-consumer", prog_name="acceptance-consumer")
def main() -> None:
    """Turn an LLM serving fleet's response events into speculative-decoding acceptance records.

    Every option of `run` is also an environment variable and a key of a TOML file; the command
    line wins over the environment, and the environment over the file.
    """


@main.command(
    context_settings=CONTEXT,
    epilog="""\b
Example:
  acceptance-consumer run --bootstrap-servers kafka:9092 --topics serving-responses \\
      -X security.protocol=SASL_SSL -X sasl.mechanism=PLAIN
ACCEPTANCE_KAFKA_SASL_PASSWORD_FILE=/run/secrets/kafka keeps the password off the command line.""",
)
@click.option("--check", is_flag=True, help="Check the settings and the connection, then exit.")
@click_options
def run(*, check: bool, **options: Any) -> None:
    """Run the service until SIGTERM or SIGINT.

    Reads response events from the input topics, publishes one acceptance record per request to the
    output topic, and sends what it cannot read to the dead-letter topic. Exits with 0 after a
    signal, with 1 if Kafka fails for good or no broker answers for a minute, with 2 if a setting
    is wrong or a topic is missing. With --check, a broker has to answer within ten seconds.
    """
    logging_setup.configure()
    with _refusals(logged=not check):
        settings = settings_from_click_options(options)
        logging_setup.configure(
            settings.log_format, settings.log_level, preview_bytes=settings.log_preview
        )
        if check:
            cluster = app.check(settings)
            click.echo(f"settings are valid, cluster {cluster} is reachable, all topics exist")
            return
        logging_setup.switch_by_signal(settings.log_level)
        code = app.run(settings)
    sys.exit(code)


@main.command(
    context_settings=CONTEXT,
    epilog="""\b
Example:
  acceptance-consumer create-topics --bootstrap-servers kafka:9092 --partitions 12""",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Partitions of the records' topic; that of the dead letters gets one.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=-1),
    default=-1,
    show_default=True,
    help="Copies of each partition; -1 for the brokers' default.",
)
@cluster_options("bootstrap_servers", "output_topic", "dead_letter_topic", "dead_letters")
def create_topics(*, partitions: int, replication_factor: int, **options: Any) -> None:
    """Create the output topics that do not exist.

    Topics that exist stay as they are. All other settings of `run` may stand in the environment and
    the file, as they do for the app. Exits with 0 if all are there in the end, with 2 if a
    setting is wrong or a topic cannot be created.
    """
    logging_setup.configure()
    with _refusals():
        settings = settings_from_click_options(options, require=("bootstrap_servers",))
        created = topics.create_topics(settings, partitions, replication_factor)
    click.echo(f"created {', '.join(created)}" if created else "all topics exist")


@main.command(context_settings=CONTEXT)
@click.option(
    "--duration",
    "seconds",
    type=_Duration(),
    help="Stop after this long, such as 15s or 2m.",
)
@click.option(
    "--rate",
    type=_Number(min=0.1, max=500),
    default=40.0,
    show_default=True,
    help="Requests per second that the fleet serves.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the traffic.")
def demo(*, seconds: float | None, rate: float, seed: int) -> None:
    """Show the service at work, with a made-up fleet on a broker inside this process.

    Ends on Ctrl-C or after --duration. Needs no Kafka and keeps nothing.
    """
    sys.exit(run_demo(duration=seconds, rate=rate, seed=seed))


@main.command(
    epilog="""\b
Example:
  kcat -C -b kafka:9092 -t serving-responses -J -e > capture.jsonl
  acceptance-consumer replay capture.jsonl --outcomes outcomes.jsonl > records.jsonl""",
    context_settings=CONTEXT,
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(CaptureFormat)),
    default="auto",
    show_default=True,
    help="How messages are written: kcat -J lines; records (value_b64, headers in base64); values, "
    "one per line; file, each file one value.",
)
@click.option(
    "--outcomes",
    type=click.File("wb", lazy=False),
    metavar="FILE",
    help="Write one JSON line per message and per request, with outcome and reason.",
)
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with settings, as for run.",
)
@click.option("--fleet", help="Name of the fleet; part of each record's id.")
def replay(
    *,
    files: tuple[str, ...],
    form: CaptureFormat,
    outcomes: BinaryIO | None,
    settings_file: Path | None,
    fleet: str | None,
) -> None:
    """Run captured messages through the same pipeline, without Kafka.

    FILE may be - for standard input; .gz is read as it is. Acceptance records go to standard
    output, one JSON object per line; a summary goes to standard error. Requests that are still
    open at the end are closed as by their timeout. Exits with 0 though payloads are bad, with 2 if
    a file cannot be read or written.
    """
    with _refusals():
        settings = load({"fleet": fleet}, os.environ, settings_file, require=())
        pipeline = Pipeline(app.pipeline_options(settings, "local"), load_adapters())
        replayed = Replay(pipeline, sys.stdout.buffer, outcomes)
        try:
            with of_files(files, "replay") as progress:
                replayed.run(files, form, progress)
        except OSError as error:  # Of standard output; all others have names of their own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # For what is still to be flushed.
            if isinstance(error, BrokenPipeError):  # Whoever reads the records has seen enough.
                return
            raise OutputError("standard output", error) from error
    if not replayed.totals:
        click.echo("no messages in the input", err=True)
    for name, count in totals_by_name(replayed.totals).items():
        click.echo(f"{count:>9}  {name}", err=True)


@main.command(context_settings=CONTEXT)
@click.argument("name", type=click.Choice(published.names()))
def schema(*, name: str) -> None:
    """Print a published JSON Schema."""
    click.echo(published.text(name), nl=False)


for command in (explain_command, tail_command, dead_letters_command, report_command):
    main.add_command(command)


@contextmanager
def _refusals(*, logged: bool = False) -> Iterator[None]:
    """Turn what was asked for wrongly into a message, or into log lines, and exit code 2."""
    try:
        yield
    except _REFUSALS as error:
        if logged and not sys.stderr.isatty():
            _log_refusal(error)
        else:
            for line in str(error).splitlines():
                click.echo(f"acceptance-consumer: {line}", err=True)
        sys.exit(_WRONG_SETTING)


def _log_refusal(error: Exception) -> None:
    log = logging_setup.get_logger()
    if not isinstance(error, SettingsError):
        log.error(LogEvent.SETTINGS_REJECTED, error=str(error))
        return
    for problem in error.problems:
        log.error(
            LogEvent.SETTINGS_REJECTED,
            setting=problem.setting,
            source=problem.source,
            given=problem.given,
            error=problem.message,
        )
