"""What the demo prints: tables on a terminal, plain lines elsewhere, and a summary at the end.

A pipe or a file never gets a control code. All functions are called from one thread.
"""

import io
import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, Self, TextIO

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consumer.demo.fleet import MessageKind
from consumer.demo.totals import DemoTotals
from schemas import RequestOutcome

_TABLES_INTERVAL_S: Final = 0.25
_LINES_INTERVAL_S: Final = 2.0
_RATE_WINDOW_S: Final = 3.0
_PLAIN_WIDTH: Final = 80
_ROOMY_WIDTH: Final = 100

IDLE_TIMEOUT: Final = "5s"
"""The service's idle timeout; the summary names it."""


def console_for(file: TextIO) -> Console:
    """Return a console that colours terminals and keeps everything else plain.

    Variables that force colours, such as FORCE_COLOR, have no effect. Characters that the file's
    encoding lacks become question marks.
    """
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(errors="replace")
    if file.isatty():
        return Console(file=file)
    return Console(
        file=file,
        force_terminal=False,
        force_interactive=False,
        force_jupyter=False,
        color_system=None,
        width=_PLAIN_WIDTH,
    )


def print_line(console: Console, line: str) -> None:
    """Print a line unfolded and without markup; replace control characters."""
    clean = "".join(char if char.isprintable() else "?" for char in line)
    console.print(clean, markup=False, highlight=False, emoji=False, soft_wrap=True)


def show_introduction(
    console: Console, *, topic: str, outputs: Sequence[str], duration: float | None
) -> None:
    """Print what the demo runs, and for how many seconds."""
    end = "" if duration is None else f"for {duration:g} s or "
    introduction = (
        f"A simulated fleet of engines logs to {topic} on a mock Kafka broker in this process; the "
        f"service publishes to {' and '.join(outputs)}. Runs {end}until Ctrl-C and keeps nothing. "
        "The first records take a few seconds: the group forms and the first streams run."
    )
    console.print(Text(introduction))
    print_line(console, "")


# --- While the demo runs


class ProgressView:
    """Shows the totals while the demo runs.

    A terminal gets tables that are drawn again four times a second; a pipe, a file or a terminal
    that cannot redraw gets a line every two seconds.
    """

    def __init__(self, console: Console, totals: DemoTotals) -> None:
        self._console = console
        self._totals = totals
        self._rates = _MessageRates()
        self._started: float | None = None
        self._next = 0.0
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, now: float) -> None:
        """Show the totals as of now (seconds of a monotonic clock), if an interval is over."""
        interval = _LINES_INTERVAL_S if self._live is None else _TABLES_INTERVAL_S
        if self._started is None:
            self._started, self._next = now, now + interval
            self._rates.update(now, self._totals.messages)
        if now < self._next:
            return
        self._next += interval
        self._rates.update(now, self._totals.messages)
        if self._live is None:
            self._print_line(now - self._started)
        else:
            self._live.update(self.tables(now - self._started), refresh=True)

    def _print_line(self, elapsed: float) -> None:
        totals, sums = self._totals, self._totals.sums
        print_line(
            self._console,
            f"{elapsed:6.1f} s"
            f"  in {totals.messages.total()} messages ({self._rates.total():.0f}/s)"
            f"  out {sums.requests} records"
            f"  acceptance rate {_decimal(sums.draft_acceptance_rate, 3)}"
            f"  mean length {_decimal(sums.mean_acceptance_length, 2)}"
            f"  dead letters {totals.dead_letters.total()}",
        )

    def tables(self, elapsed: float) -> Group:
        """Return the tables, after so many seconds."""
        totals = self._totals
        heading = Text(
            f"{elapsed:.0f} s   records: {totals.arrived + totals.missing} expected, "
            f"{totals.arrived} arrived   "
        )
        heading.append("Ctrl-C ends", style="dim")
        beside = Table.grid(padding=(0, 4))
        beside.add_row(self._messages_table(), _dead_letters_table(totals))
        return Group(heading, _acceptance_table(totals, self._console), beside)

    def _messages_table(self) -> Table:
        table = _table("In", "message", "per second", "total")
        for kind in MessageKind:
            total = self._totals.messages[kind]
            table.add_row(kind, f"{self._rates.of(kind):.1f}", str(total))
        table.add_section()
        total = self._totals.messages.total()
        table.add_row("all", f"{self._rates.total():.1f}", str(total))
        return table


class _MessageRates:
    """Messages per second by kind, over the last few seconds."""

    def __init__(self) -> None:
        self._totals: deque[tuple[float, Counter[MessageKind]]] = deque()

    def update(self, now: float, totals: Counter[MessageKind]) -> None:
        self._totals.append((now, totals.copy()))
        while len(self._totals) > 2 and self._totals[1][0] <= now - _RATE_WINDOW_S:  # noqa: PLR2004
            self._totals.popleft()

    def of(self, kind: MessageKind) -> float:
        (since, before), (now, after) = self._totals[0], self._totals[-1]
        return (after[kind] - before[kind]) / (now - since) if now > since else 0.0

    def total(self) -> float:
        return sum(map(self.of, MessageKind))


