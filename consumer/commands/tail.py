"""`tail`: records and dead letters as they are published.

The command draws a table on a terminal, and writes aligned lines or JSON elsewhere.
"""

import sys
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final, TextIO

import click
import msgspec
from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consumer.commands.exit_codes import exit_like_a_filter
from consumer.commands.parameter_types import MomentType
from consumer.commands.terminal import outcome_text, printable
from consumer.commands.topic_reader import TopicReader, quiet_clients
from consumer.core.dead_letters import LETTER_OUTCOMES
from consumer.core.message import Message
from consumer.core.times import milliseconds, rfc3339
from consumer.settings.click_options import cluster_options, settings_from_click_options
from consumer.settings.settings import Settings
from consumer.settings.values import Moment
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.json_lines import json_line
from schemas import DeadLetter, MessageOutcome, PublishedRecord, RequestOutcome

PUBLISHED: Final = RequestOutcome.PUBLISHED.value
LETTERS: Final = tuple(
    sorted(
        outcome.value
        for outcome in (MessageOutcome.BAD_PAYLOAD, MessageOutcome.SKIPPED, *LETTER_OUTCOMES)
    )
)
_REDRAW_S: Final = 0.25
_TABLE_FRAME: Final = 6  # Lines of the terminal that hold no row.
_WIDE: Final = 130  # Columns of a terminal that has room for all columns of the table.


class _Column(Struct, frozen=True):
    """A column: title, width in plain lines, whether it shrinks or is a number."""

    title: str
    width: int
    shrinks: bool = False
    number: bool = False


_COLUMNS: Final = (
    _Column("time, UTC", 9),
    _Column("outcome", 34, shrinks=True),
    _Column("engine", 12),
    _Column("model", 24, shrinks=True),
    _Column("request", 36, shrinks=True),
    _Column("rate", 5, number=True),
    _Column("length", 6, number=True),
    _Column("accepted", 13, number=True),
    _Column("steps", 6, number=True),
    _Column("source", 20),
)
_NUMBERS: Final = tuple(column.title for column in _COLUMNS if column.number)

_decode_record: Final = msgspec.json.Decoder(PublishedRecord).decode
_decode_letter: Final = msgspec.json.Decoder(DeadLetter).decode


@click.command(
    "tail",
    epilog="""\b
Examples:
  acceptance-consumer tail --engine vllm
  acceptance-consumer tail --from 15m --outcome malformed_stats --outcome bad_payload --json""",
)
@click.option(
    "--from",
    "--since",
    "start",
    type=MomentType(),
    default="latest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help="Begin with responses that completed at this time, not with records published then; TIME "
    "as for the setting start, or a duration before now (15m).",
)
@click.option("--model", "models", multiple=True, help="Only this model. May be repeated.")
@click.option(
    "--engine", "engines", multiple=True, help="Only records of this engine. May be repeated."
)
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice([PUBLISHED, *LETTERS]),
    multiple=True,
    help="Only this outcome: published for records; all others are dead letters. May be repeated."
    "  [default: published]",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N rows.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@cluster_options("bootstrap_servers", "output_topic", "dead_letter_topic")
