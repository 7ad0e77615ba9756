"""The command that makes a page of records."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from consumer.commands.capture_files import read_capture
from consumer.commands.parameter_types import CONTEXT, TimeType, ends
from consumer.commands.progress import of_files, of_items
from consumer.commands.replay import OutputError
from consumer.commands.report.aggregate import aggregate
from consumer.commands.report.page import render
from consumer.commands.topic_reader import TopicReader
from consumer.core.message import Message
from consumer.settings.click_options import cluster_options, settings_from_click_options
from consumer.telemetry.clock import SystemClock

_DAY_MS: Final = 86_400_000


@click.command(
    "report",
    epilog="""\b
Examples:
  acceptance-consumer report --bootstrap-servers kafka:9092 --since 6h
  acceptance-consumer replay capture.jsonl | acceptance-consumer report - -o capture.html""",
    context_settings=CONTEXT,
)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--since",
    type=TimeType(),
    help="Begin of the range: an RFC 3339 time, milliseconds since 1970, or how long ago, such as "
    "30m, 24h or 7d.  [default: 24h of the topic, everything of files]",
)
@click.option("--until", type=TimeType(), help="End of the range, written as its begin.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Where to write the page; - for standard output.",
)
@cluster_options("bootstrap_servers", "output_topic")
def report_command(
    *,
    files: tuple[str, ...],
    since: int | None,
    until: int | None,
    output: Path,
    **options: Any,
) -> None:
    """Show how well drafts were accepted over a time range, as one HTML page.

    Reads the records of the output topic, joins no group and commits nothing; or those of FILEs,
    one JSON object per line, as replay and kcat print them. FILE may be - for standard input; .gz
    is read as it is. What is no record is counted. The time of a record is that of its message, in
    a file its completed_at.
    """
    if not files:
        until = SystemClock().wall() if until is None else until
        since = until - _DAY_MS if since is None else since
    if since is not None and until is not None and since >= until:
        raise click.UsageError("The range ends before it begins.")
    with ends():
        if files:
            source = ", ".join(Path(name).name for name in files)
            with of_files(files, "report") as progress:
                found = aggregate(_captured(files, progress), since, until)
        else:
            settings = settings_from_click_options(options, require=("bootstrap_servers",))
            source = f"topic {settings.output_topic}"
            with TopicReader(settings) as reader:
                messages = reader.read_all(settings.output_topic, since)
                found = aggregate(of_items(messages, "report"), since, until)
        _write(output, render(found, source))
    click.echo(f"{found.records:>9}  records", err=True)
    click.echo(f"{found.repeats:>9}  repeats of a record, counted once", err=True)
    click.echo(f"{found.unreadable:>9}  not a record", err=True)
    if not found.records:
        click.echo("no record in the range", err=True)


def _captured(files: Iterable[str], progress: Callable[[int], None]) -> Iterator[Message]:
    for name in files:
        for captured in read_capture(name, "values", 0):
            progress(captured.size)
            if captured.message.value():
                yield captured.message


def _write(output: Path, page: str) -> None:
    # In one go, so that nobody looks at half a page; but a pipe or a device stays what it is.
    atomic = output.is_file() or not output.exists()
    try:
        with click.open_file(str(output), "w", "utf-8", "replace", atomic=atomic) as file:
            file.write(page)
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # Whoever reads it has seen enough.
            raise
        raise OutputError(str(output), error) from error