def _table(title: str, name: str, *numbers: str) -> Table:
    """Return a table of names and numbers."""
    table = Table(title=title, title_justify="left", caption_justify="left", box=SIMPLE_HEAD)
    table.add_column(name, no_wrap=True)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table


def _dead_letters_table(totals: DemoTotals) -> Table:
    table = _table("Dead letters", "reason", "total")
    for reason, count in sorted(totals.dead_letters.items()):
        table.add_row(reason, str(count))
    return table


def _acceptance_table(totals: DemoTotals, console: Console) -> Table:
    table = _table("Out: acceptance records", "engine")
    if console.width < _ROOMY_WIDTH:
        table.padding = 0
    table.add_column("model", no_wrap=True)
    for column in ("requests", "steps", "acceptance\nrate", "mean\nlength"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("accepted\nper step", no_wrap=True)
    for (engine, model), acceptance in sorted(totals.acceptance.items()):
        sums = acceptance.sums
        table.add_row(
            engine,
            Text(model.rpartition("/")[2]),
            str(sums.requests),
            str(sums.verify_steps),
            _decimal(sums.draft_acceptance_rate, 3),
            _decimal(sums.mean_acceptance_length, 2),
            bar(acceptance.accepted_per_step.counts, ascii_only=console.options.ascii_only),
        )
    if totals.acceptance:  # An empty table is too narrow for it.
        table.caption = Text(_footnotes(totals))
    return table


def _footnotes(totals: DemoTotals) -> str:
    notes = ["Bars: verify steps by accepted draft tokens: 0, 1, 2, ... from the left."]
    notes += [
        f"{engine}: its draft count is nominal (draft_tokens_measured false), so no rate."
        for engine, record in sorted(totals.samples.items())
        if not record.draft_tokens_measured
    ]
    return "\n".join(notes)


def bar(steps: Sequence[int], *, ascii_only: bool = False) -> str:
    """Draw a block for 0, 1, 2, ... accepted draft tokens, as high as its share of the steps."""
    blocks = "_.-:=+*#" if ascii_only else "▁▂▃▄▅▆▇█"
    top = max(steps) or 1
    drawn = "".join(blocks[math.ceil(count * (len(blocks) - 1) / top)] for count in steps)
    return drawn[: max((index + 1 for index, count in enumerate(steps) if count), default=0)]


def _decimal(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


# --- At the end


def show_samples(console: Console, totals: DemoTotals) -> None:
    """Print one record of every engine as JSON, one member per line."""
    for engine, record in sorted(totals.samples.items()):
        members = msgspec.json.decode(msgspec.json.encode(record), type=dict[str, msgspec.Raw])
        lines = (f'  "{name}": {bytes(value).decode()}' for name, value in members.items())
        for line in ("", f"A record of {engine}:", "{", *",\n".join(lines).split("\n"), "}"):
            print_line(console, line)


def show_summary(console: Console, totals: DemoTotals) -> None:
    """Print what was sent, what arrived, and whether that is what was expected."""
    print_line(console, "")
    console.print(_acceptance_table(totals, console))
    print_line(console, "")
    table = _table("Summary", "", "count", "expected")
    table.add_row("messages sent", str(totals.messages.total()), "")
    table.add_section()
    table.add_row("records", str(totals.arrived), str(totals.arrived + totals.missing))
    table.add_row("  missing", str(totals.missing), "0")
    table.add_row("  unexpected", str(totals.unexpected), "0")
    table.add_row("  unreadable", str(totals.unreadable), "0")
    if totals.not_due:
        name = f"  not due yet: chunk lost, idle timeout {IDLE_TIMEOUT}"
        table.add_row(name, "", str(totals.not_due))
    table.add_section()
    for reason in sorted(totals.dead_letters.keys() | totals.expected_dead_letters.keys()):
        count, expected = totals.dead_letters[reason], totals.expected_dead_letters[reason]
        table.add_row(f"dead letter: {reason}", str(count), str(expected))
    table.add_section()
    for (outcome, why), count in sorted(totals.requests.items(), key=str):
        if outcome is not RequestOutcome.PUBLISHED:
            name = f"{outcome} ({why})" if why else outcome
            table.add_row(f"no record: {name}", "", str(count))
    console.print(table)
    for line in _verdict(totals):
        print_line(console, line)


def _verdict(totals: DemoTotals) -> list[str]:
    lines = []
    if totals.missing:
        lines.append(f"Missing records: {totals.missing}")
    if wrong := totals.unexpected + totals.unreadable:
        lines.append(f"Unexpected or unreadable outputs: {wrong}")
    if totals.dead_letters != totals.expected_dead_letters:
        lines.append("The dead letters are not the expected ones.")
    return lines or ["Every expected record and dead letter arrived, and no other."]
