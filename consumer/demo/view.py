"""What the demo shows: a live table in a terminal, plain lines elsewhere, a summary at the end.

Everything here is fed and read from one thread. Nothing writes to a terminal that is not one: not a
single control code goes into a pipe or a file.
"""

import io
import math
from collections import Counter, deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consumer.demo.fleet import Expected, FleetMessage, Label, OutcomeReason
from schemas import BadPayloadReason, DeadLetter, PublishedRecord, RequestOutcome

_LIVE_SECONDS: Final = 0.25
_PLAIN_SECONDS: Final = 2.0
_PACE_SECONDS: Final = 3.0
_PLAIN_WIDTH: Final = 80
_ROOMY_WIDTH: Final = 100

IDLE_TIMEOUT: Final = "5s"
"""How long the service waits for what never comes; the summary names it."""


def console_for(file: TextIO) -> Console:
    """Return a console that colours terminals and keeps everything else plain.

    The variables that force colours (FORCE_COLOR and its kin) are overruled. What the encoding of
    the file cannot say becomes a question mark.
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


def say(console: Console, line: str) -> None:
    """Print a line as it is, with whatever is not printable replaced."""
    clean = "".join(char if char.isprintable() else "?" for char in line)
    console.print(clean, markup=False, highlight=False, emoji=False, soft_wrap=True)


# --- Truth: what was sent against what came out


class Truth:
    """Compares what was sent with what came out, in any order, in bounded memory.

    Attributes:
        requests: requests sent in full, by outcome and reason.
        matched: records that came and say what was expected.
        wrong: number of records that differ, are not expected or came twice.
        complaints: the first of the wrong ones, in words.
        dead_letters: dead letters that must come, by reason.

    """

    _COMPLAINTS: Final = 10
    _REMEMBERED: Final = 50_000

    def __init__(self) -> None:
        self.requests: Counter[tuple[RequestOutcome, OutcomeReason | None]] = Counter()
        self.matched = 0
        self.wrong = 0
        self.complaints: list[str] = []
        self.dead_letters: Counter[str] = Counter()
        self._awaited: dict[str, Expected] = {}
        self._early: dict[str, PublishedRecord] = {}
        # A demo may run for days: settled requests are forgotten after a while.
        self._settled: dict[str, bool] = {}
        self._settled_order: deque[str] = deque()

    def sent(self, message: FleetMessage) -> None:
        """Take note of a message that was produced."""
        if isinstance(message.reason, BadPayloadReason):
            self.dead_letters[message.reason] += 1
        if (expected := message.settles) is None:
            return
        self.requests[expected.outcome, expected.reason] += 1
        if expected.outcome is RequestOutcome.MALFORMED_STATS and expected.reason is not None:
            self.dead_letters[expected.reason] += 1
        early = self._early.pop(expected.request_id, None)
        if expected.record is None:
            self._settle(expected.request_id, published=False)
            if early is not None:
                self._complain(f"{expected.kind}: published, but {expected.outcome} was expected")
        elif early is not None:
            self._compare(expected, early)
        else:
            self._awaited[expected.request_id] = expected

    def published(self, record: PublishedRecord) -> None:
        """Take note of a record that was read from the output topic."""
        request_id = str(record.request_id)
        if (expected := self._awaited.pop(request_id, None)) is not None:
            self._compare(expected, record)
        elif request_id in self._settled:
            again = "twice" if self._settled[request_id] else "without numbers to publish"
            self._complain(f"request {request_id}: published {again}")
        elif request_id in self._early:
            self._complain(f"request {request_id}: published twice")
        else:
            self._early[request_id] = record

    def missing(self) -> int:
        """Count the records that should be there by now."""
        return sum(not expected.after_timeout for expected in self._awaited.values())

    def waiting(self) -> int:
        """Count the records that the service publishes only after its idle timeout."""
        return len(self._awaited) - self.missing()

    def unknown(self) -> int:
        """Count the records of requests that were not sent in full."""
        return len(self._early)

    def to_publish(self) -> int:
        """Count the records that must have come of what was sent, but those of `waiting`."""
        return self.requests[RequestOutcome.PUBLISHED, None] - self.waiting()

    def _compare(self, expected: Expected, record: PublishedRecord) -> None:
        self._settle(expected.request_id, published=True)
        if found := differences(expected, record):
            self._complain(f"{expected.kind}, request {expected.request_id}: {'; '.join(found)}")
        else:
            self.matched += 1

    def _settle(self, request_id: str, *, published: bool) -> None:
        self._settled[request_id] = published
        self._settled_order.append(request_id)
        if len(self._settled_order) > self._REMEMBERED:
            del self._settled[self._settled_order.popleft()]

    def _complain(self, complaint: str) -> None:
        self.wrong += 1
        if len(self.complaints) < self._COMPLAINTS:
            self.complaints.append(complaint)


def differences(expected: Expected, record: PublishedRecord) -> list[str]:
    """Say where the record is not what was expected."""
    if expected.record is None:
        return [f"published, but {expected.outcome} was expected"]
    wanted = asdict(expected.record) | {
        "response_id": expected.response_id,
        "model": expected.model,
        "prompt_tokens": expected.prompt_tokens,
        "streamed": expected.streamed,
        "stream_complete": expected.stream_complete,
    }
    return [
        f"{name} is {getattr(record, name)!r}, expected {value!r}"
        for name, value in wanted.items()
        if not _same(value, getattr(record, name))
    ]


def _same(wanted: object, found: object) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=1e-9)
    return wanted == found


# --- Tally: what is on show


class Acceptance(Struct):
    """Sums over the records of one engine and model; ratios are ratios of these sums."""

    requests: int = 0
    steps: int = 0
    accepted_in_steps: int = 0
    drafted: int = 0
    accepted_of_drafted: int = 0
    histogram: Counter[int] = field(default_factory=Counter)

    def add(self, record: PublishedRecord) -> None:
        """Add a record; a number that it does not have stays out of the ratio it belongs to."""
        self.requests += 1
        accepted = record.num_accepted_draft_tokens
        if accepted is not None and record.num_spec_steps is not None:
            self.steps += record.num_spec_steps
            self.accepted_in_steps += accepted
        drafted = record.num_draft_tokens if record.draft_tokens_measured else None
        if accepted is not None and drafted is not None:
            self.drafted += drafted
            self.accepted_of_drafted += accepted
        self.histogram.update(record.acceptance_histogram or {})

    @property
    def rate(self) -> float | None:
        """Accepted drafts by proposed drafts."""
        return self.accepted_of_drafted / self.drafted if self.drafted else None

    @property
    def mean(self) -> float | None:
        """Tokens per verify step, the bonus token included."""
        return 1 + self.accepted_in_steps / self.steps if self.steps else None


class Tally:
    """Counts of everything that went in and came out."""

    def __init__(self) -> None:
        self.messages: Counter[Label] = Counter()
        self.records: dict[tuple[str, str], Acceptance] = {}
        self.dead_letters: Counter[str] = Counter()
        self.unreadable = 0
        self.samples: dict[str, PublishedRecord] = {}

    def sent(self, message: FleetMessage) -> None:
        """Count a message that went in."""
        self.messages[message.label] += 1

    def published(self, record: PublishedRecord) -> None:
        """Count a record that came out, and keep the first of every engine."""
        self.samples.setdefault(record.engine, record)
        key = (record.engine, record.model or "unknown")
        self.records.setdefault(key, Acceptance()).add(record)

    def dead_letter(self, letter: DeadLetter) -> None:
        """Count a dead letter."""
        self.dead_letters[letter.reason or letter.outcome] += 1

    def total(self) -> Acceptance:
        """Return the sums over all engines and models."""
        total = Acceptance()
        for acceptance in self.records.values():
            total.requests += acceptance.requests
            total.steps += acceptance.steps
            total.accepted_in_steps += acceptance.accepted_in_steps
            total.drafted += acceptance.drafted
            total.accepted_of_drafted += acceptance.accepted_of_drafted
            total.histogram.update(acceptance.histogram)
        return total


class _Pace:
    """Messages per second by label, over the last few seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, Counter[Label]]] = deque()

    def update(self, now: float, totals: Counter[Label]) -> None:
        self._marks.append((now, totals.copy()))
        while len(self._marks) > 2 and self._marks[1][0] <= now - _PACE_SECONDS:  # noqa: PLR2004
            self._marks.popleft()

    def of(self, label: Label) -> float:
        (since, before), (now, after) = self._marks[0], self._marks[-1]
        return (after[label] - before[label]) / (now - since) if now > since else 0.0

    def total(self) -> float:
        return sum(self.of(label) for label in self._marks[-1][1])


