"""The downstream topics as they come: a table in a terminal, plain lines elsewhere, or JSON."""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, TextIO

import msgspec
from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consumer.commands.explain.explanation import outcome_text
from consumer.commands.terminal import clean
from consumer.core.message import Message
from consumer.core.times import milliseconds, rfc3339
from consumer.settings.settings import Settings
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.outcome_reporter import LETTER_OUTCOMES
from schemas import DeadLetter, MessageOutcome, PublishedRecord, RequestOutcome

PUBLISHED: Final = RequestOutcome.PUBLISHED.value
LETTERS: Final = tuple(
    sorted(
        outcome.value
        for outcome in (MessageOutcome.BAD_PAYLOAD, MessageOutcome.SKIPPED, *LETTER_OUTCOMES)
    )
)
_REDRAW_S: Final = 0.25
_AROUND_TABLE: Final = 6  # Lines of a terminal that rows cannot have.
_WIDE: Final = 130  # Columns from which there is room for where a record came from.
# Title, width in plain lines, and whether it gives way where a terminal is narrow.
_COLUMNS: Final = (
    ("time, UTC", 9, False),
    ("outcome", 34, True),
    ("engine", 12, False),
    ("model", 24, True),
    ("request", 36, True),
    ("rate", 5, False),
    ("length", 6, False),
    ("accepted", 13, False),
    ("steps", 6, False),
    ("source", 20, False),
)
_NUMBERS: Final = ("rate", "length", "accepted", "steps")

_record: Final = msgspec.json.Decoder(PublishedRecord).decode
_letter: Final = msgspec.json.Decoder(DeadLetter).decode


class Wanted(Struct, frozen=True):
    """What to show; what is empty lets all pass."""

    outcomes: frozenset[str]
    models: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()


class Row(Struct, frozen=True):
    """One record or letter: its columns, and itself as JSON without any payload."""

    columns: tuple[str, ...]
    content: dict[str, Any]


def row_of(message: Message, settings: Settings, wanted: Wanted) -> Row | None:
    """Return a row for a message of either output topic; None if it is not wanted or not ours."""
    value = message.value()
    if value is None:  # The notice of a redrive.
        return None
    try:
        if message.topic() == settings.dead_letter_topic:
            return _row_of_letter(_letter(value), message, wanted)
        return _row_of_record(_record(value), wanted)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _row_of_record(record: PublishedRecord, wanted: Wanted) -> Row | None:
    if (
        PUBLISHED not in wanted.outcomes
        or (wanted.models and record.model not in wanted.models)
        or (wanted.engines and record.engine not in wanted.engines)
    ):
        return None
    why = record.incomplete_reason
    columns = (
        _time(record.completed_at),
        PUBLISHED if why is None else outcome_text(PUBLISHED, why),
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


def _row_of_letter(letter: DeadLetter, message: Message, wanted: Wanted) -> Row | None:
    if letter.outcome not in wanted.outcomes or (
        wanted.models and letter.model not in wanted.models
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
    content = msgspec.to_builtins(msgspec.structs.replace(letter, value_base64=None))
    return Row(columns, content)


def _time(text: str | None) -> str:
    """Return the time of day, which is what a person follows."""
    return "-" if text is None else text[11:19]


def _number(value: float | None, places: int = 0) -> str:
    return "-" if value is None else f"{value:.{places}f}"


class _Lines:
    """Lines on a stream, each at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def refresh(self) -> None:
        """Do nothing: what was shown is written."""

    def close(self) -> None:
        """Do nothing."""

    def _write_line(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


class JsonView(_Lines):
    """One JSON object a line."""

    def show(self, row: Row) -> None:
        """Write a row."""
        self._write_line(msgspec.json.encode(row.content).decode())


class PlainView(_Lines):
    """Aligned lines without an end."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._write(title for title, _, _ in _COLUMNS)

    def show(self, row: Row) -> None:
        """Write a row."""
        self._write(row.columns)

    def _write(self, columns: Iterable[str]) -> None:
        *texts, source = map(clean, columns)
        cells = (
            text.rjust(width) if title in _NUMBERS else _fitted(text, width)
            for text, (title, width, _) in zip(texts, _COLUMNS, strict=False)
        )
        self._write_line("  ".join([*cells, source]))


def _fitted(text: str, width: int) -> str:
    """Return a text of exactly this width."""
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1]}…"


class LiveView:
    """A table of the latest rows, as many as the terminal is high, drawn again and again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: deque[Row] = deque(maxlen=500)
        self._total = 0
        self._clock = SystemClock()
        self._drawn = -_REDRAW_S
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def show(self, row: Row) -> None:
        """Take a row for the next drawing."""
        self._rows.append(row)
        self._total += 1
        self.refresh()

    def refresh(self) -> None:
        """Draw the table again, unless that was just done."""
        now = self._clock.monotonic()
        if now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._live.update(self._table(), refresh=True)

    def close(self) -> None:
        """Draw the table for the last time, and leave it there."""
        self._live.update(self._table(), refresh=True)
        self._live.stop()

    def _table(self) -> Table:
        table = Table(
            box=SIMPLE_HEAD,
            caption=f"{self._total} shown   Ctrl-C ends",
            caption_justify="left",
            padding=(0, 1, 0, 0),
        )
        height = max(self._console.height - _AROUND_TABLE, 1)
        rows = list(self._rows)[-height:]
        shown = self._shown(rows)
        for title, width, gives_way in shown:
            number = _COLUMNS.index((title, width, gives_way))
            longest = max((len(row.columns[number]) for row in rows), default=0)
            table.add_column(
                title,
                justify="right" if title in _NUMBERS else "left",
                no_wrap=not gives_way,
                min_width=None if gives_way else max(longest, len(title)),
            )
        for row in rows:
            style = "" if row.columns[1] == PUBLISHED else "yellow"
            cells = dict(zip(_COLUMNS, row.columns, strict=True))
            texts = (clean(cells[column]) for column in shown)
            table.add_row(
                *(Text(text, no_wrap=True, overflow="ellipsis") for text in texts), style=style
            )
        return table

    def _shown(self, rows: list[Row]) -> list[tuple[str, int, bool]]:
        """Return the columns for which there is room, without outcomes that all are the same."""
        wide = self._console.width >= _WIDE
        if all(row.columns[1] == PUBLISHED for row in rows):
            left_out = {"outcome"} if wide else {"outcome", "source"}
        else:
            left_out = set() if wide else {"engine", *_NUMBERS}
        return [column for column in _COLUMNS if column[0] not in left_out]


View = JsonView | PlainView | LiveView
