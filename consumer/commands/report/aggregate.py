"""Sums over the records of a time range, collected in one pass and in bounded memory.

Rates and lengths are ratios of sums: a mean of ratios would favour short requests.
"""

from collections.abc import Iterable
from heapq import heappush, heappushpop
from itertools import pairwise
from typing import Final

import msgspec

from consumer.commands.report.sums import Drafter, Report, Series, SlowRequest, StepRange
from consumer.core.message import TIMESTAMP_NOT_AVAILABLE, Message
from consumer.core.times import milliseconds
from consumer.telemetry.outcome_counts import AcceptanceSums
from schemas import PublishedRecord, violated_identity
from schemas.record import SCHEMA_VERSION

MAX_BUCKETS: Final = 120  # A bucket is then three pixels wide on a phone.
MAX_SERIES: Final = 8
MAX_DRAFTERS: Final = 30
MAX_SLOW_REQUESTS: Final = 20
FEW_REQUESTS: Final = 10  # Below this, chance outweighs the draft model.
HISTOGRAM_END: Final = 16  # The last bar counts this many accepted drafts or more.
FEW_STEPS: Final = 10  # A request with fewer steps is not evidence.
_MAX_TRACKED: Final = 500  # Models of all engines; further ones are the rest.
_MAX_TRACKED_DRAFTERS: Final = 5_000
_MAX_FLEETS: Final = 20
_MAX_REMEMBERED: Final = 250_000  # Record ids in each of two sets.
_S: Final = 1_000
_H: Final = 3_600 * _S
_DAY: Final = 24 * _H
# Each is a multiple of the one before, so that buckets can be merged.
BUCKETS: Final = (
    *(_S, 5 * _S, 15 * _S, 30 * _S, 60 * _S, 300 * _S, 900 * _S, 1800 * _S),
    *(_H, 3 * _H, 6 * _H, 12 * _H, _DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY),
    *(3640 * _DAY, 36_400 * _DAY),
)
# Four edges per doubling, up to 114,688: steps differ most at the beginning of a stream.
_EDGES: Final = (0, 1, 2, 3, *((4 + part) << power for power in range(15) for part in range(4)))

_decode: Final = msgspec.json.Decoder(PublishedRecord).decode


def aggregate(
    messages: Iterable[Message], since_ms: int | None = None, until_ms: int | None = None
) -> Report:
    """Sum up the records of a time range.

    Args:
        messages: hold records as values. The time of a record is the timestamp of its message, or
            `completed_at` if the message has none.
        since_ms: inclusive start of the range, milliseconds since 1970; None for no bound.
        until_ms: exclusive end of the range.

    """
    aggregation = _Aggregation(since_ms, until_ms)
    for message in messages:
        record = _record(message.value())
        if record is None:
            aggregation.unreadable += 1
            continue
        time = _time(message, record)
        if _is_between(time, since_ms, until_ms):
            aggregation.add(record, time)
    return aggregation.report()


def _record(value: bytes | None) -> PublishedRecord | None:
    """Decode a record; None if it has another version, or its counts violate an identity."""
    try:
        record = _decode(value or b"")
    except (msgspec.MsgspecError, RecursionError):
        return None
    if record.schema_version != SCHEMA_VERSION or violated_identity(record) is not None:
        return None
    return record


def _time(message: Message, record: PublishedRecord) -> int | None:
    kind, at = message.timestamp()
    time = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds(at)
    return milliseconds(record.completed_at) if time is None else time


def _is_between(time: int | None, since_ms: int | None, until_ms: int | None) -> bool:
    if time is None:  # Such a record belongs to no range.
        return since_ms is None and until_ms is None
    return (since_ms is None or since_ms <= time) and (until_ms is None or time < until_ms)