# --- The beginning


def show_introduction(
    console: Console, *, topic: str, outputs: Sequence[str], duration: float | None
) -> None:
    """Say what is about to be shown, and for how many seconds."""
    end = "" if duration is None else f"for {duration:g} s or "
    introduction = (
        f"A made-up fleet of engines logs to {topic} on a mock Kafka broker in this process; the "
        f"service publishes to {' and '.join(outputs)}. Runs {end}until Ctrl-C and keeps nothing. "
        "No records in the first seconds: the group forms and the first streams run."
    )
    console.print(Text(introduction))
    say(console, "")


# --- Views


class View(Protocol):
    """Shows the tally while the demo runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def update(self, now: float) -> None:
        """Show the tally as of now (seconds of a monotonic clock), if it is time to."""
        ...


def view_for(console: Console, tally: Tally, truth: Truth) -> View:
    """Return the live view for a terminal that can redraw, plain lines for everything else."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, tally, truth)
    return PlainView(console, tally)


class PlainView:
    """One line every two seconds."""

    def __init__(self, console: Console, tally: Tally) -> None:
        self._console = console
        self._tally = tally
        self._pace = _Pace()
        self._started: float | None = None
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def update(self, now: float) -> None:
        """Print a line, unless the last one is younger than two seconds."""
        if self._started is None:
            self._started, self._next = now, now + _PLAIN_SECONDS
            self._pace.update(now, self._tally.messages)
        if now < self._next:
            return
        self._next += _PLAIN_SECONDS
        self._pace.update(now, self._tally.messages)
        total = self._tally.total()
        say(
            self._console,
            f"{now - self._started:6.1f} s"
            f"  in {self._tally.messages.total()} messages ({self._pace.total():.0f}/s)"
            f"  out {total.requests} records"
            f"  acceptance rate {_decimal(total.rate, 3)}"
            f"  mean length {_decimal(total.mean, 2)}"
            f"  dead letters {self._tally.dead_letters.total()}",
        )


