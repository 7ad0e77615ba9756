"""`replay`: captured messages through the service's pipeline, without Kafka."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, get_args

import click
import msgspec

from consumer.commands.captures.files import read_capture
from consumer.commands.captures.messages import CaptureFormat
from consumer.commands.captures.unrecognised import UNRECOGNISED, unrecognised_text
from consumer.commands.exit_codes import CommandError, OutputError, exit_like_a_filter, print_error
from consumer.commands.first_failure import FirstFailure, how_to_explain
from consumer.commands.terminal import echo_note, file_progress
from consumer.core.adapters.registry import load_adapters
from consumer.core.message import CapturedMessage
from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult, Partition, Pipeline
from consumer.exit_codes import REFUSED
from consumer.settings.core_options import pipeline_options
from consumer.settings.sources import load
from consumer.telemetry.outcome_counts import DIFFERING, Total, totals_by_name

_encode: Final = msgspec.json.Encoder().encode


@click.command(
    "replay",
    epilog="""\b
Example:
  kcat -C -b kafka:9092 -t serving-responses -J -e > capture.jsonl
  acceptance-consumer replay capture.jsonl --outcomes outcomes.jsonl > records.jsonl""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(CaptureFormat)),
    default="auto",
    show_default=True,
    help="Format of the files: auto, whatever replay recognises; kcat, kcat -J only; records, JSON "
    "with bytes in base64 only (value_b64; dead-letters --capture writes them); values, one "
    "message value per line; file, each file one message value.",
)
@click.option(
    "--outcomes",
    type=click.File("wb", lazy=False),
    metavar="FILE",
    help="Write the outcome and reason of each message and request to FILE, as a JSON line.",
)
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with settings, as for run.  [env: ACCEPTANCE_SETTINGS]",
)
@click.option("--fleet", help="Name of the fleet; part of each record's id.")
def command(
    *,
    files: tuple[str, ...],
    form: CaptureFormat,
    outcomes: BinaryIO | None,
    settings_file: Path | None,
    fleet: str | None,
) -> None:
    """Process captured messages as the service does.

    The command needs no Kafka. FILE may be - for standard input. Unless --format says otherwise,
    replay recognises: the output of curl, with headers (-i, -v) or without; JSON documents, one
    per line or over several lines, and arrays of them; kcat -J, rpk topic consume, and Kafka's
    console consumer with print.timestamp, print.partition, print.offset, print.headers, print.key,
    or without; the format records; HAR files; AIPerf's export (--export-level raw); gzip of these.

    The command writes acceptance records to standard output, one JSON object per line, and a
    summary to standard error, which ends with a command that explains the first failure. At the end
    of the input, it ends open requests as their timeout would. It exits with 0 even if payloads are
    bad, and with 2 if it recognises no message, or cannot read or write a file.
    """
    with exit_like_a_filter():
        settings = load({"fleet": fleet}, os.environ, settings_file, require=())
        pipeline = Pipeline(pipeline_options(settings, "local"), load_adapters())
        replay = Replay(pipeline, sys.stdout.buffer, outcomes)
        with file_progress(files, "replay") as track:
            replay.run(files, form, track)
        _echo_summary(replay, _options(form, settings_file, fleet))
    if replay.first_unrecognised is not None:
        sys.exit(REFUSED)


def _echo_summary(replay: "Replay", options: list[str]) -> None:
    if not replay.totals:
        echo_note("no messages in the input")
    for name, count in totals_by_name(replay.totals).items():
        echo_note(f"{count:>9}  {name}")
    if replay.first_unrecognised is not None:
        print_error(CommandError(unrecognised_text(replay.first_unrecognised)))
    if (failure := replay.failures.failure) is not None:
        for line in how_to_explain(failure, options).splitlines():
            echo_note(line)