def command(
    *,
    start: Moment,
    models: tuple[str, ...],
    engines: tuple[str, ...],
    outcomes: tuple[str, ...],
    count: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Follow records and dead letters as they are published.

    Without --outcome, the command shows records only. It draws a table on a terminal and writes
    aligned lines elsewhere. It shows only committed messages. Requests without numbers (no_stats,
    incomplete and so on) are not on any topic: the metrics of the service count them. The command
    does not show the payloads of dead letters. Ctrl-C ends it with exit code 0.
    """
    row_filter = RowFilter(
        frozenset(outcomes or (PUBLISHED,)), frozenset(models), frozenset(engines)
    )
    if engines and PUBLISHED not in row_filter.outcomes:
        raise click.UsageError(
            "--engine selects records, and dead letters name no engine; omit it, or add "
            "--outcome published"
        )
    with exit_like_a_filter(), quiet_clients():
        settings = settings_from_click_options(options, require=("bootstrap_servers",))
        topics = [settings.output_topic] if PUBLISHED in row_filter.outcomes else []
        if row_filter.outcomes != {PUBLISHED}:
            topics.append(settings.dead_letter_topic)
        with TopicReader(settings, following=True) as reader:
            rows = (
                None if message is None else row_of(message, settings, row_filter)
                for message in reader.follow(dict.fromkeys(topics, start))
            )
            with closing(_row_writer(as_json=as_json)) as writer:
                _follow(rows, writer, count)


def _row_writer(*, as_json: bool) -> "RowWriter":
    if as_json:
        return JsonRows(sys.stdout)
    console = Console()
    if sys.stdout.isatty() and not console.is_dumb_terminal:
        return LiveTable(console)
    return PlainRows(sys.stdout)


def _follow(rows: Iterable["Row | None"], writer: "RowWriter", count: int | None) -> None:
    written = 0
    try:
        for row in rows:
            if row is None:
                writer.refresh()
                continue
            writer.write(row)
            written += 1
            if written == count:
                return
    except KeyboardInterrupt:
        return


class RowFilter(Struct, frozen=True):
    """Which records and letters to show; an empty set of models or engines admits all."""

    outcomes: frozenset[str]
    models: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()


class Row(Struct, frozen=True):
    """One record or letter: its columns, and its JSON without the payload."""

    columns: tuple[str, ...]
    content: dict[str, Any]


def row_of(message: Message, settings: Settings, row_filter: RowFilter) -> Row | None:
    """Return the row of a message of an output topic; None if filtered out or of another kind."""
    value = message.value()
    if value is None:  # The notice of a redrive.
        return None
    try:
        if message.topic() == settings.dead_letter_topic:
            return _row_of_letter(_decode_letter(value), message, row_filter)
        return _row_of_record(_decode_record(value), row_filter)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _row_of_record(record: PublishedRecord, row_filter: RowFilter) -> Row | None:
    if (
        PUBLISHED not in row_filter.outcomes
        or (row_filter.models and record.model not in row_filter.models)
        or (row_filter.engines and record.engine not in row_filter.engines)
    ):
        return None
    columns = (
        _time(record.completed_at),
        outcome_text(PUBLISHED, record.incomplete_reason),
        record.engine,
        record.model or "-",
        record.request_id or "-",
        _number(record.draft_acceptance_rate, 3),
        _number(record.mean_acceptance_length, 2),
        f"{_number(record.num_accepted_draft_tokens)}/{_number(record.num_draft_tokens)}",
        _number(record.num_spec_steps),
        f"{record.source_topic}:{record.source_partition}:{record.source_first_offset}",
    )
    return Row(columns, msgspec.to_builtins(record, str_keys=True))


def _row_of_letter(letter: DeadLetter, message: Message, row_filter: RowFilter) -> Row | None:
    if letter.outcome not in row_filter.outcomes or (
        row_filter.models and letter.model not in row_filter.models
    ):
        return None
    kind, stamp = message.timestamp()
    columns = (
        _time(rfc3339(milliseconds(stamp if kind else -1))),
        outcome_text(letter.outcome, letter.reason),
        "-",
        letter.model or "-",
        letter.request_id or "-",
        *("-" for _ in _NUMBERS),
        f"{letter.source_topic}:{letter.source_partition}:{letter.source_first_offset}",
    )
    return Row(columns, msgspec.to_builtins(msgspec.structs.replace(letter, value_base64=None)))


def _time(text: str | None) -> str:
    """Return the time of day of an RFC 3339 time."""
    return "-" if text is None else text[11:19]


def _number(value: float | None, places: int = 0) -> str:
    return "-" if value is None else f"{value:.{places}f}"


class _Lines:
    """Lines on a stream, each flushed at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def refresh(self) -> None:
        """Do nothing: all lines are written."""

    def close(self) -> None:
        """Do nothing: all lines are written."""

    def _write_line(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


class JsonRows(_Lines):
    """Writes one JSON object per line."""

    def write(self, row: Row) -> None:
        """Write a row."""
        self._write_line(json_line(row.content))


class PlainRows(_Lines):
    """Writes aligned lines below their titles."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._write_cells(column.title for column in _COLUMNS)

    def write(self, row: Row) -> None:
        """Write a row."""
        self._write_cells(row.columns)

    def _write_cells(self, cells: Iterable[str]) -> None:
        *texts, source = map(printable, cells)
        fitted = (
            text.rjust(column.width) if column.number else _fit(text, column.width)
            for text, column in zip(texts, _COLUMNS, strict=False)
        )
        self._write_line("  ".join([*fitted, source]))


def _fit(text: str, width: int) -> str:
    """Pad or cut a text to a width."""
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1]}…"


class LiveTable:
    """Draws a table of the latest rows, as many as the terminal is high, again and again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: deque[Row] = deque(maxlen=500)
        self._total = 0
        self._clock = SystemClock()
        self._drawn_at = -_REDRAW_S
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def write(self, row: Row) -> None:
        """Add a row to the next drawing."""
        self._rows.append(row)
        self._total += 1
        self.refresh()

    def refresh(self) -> None:
        """Draw the table, at most four times a second."""
        now = self._clock.monotonic()
        if now - self._drawn_at >= _REDRAW_S:
            self._drawn_at = now
            self._live.update(self._table(), refresh=True)

    def close(self) -> None:
        """Draw the table for the last time, and leave it there."""
        self._live.update(self._table(), refresh=True)
        self._live.stop()

    def _table(self) -> Table:
        table = Table(
            box=SIMPLE_HEAD,
            caption=f"{self._total} rows   Ctrl-C ends",
            caption_justify="left",
            padding=(0, 1, 0, 0),
        )
        height = max(self._console.height - _TABLE_FRAME, 1)
        rows = list(self._rows)[-height:]
        hidden = self._hidden_columns(rows)
        visible = [n for n, column in enumerate(_COLUMNS) if column.title not in hidden]
        for number in visible:
            column = _COLUMNS[number]
            longest = max((len(row.columns[number]) for row in rows), default=0)
            table.add_column(
                column.title,
                justify="right" if column.number else "left",
                no_wrap=not column.shrinks,
                min_width=None if column.shrinks else max(longest, len(column.title)),
            )
        for row in rows:
            cells = (printable(row.columns[number]) for number in visible)
            table.add_row(
                *(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells),
                style="" if row.columns[1] == PUBLISHED else "yellow",
            )
        return table

    def _hidden_columns(self, rows: list[Row]) -> set[str]:
        """Return titles of columns without room, and of outcomes that are all the same."""
        wide = self._console.width >= _WIDE
        if all(row.columns[1] == PUBLISHED for row in rows):
            return {"outcome"} if wide else {"outcome", "source"}
        return set() if wide else {"engine", *_NUMBERS}


RowWriter = JsonRows | PlainRows | LiveTable