class LiveView:
    """Tables that are drawn again four times a second."""

    def __init__(self, console: Console, tally: Tally, truth: Truth) -> None:
        self._console = console
        self._tally = tally
        self._truth = truth
        self._pace = _Pace()
        self._started: float | None = None
        self._next = 0.0
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, traceback)

    def update(self, now: float) -> None:
        """Draw the tables again, unless that was just done."""
        if self._started is None:
            self._started = now
        if now < self._next:
            return
        self._next = now + _LIVE_SECONDS
        self._pace.update(now, self._tally.messages)
        self._live.update(self._tables(now - self._started), refresh=True)

    def _tables(self, elapsed: float) -> Group:
        expected = self._truth.matched + self._truth.missing()
        heading = Text(f"{elapsed:.0f} s   as expected {self._truth.matched} of {expected}   ")
        if self._truth.wrong:
            heading.append(f"wrong {self._truth.wrong}   ", style="bold red")
        heading.append("Ctrl-C ends", style="dim")
        beside = Table.grid(padding=(0, 4))
        beside.add_row(_messages_table(self._tally, self._pace), _dead_letters_table(self._tally))
        acceptance = _acceptance_table(self._tally, self._console)
        return Group(heading, acceptance, beside)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", caption_justify="left", box=SIMPLE_HEAD)


def _messages_table(tally: Tally, pace: _Pace) -> Table:
    table = _table("In")
    table.add_column("message")
    table.add_column("per second", justify="right")
    table.add_column("total", justify="right")
    for label in Label:
        table.add_row(label, f"{pace.of(label):.1f}", str(tally.messages[label]))
    table.add_section()
    table.add_row("all", f"{pace.total():.1f}", str(tally.messages.total()))
    return table


def _dead_letters_table(tally: Tally) -> Table:
    table = _table("Dead letters")
    table.add_column("reason")
    table.add_column("total", justify="right")
    for reason, count in sorted(tally.dead_letters.items()):
        table.add_row(reason, str(count))
    return table


