"""The report as one HTML page without scripts and external files, readable on a phone.

Plots are SVG: their area takes any width, while texts and strokes keep their size. The template
escapes what producers choose, such as names of models, and the policy of the page forbids scripts
and all styles but its own.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import log2
from typing import Final

from jinja2 import Environment, StrictUndefined, Template
from msgspec import Struct

from consumer.commands.report.aggregate import (
    FEW_REQUESTS,
    FEW_STEPS,
    HISTOGRAM_END,
    MAX_SLOW_REQUESTS,
)
from consumer.commands.report.charts import (
    Axis,
    Column,
    FormatValue,
    LineChart,
    Value,
    doubling_axis,
    line_chart,
    linear_axis,
    percent_axis,
    time_axis,
)
from consumer.commands.report.sums import Report, Series
from consumer.commands.terminal import printable
from consumer.core.times import LAST_MS, rfc3339
from consumer.telemetry.outcome_counts import AcceptanceSums, merged

_FEW_STEPS_AT: Final = 100  # In all streams at one position.
_NONE: Final = AcceptanceSums()
_SHOWN: Final = 8  # Items of a list; the page folds the others.
_MIN_SHARE: Final = 0.005
_FIRST_SHORT: Final = 10_000
_UNITS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_UNKNOWN: Final = "\N{EN DASH}"


class Bar(Struct, frozen=True):
    """A bar of a histogram.

    Attributes:
        left: left edge, in per cent.
        width: width, in per cent.
        height: height, in per cent of the highest bar of all histograms.
        share: share of the verify steps, from 0 to 1.
        text: number of accepted drafts.

    """

    left: float
    width: float
    height: float
    share: float
    text: str


class HistogramChart(Struct, frozen=True):
    """The verify steps of a series by number of accepted drafts."""

    number: int
    series: Series
    steps: int
    bars: list[Bar]


def render(report: Report, source: str) -> str:
    """Return the page.

    Args:
        report: the content.
        source: name of the topic or files, for the reader.

    """
    style = _file("page.css")
    page = _template().render(
        report=report,
        source=source,
        style=style,
        style_hash=b64encode(sha256(style.encode()).digest()).decode(),
        total=merged(one.total for one in report.series),
        lengths=_over_time(report, _length_of, _axis_of_lengths, _length),
        rates=_over_time(report, _rate_of, lambda _highest: percent_axis(), _percent),
        histograms=_histograms(report.series),
        along=_along(report.series),
        longest=max(
            (one.sums.mean_acceptance_length or 0.0 for one in report.drafters), default=0.0
        ),
        max_slow=MAX_SLOW_REQUESTS,
        shown=_SHOWN,
        few=FEW_REQUESTS,
        few_steps=_FEW_STEPS_AT,
        few_of_request=FEW_STEPS,
    )
    return page.lstrip()


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters.update(count=_count, mean=_length, percent=_percent, moment=_moment)
    return environment.from_string(_file("page.html"))


def _printable(value: object) -> object:
    """Replace control characters in names, which producers choose; markup is the page's own."""
    return printable(value) if type(value) is str else value


def _file(name: str) -> str:
    return files("consumer.commands.report").joinpath(name).read_text(encoding="utf-8")


def _over_time(
    report: Report,
    ratio: Callable[[AcceptanceSums], Value | None],
    axis: Callable[[float], Axis],
    format_value: FormatValue,
) -> LineChart | None:
    """Return the plot of a ratio over time; None if no bucket has a value."""
    if report.first_ms is None or report.last_ms is None:
        return None
    width = report.bucket_ms
    first = report.first_ms - report.first_ms % width
    starts = range(first, report.last_ms + 1, width)
    rows = [
        [ratio(series.over_time.get(start, _NONE)) for start in starts] for series in report.series
    ]
    values = [value.y for row in rows for value in row if value is not None]
    if not values:
        return None
    columns = [
        Column(start, start + width / 2, start + width, _title(start, report.series))
        for start in starts
    ]
    overall = [ratio(one.total) for one in report.series]
    x = time_axis(first, min(starts[-1] + width, LAST_MS))
    return line_chart(columns, rows, overall, x, axis(max(values)), format_value)