def _options(form: CaptureFormat, settings_file: Path | None, fleet: str | None) -> list[str]:
    """Return the options with which `explain` does the same."""
    options = {
        "--format": None if form == "auto" else form,
        "--settings": settings_file,
        "--fleet": fleet,
    }
    return [word for name, value in options.items() if value for word in (name, str(value))]


class Replay:
    """Feeds captures to the pipeline, and writes records and outcomes.

    Args:
        pipeline: the core.
        records: receives acceptance records, one JSON object per line.
        outcomes: receives the outcome of each message and request; None to write none.

    Attributes:
        totals: how often each outcome occurred.
        failures: finds the first failure.
        first_unrecognised: the first message, if no message is of a known format.

    """

    def __init__(
        self, pipeline: Pipeline, records: BinaryIO, outcomes: BinaryIO | None = None
    ) -> None:
        self.totals: Counter[Total] = Counter()
        self.failures = FirstFailure()
        self.first_unrecognised: bytes | None = None
        self._pipeline = pipeline
        self._records = records
        self._outcomes = outcomes
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._messages = 0

    def run(
        self,
        names: Iterable[str],
        form: CaptureFormat,
        track: Callable[[BinaryIO], BinaryIO] = lambda file: file,
    ) -> None:
        """Replay files in order, then end open requests as their timeout would.

        Args:
            names: files, `-` for standard input.
            form: format of the files.
            track: wraps each opened file, to see how much of it is read.

        Raises:
            CaptureError: a file cannot be read.
            OutputError: outcomes cannot be written.
            OSError: records cannot be written.

        """
        for name in names:
            self.failures.begin_file(name, self._messages)
            for message in read_capture(name, form, self._messages, track):
                self._feed(message)
                self._messages += 1
        for partition in self._partitions.values():
            self._finish(partition)
        self._records.flush()
        if self._outcomes is not None:
            with _naming_outcomes():
                self._outcomes.flush()

    def _feed(self, message: CapturedMessage) -> None:
        key = message.topic(), message.partition()
        partition = self._partitions.get(key)
        if partition is None or message.offset() < partition.position:
            if partition is not None:  # Another capture begins where offsets go back.
                self._finish(partition)
            partition = self._pipeline.partition(*key, message.offset())
            self._partitions[key] = partition
            self.failures.begin_partition(key)
        self.failures.add_message(key, message.offset(), self._messages)
        result = partition.feed(message)
        if result.reason not in UNRECOGNISED:
            self.first_unrecognised = None
        elif not self._messages:
            self.first_unrecognised = message.value()
        self._write_outcome("message", result, partition, message.offset(), None)
        self._drain(partition)

    def _finish(self, partition: Partition) -> None:
        partition.close_all()
        self._drain(partition)

    def _drain(self, partition: Partition) -> None:
        for result in partition.drain():
            self.first_unrecognised = None  # A bad message may hold events beside what is bad.
            if result.record is not None:
                self._records.write(_encode(result.record) + b"\n")
            for name in result.differing:
                self.totals[DIFFERING, name, None, ()] += 1
            offset, request_id = result.response.place[0], result.response.request_id
            self._write_outcome("request", result, partition, offset, request_id)

    def _write_outcome(
        self,
        kind: str,
        result: MessageResult | RequestResult,
        partition: Partition,
        offset: int,
        request_id: str | None,
    ) -> None:
        self.totals[kind, result.outcome, result.reason, ()] += 1
        origin = partition.origin
        self.failures.add_result(result, (origin.topic, origin.partition), offset)
        if self._outcomes is not None:
            line = {
                "kind": kind,
                "outcome": result.outcome,
                "reason": result.reason,
                "topic": origin.topic,
                "partition": origin.partition,
                "offset": offset,
                "request_id": request_id,
            }
            with _naming_outcomes():
                self._outcomes.write(_encode(line) + b"\n")


@contextmanager
def _naming_outcomes() -> Iterator[None]:
    """Name the outcomes in an error: standard output gives the same kind of error."""
    try:
        yield
    except OSError as error:
        raise OutputError("outcomes", error) from error