def _acceptance_table(tally: Tally, console: Console) -> Table:
    table = _table("Out: acceptance records")
    if console.width < _ROOMY_WIDTH:
        table.padding = 0
    table.add_column("engine", no_wrap=True)
    table.add_column("model", no_wrap=True)
    for column in ("requests", "steps", "acceptance\nrate", "mean\nlength"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("accepted\nper step", no_wrap=True)
    for (engine, model), sums in sorted(tally.records.items()):
        table.add_row(
            engine,
            Text(model.rpartition("/")[2]),
            str(sums.requests),
            str(sums.steps),
            _decimal(sums.rate, 3),
            _decimal(sums.mean, 2),
            bar(sums.histogram, ascii_only=console.options.ascii_only),
        )
    if tally.records:  # An empty table is too narrow for it.
        table.caption = Text(_footnotes(tally))
    return table


def _footnotes(tally: Tally) -> str:
    notes = "Bars: verify steps by drafts accepted in them, 0, 1, 2, ... from the left."
    unrated = {
        engine
        for (engine, _), sums in tally.records.items()
        if sums.rate is None and not tally.samples[engine].draft_tokens_measured
    }
    for engine in sorted(unrated):
        notes += (
            f"\n{engine}: drafts nominal, not counted (draft_tokens_measured false), so no rate."
        )
    return notes


def bar(histogram: Counter[int], *, ascii_only: bool = False) -> str:
    """Draw one block per bucket, 0 accepted drafts at the left, as high as its share of steps."""
    blocks = "_.-:=+*#" if ascii_only else "▁▂▃▄▅▆▇█"
    if not histogram:
        return ""
    top = max(histogram.values())
    levels = (histogram[bucket] * (len(blocks) - 1) for bucket in range(max(histogram) + 1))
    return "".join(blocks[math.ceil(level / top)] for level in levels)


def _decimal(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


# --- The end


def show_samples(console: Console, tally: Tally) -> None:
    """Print one record of every engine, a member a line."""
    for engine, record in sorted(tally.samples.items()):
        say(console, "")
        say(console, f"A record of {engine}:")
        say(console, "{")
        members = msgspec.json.decode(msgspec.json.encode(record), type=dict[str, msgspec.Raw])
        lines = [f'  "{name}": {bytes(value).decode()}' for name, value in members.items()]
        for line in lines[:-1]:
            say(console, f"{line},")
        say(console, lines[-1])
        say(console, "}")


def show_summary(console: Console, tally: Tally, truth: Truth) -> None:
    """Print what went in, what came out, and whether that is what had to."""
    say(console, "")
    console.print(_acceptance_table(tally, console))
    say(console, "")
    table = _table("Summary")
    table.add_column("")
    table.add_column("count", justify="right")
    table.add_column("expected", justify="right")
    _add_counts(table, tally, truth)
    console.print(table)
    for line in _verdict(tally, truth):
        say(console, line)


def _verdict(tally: Tally, truth: Truth) -> list[str]:
    lines = []
    if wrong := truth.wrong + truth.unknown() + tally.unreadable:
        lines = [f"Not as expected: {wrong}", *(f"  {one}" for one in truth.complaints)]
    if truth.missing():
        lines.append(f"Not published before the demo ended: {truth.missing()}")
    if tally.dead_letters != truth.dead_letters:
        lines.append("Dead letters are not as expected.")
    return lines or ["Every record and every dead letter is as expected."]


def _add_counts(table: Table, tally: Tally, truth: Truth) -> None:
    table.add_row("messages in", str(tally.messages.total()), "")
    table.add_section()
    table.add_row("records out", str(tally.total().requests), str(truth.to_publish()))
    table.add_row("  as expected", str(truth.matched), "")
    table.add_row("  missing", str(truth.missing()), "0")
    table.add_row("  wrong", str(truth.wrong), "0")
    table.add_row("  of requests not sent in full", str(truth.unknown()), "0")
    table.add_row("  unreadable", str(tally.unreadable), "0")
    if waiting := truth.waiting():
        table.add_row(f"not due yet: chunk lost, idle timeout {IDLE_TIMEOUT}", str(waiting), "")
    table.add_section()
    for reason in sorted(tally.dead_letters.keys() | truth.dead_letters.keys()):
        count, expected = tally.dead_letters[reason], truth.dead_letters[reason]
        table.add_row(f"dead letter: {reason}", str(count), str(expected))
    table.add_section()
    for (outcome, why), count in sorted(truth.requests.items(), key=str):
        if outcome is not RequestOutcome.PUBLISHED:
            name = outcome if why is None else f"{outcome} ({why})"
            table.add_row(f"without record: {name}", "", str(count))