def _length_of(sums: AcceptanceSums) -> Value | None:
    length = sums.mean_acceptance_length
    return None if length is None else Value(length, sums.with_steps < FEW_REQUESTS)


def _rate_of(sums: AcceptanceSums) -> Value | None:
    rate = sums.draft_acceptance_rate
    return None if rate is None else Value(rate, sums.with_drafts < FEW_REQUESTS)


def _title(start: int, series: Iterable[Series]) -> str:
    requests = merged(one.over_time.get(start, _NONE) for one in series).requests
    return f"{_moment(start)}: {_count(requests)} requests"


def _along(series: Sequence[Series]) -> LineChart | None:
    """Return the plot by position of the verify step in its stream; None without steps."""
    longest = max((one.step_ranges for one in series), key=len, default=[])
    if not longest:
        return None
    columns = [
        Column(
            log2(at.first - 0.5),
            (log2(at.first) + log2(at.last)) / 2,
            log2(at.last + 0.5),
            f"step {at.first:,}" if at.first == at.last else f"steps {at.first:,} to {at.last:,}",
        )
        for at in longest
    ]
    rows = [
        [Value(1 + at.accepted / at.steps, at.steps < _FEW_STEPS_AT) for at in one.step_ranges]
        + [None] * (len(longest) - len(one.step_ranges))
        for one in series
    ]
    highest = max(value.y for row in rows for value in row if value is not None)
    overall = [_length_along(one) for one in series]
    x = doubling_axis(longest[-1].last)
    return line_chart(columns, rows, overall, x, _axis_of_lengths(highest), _length)


def _length_along(series: Series) -> Value | None:
    steps = sum(at.steps for at in series.step_ranges)
    accepted = sum(at.accepted for at in series.step_ranges)
    return Value(1 + accepted / steps, steps < _FEW_STEPS_AT) if steps else None


def _histograms(series: Sequence[Series]) -> list[HistogramChart]:
    shares = {
        number: _shares(one.histogram) for number, one in enumerate(series, 1) if one.histogram
    }
    highest = max((share for one in shares.values() for share in one), default=0.0)
    return [
        HistogramChart(
            number,
            series[number - 1],
            sum(series[number - 1].histogram.values()),
            [
                Bar(
                    left=100 * place / len(found),
                    width=100 / len(found),
                    height=100 * share / highest if highest else 0.0,
                    share=share,
                    text=f"{place}+" if place == HISTOGRAM_END else str(place),
                )
                for place, share in enumerate(found)
            ],
        )
        for number, found in shares.items()
    ]


def _shares(histogram: dict[int, int]) -> list[float]:
    steps = sum(histogram.values()) or 1
    return [histogram.get(accepted, 0) / steps for accepted in range(max(histogram) + 1)]


def _axis_of_lengths(highest: float) -> Axis:
    return linear_axis(1.0, highest)


def _length(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    if 0 < value < _MIN_SHARE:
        return "<1%"
    if 1 - _MIN_SHARE < value < 1:
        return ">99%"
    return f"{100 * value:.0f}%"


def _count(value: int) -> str:
    """Write a count with at most four digits."""
    if value < _FIRST_SHORT:
        return f"{value:,}"
    size, unit = next(one for one in _UNITS if value >= one[0])
    return f"{value / size:,.3g} {unit}" if value < 1000 * size else f"{value / size:,.0f} {unit}"


def _moment(ms: int | None) -> str:
    """Write a UTC time, without seconds if they are zero."""
    text = rfc3339(ms)
    return _UNKNOWN if text is None else text[:19].replace("T", " ").removesuffix(":00")
