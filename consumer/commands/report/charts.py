"""Geometry of plots in per cent of their area, so that they may have any width."""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from msgspec import Struct

from consumer.commands.report.aggregate import BUCKETS

_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
_MONTHS_MS: Final = 28 * _DAY_MS
_MAX_TIME_TICKS: Final = 5
_MAX_DOUBLINGS: Final = 7
_TAG: Final = 6.5  # Height of the number at the end of a line, in per cent.

FormatValue = Callable[[float | None], str]


class Tick(Struct, frozen=True):
    """A mark on an axis: its place in per cent, its text, and a second line of text."""

    at: float
    text: str
    below: str = ""


class Axis(Struct, frozen=True):
    """A range of values with its marks."""

    low: float
    high: float
    ticks: list[Tick]

    def place(self, value: float) -> float:
        """Return where on the axis a value lies, in per cent, at most at its ends."""
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))


class Column(Struct, frozen=True):
    """A bucket on the x axis: its low end, the x of its value, its high end, and its name."""

    low: float
    middle: float
    high: float
    title: str


class Value(Struct, frozen=True):
    """A value of a series in a column; `few` if it comes from few requests."""

    y: float
    few: bool


class PlotLine(Struct, frozen=True):
    """The values of a series as SVG paths in a view box of 1000 by 1000.

    Attributes:
        number: of the series, from 1.
        path: connects neighbours that both come from enough requests.
        faint: connects all other neighbours.
        dots: values without a neighbour, as strokes of length zero.
        end: height of the last value, per cent from the top.

    """

    number: int
    path: str
    faint: str
    dots: str
    end: float


class Slot(Struct, frozen=True):
    """What a pointer on a column shows: the name of the column and the value of each line."""

    left: float
    width: float
    title: str
    texts: list[str]


class LineChart(Struct, frozen=True):
    """Lines, one per series.

    Attributes:
        x: horizontal axis.
        y: vertical axis.
        lines: the series with a value.
        missing: numbers of the series without a value.
        tags: series number and height, per cent from the top, of each line's tag.
        overall: each line's value over all columns.
        slots: texts that a pointer shows, one for each column.

    """

    x: Axis
    y: Axis
    lines: list[PlotLine]
    missing: list[int]
    tags: list[tuple[int, float]]
    overall: list[str]
    slots: list[Slot]


def line_chart(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Value | None]],
    overall: Sequence[Value | None],
    x: Axis,
    y: Axis,
    format_value: FormatValue,
) -> LineChart:
    """Draw the values of each series, a row, in each column; None makes a gap.

    At least one value is not None.
    """
    drawn = [number for number, row in enumerate(rows, 1) if any(row)]
    lines = [_line(number, rows[number - 1], columns, x, y) for number in drawn]
    slots = []
    for place, column in enumerate(columns):
        left = x.place(column.low)
        texts = [_text(rows[number - 1][place], format_value) for number in drawn]
        slots.append(Slot(left, x.place(column.high) - left, column.title, texts))
    return LineChart(
        x,
        y,
        lines,
        [number for number in range(1, len(rows) + 1) if number not in drawn],
        _tags(lines),
        [_text(overall[number - 1], format_value) for number in drawn],
        slots,
    )


def _text(value: Value | None, format_value: FormatValue) -> str:
    return format_value(None if value is None else value.y)


def linear_axis(low: float, highest: float, steps: int = 4) -> Axis:
    """Return an axis from `low` to a round number that is at least `highest`."""
    min_step = max(highest - low, 0.1) / steps
    unit = 10.0 ** math.floor(math.log10(min_step))
    step = next(unit * size for size in (1, 2, 2.5, 5, 10) if unit * size >= min_step)
    count = math.ceil((highest - low) / step) or 1
    ticks = [Tick(100 * n / count, f"{low + step * n:g}") for n in range(count + 1)]
    return Axis(low, low + step * count, ticks)


def percent_axis() -> Axis:
    """Return the axis of shares from 0 to 1."""
    return Axis(0, 1, [Tick(at, f"{at}%") for at in (0, 25, 50, 75, 100)])


def doubling_axis(highest: int) -> Axis:
    """Return a logarithmic axis (of base 2) from 1 to at least `highest`."""
    doublings = max(1, math.ceil(math.log2(highest)))
    every = math.ceil(doublings / _MAX_DOUBLINGS)
    ticks = [Tick(100 * n / doublings, f"{1 << n:,}") for n in range(0, doublings + 1, every)]
    return Axis(0, doublings, ticks)


def time_axis(first_ms: int, end_ms: int) -> Axis:
    """Return an axis of UTC times."""
    span = end_ms - first_ms
    longest = BUCKETS[-1] * math.ceil(span / BUCKETS[-1] / _MAX_TIME_TICKS)
    step = next((one for one in BUCKETS if span / one <= _MAX_TIME_TICKS), longest)
    axis = Axis(first_ms, end_ms, [])
    last_date = ""
    for time in range(-(-first_ms // step) * step, end_ms, step):
        moment = datetime.fromtimestamp(time // 1000, UTC)
        date = f"{moment:%d %b}" if step < _MONTHS_MS else f"{moment:%b %Y}"
        clock = f"{moment:%H:%M:%S}" if step < _MINUTE_MS else f"{moment:%H:%M}"
        if step < _DAY_MS:
            tick = Tick(axis.place(time), clock, date if date != last_date else "")
        else:
            tick = Tick(axis.place(time), date)
        axis.ticks.append(tick)
        last_date = date
    return axis


def _line(
    number: int, row: Sequence[Value | None], columns: Sequence[Column], x: Axis, y: Axis
) -> PlotLine:
    def at(place: int, value: Value) -> str:
        right, up = x.place(columns[place].middle), y.place(value.y)
        return f"{10 * right:.0f} {1000 - 10 * up:.0f}"

    paths = {False: "", True: ""}  # By whether they are faint.
    ends: dict[bool, int] = {}
    for place, (before, value) in enumerate(pairwise(row), 1):
        if before is not None and value is not None:
            faint = before.few or value.few
            begin = "" if ends.get(faint) == place - 1 else f"M{at(place - 1, before)}"
            paths[faint] += f"{begin}L{at(place, value)}"
            ends[faint] = place
    padded = (None, *row, None)
    dots = "".join(
        f"M{at(place, value)}h0"
        for place, value in enumerate(row)
        if value is not None and padded[place] is None and padded[place + 2] is None
    )
    last = next(value for value in reversed(row) if value is not None)
    return PlotLine(number, paths[False], paths[True], dots, 100 - y.place(last.y))


def _tags(lines: Iterable[PlotLine]) -> list[tuple[int, float]]:
    """Return each line's number and the height of its tag; no two tags overlap."""
    ends = sorted((one.end, one.number) for one in lines)
    tags: list[tuple[int, float]] = []
    for place, (end, number) in enumerate(ends):
        lowest = 100 - _TAG * (len(ends) - 1 - place)  # Leaves room for the tags below.
        highest = tags[-1][1] + _TAG if tags else 0.0
        tags.append((number, max(highest, min(end, lowest))))
    return tags