class _Aggregation:
    """Sums to which records are added one by one."""

    def __init__(self, since_ms: int | None, until_ms: int | None) -> None:
        self.unreadable = 0
        self._records = self._repeats = self._untimed = 0
        self._recent: set[int] = set()
        self._older: set[int] = set()
        self._bucket = 0  # Index in BUCKETS.
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._series: dict[tuple[str, str | None], Series] = {}
        self._rest = Series(engine="", model=None, rest=True)
        self._drafters: dict[tuple[str, str | None, str | None], AcceptanceSums] = {}
        self._fleets: dict[str, None] = {}
        self._slow: list[tuple[float, int, int, PublishedRecord]] = []
        for time in (since_ms, until_ms if until_ms is None else until_ms - 1):
            if time is not None:
                self._include(time)

    def add(self, record: PublishedRecord, time: int | None) -> None:
        """Add a record with its time in milliseconds since 1970, unless it is a repeat."""
        if self._is_repeat(record.record_id):
            return
        self._records += 1
        if len(self._fleets) < _MAX_FLEETS:
            self._fleets[record.fleet] = None
        series = self._series_of(record)
        if time is None:
            self._untimed += 1
            start = None
        else:
            self._include(time)
            width = BUCKETS[self._bucket]
            start = time - time % width
        sums = series.over_time.get(start)
        if sums is None:
            sums = series.over_time[start] = AcceptanceSums()
        sums.add(record)
        self._drafter_of(record).add(record)
        if (histogram := record.acceptance_histogram) is not None:
            for accepted, steps in histogram.items():
                bar = min(accepted, HISTOGRAM_END)
                series.histogram[bar] = series.histogram.get(bar, 0) + steps
        if record.per_step_accepted:
            _add_steps(series, record.per_step_accepted)
        self._add_slow(record)

    def report(self) -> Report:
        """Return the sums."""
        drafters = sorted(
            (Drafter(*key, sums) for key, sums in self._drafters.items()), key=_slowness
        )
        return Report(
            first_ms=self._first_ms,
            last_ms=self._last_ms,
            bucket_ms=BUCKETS[self._bucket],
            records=self._records,
            repeats=self._repeats,
            unreadable=self.unreadable,
            untimed=self._untimed,
            fleets=list(self._fleets),
            series=self._busiest(),
            drafters=drafters[:MAX_DRAFTERS],
            drafters_left_out=len(drafters[MAX_DRAFTERS:]),
            slow_requests=[
                SlowRequest(-length, steps, record)
                for length, steps, _, record in sorted(self._slow, reverse=True)
            ],
        )

    def _is_repeat(self, record_id: str) -> bool:
        """Return whether a record came shortly before, as after a crash with at_least_once."""
        key = hash(record_id)
        if key in self._recent or key in self._older:
            self._repeats += 1
            return True
        if len(self._recent) == _MAX_REMEMBERED:
            self._recent, self._older = set(), self._recent
        self._recent.add(key)
        return False

    def _include(self, time: int) -> None:
        """Extend the range to a time, and widen the buckets if they become too many."""
        if self._first_ms is None or self._last_ms is None:
            self._first_ms = self._last_ms = time
        elif time < self._first_ms:
            self._first_ms = time
        elif time > self._last_ms:
            self._last_ms = time
        else:
            return
        before = self._bucket
        while (
            self._last_ms // BUCKETS[self._bucket] - self._first_ms // BUCKETS[self._bucket]
            >= MAX_BUCKETS
        ):
            self._bucket += 1
        if self._bucket > before:
            for series in (*self._series.values(), self._rest):
                series.over_time = _coarser(series.over_time, BUCKETS[self._bucket])

    def _series_of(self, record: PublishedRecord) -> Series:
        key = (record.engine, record.model)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= _MAX_TRACKED:
                return self._rest
            series = self._series[key] = Series(engine=record.engine, model=record.model)
        return series

    def _drafter_of(self, record: PublishedRecord) -> AcceptanceSums:
        key = (record.engine, record.model, record.instance)
        sums = self._drafters.get(key)
        if sums is None:
            sums = AcceptanceSums()
            if len(self._drafters) < _MAX_TRACKED_DRAFTERS:
                self._drafters[key] = sums
        return sums

    def _add_slow(self, record: PublishedRecord) -> None:
        steps, accepted = record.num_spec_steps, record.num_accepted_draft_tokens
        if steps is None or accepted is None or steps < FEW_STEPS:
            return
        # Among equally slow requests, keep those with more steps, then the earlier ones.
        entry = (-1 - accepted / steps, steps, -self._records, record)
        if len(self._slow) < MAX_SLOW_REQUESTS:
            heappush(self._slow, entry)
        elif entry > self._slow[0]:
            heappushpop(self._slow, entry)

    def _busiest(self) -> list[Series]:
        """Return the series to show; if they are too many, the last one sums up the rest."""
        ranked = sorted(self._series.values(), key=lambda one: -one.total.requests)
        if len(ranked) <= MAX_SERIES and not self._rest.over_time:
            return ranked
        for series in ranked[MAX_SERIES - 1 :]:
            _merge(self._rest, series)
        return [*ranked[: MAX_SERIES - 1], self._rest]


def _slowness(drafter: Drafter) -> tuple[bool, bool, float, int]:
    length = drafter.sums.mean_acceptance_length
    few = drafter.sums.with_steps < FEW_REQUESTS
    return length is None, few, length or 0.0, -drafter.sums.requests


def _coarser(
    over_time: dict[int | None, AcceptanceSums], width: int
) -> dict[int | None, AcceptanceSums]:
    coarse: dict[int | None, AcceptanceSums] = {}
    for start, sums in over_time.items():
        bucket = None if start is None else start - start % width
        coarse.setdefault(bucket, AcceptanceSums()).merge(sums)
    return coarse


def _add_steps(series: Series, accepted: list[int]) -> None:
    for number, (low, high) in enumerate(pairwise(_EDGES)):
        if low >= len(accepted):
            return
        if number == len(series.step_ranges):
            series.step_ranges.append(StepRange(low + 1, high))
        part = accepted[low:high]
        step_range = series.step_ranges[number]
        step_range.steps += len(part)
        step_range.accepted += sum(part)


def _merge(rest: Series, series: Series) -> None:
    for start, sums in series.over_time.items():
        rest.over_time.setdefault(start, AcceptanceSums()).merge(sums)
    for accepted, steps in series.histogram.items():
        rest.histogram[accepted] = rest.histogram.get(accepted, 0) + steps
    for number, found in enumerate(series.step_ranges):
        if number == len(rest.step_ranges):
            rest.step_ranges.append(StepRange(found.first, found.last))
        rest.step_ranges[number].steps += found.steps
        rest.step_ranges[number].accepted += found.accepted
