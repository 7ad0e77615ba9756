"""`report`: draft acceptance over a time range as one HTML page."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from consumer.commands.captures.files import read_capture
from consumer.commands.exit_codes import OutputError, exit_like_a_filter
from consumer.commands.parameter_types import TimeType, check_range
from consumer.commands.report.aggregate import aggregate
from consumer.commands.report.page import render
from consumer.commands.terminal import echo_note, file_progress, item_progress
from consumer.commands.topic_reader import TopicReader, quiet_clients
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
)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--since",
    type=TimeType(),
    help="Start of the range: an RFC 3339 time, milliseconds since 1970, or a duration before now "
    "such as 30m, 24h or 7d.  [default: 24h for the topic, everything for files]",
)
@click.option("--until", type=TimeType(), help="End of the range, in the same notation.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="File to write the page to; - for standard output.",
)
@cluster_options("bootstrap_servers", "output_topic")
def command(
    *,
    files: tuple[str, ...],
    since: int | None,
    until: int | None,
    output: Path,
    **options: Any,
) -> None:
    """Write an HTML page about draft acceptance.

    The page covers a time range. The command reads the records of the output topic, joins no group
    and commits nothing. With FILE arguments, it reads records from files instead, one JSON object
    per line, as replay and kcat print them. FILE may be - for standard input; the command
    decompresses .gz files. It prints how many messages or lines are not records. The time of a
    record is the time of its message; in a file, it is completed_at.
    """
    if not files:
        until = SystemClock().wall() if until is None else until
        since = until - _DAY_MS if since is None else since
    check_range(since, until)
    with exit_like_a_filter(), quiet_clients():
        if files:
            source = ", ".join(Path(name).name for name in files)
            with file_progress(files, "report") as track:
                report = aggregate(_captured(files, track), since, until)
        else:
            settings = settings_from_click_options(options, require=("bootstrap_servers",))
            source = f"topic {settings.output_topic}"
            with TopicReader(settings) as reader:
                messages = reader.read_all(settings.output_topic, since)
                report = aggregate(item_progress(messages, "report"), since, until)
        _write(output, render(report, source))
    echo_note(f"{report.records:>9}  records")
    echo_note(f"{report.repeats:>9}  repeats of a record, counted once")
    echo_note(f"{report.unreadable:>9}  not a record")
    if not report.records:
        echo_note("no record in the range")


def _captured(files: Iterable[str], track: Callable[[BinaryIO], BinaryIO]) -> Iterator[Message]:
    for name in files:
        for message in read_capture(name, "values", track=track):
            if message.value():
                yield message


def _write(output: Path, page: str) -> None:
    # Replace a file as a whole, so that readers never see half a page; but keep pipes and devices.
    atomic = output.is_file() or not output.exists()
    try:
        with click.open_file(str(output), "w", "utf-8", "replace", atomic=atomic) as file:
            file.write(page)
    except BrokenPipeError:  # Of standard output: its reader may stop at any time.
        raise
    except OSError as error:
        raise OutputError(str(output), error) from error
