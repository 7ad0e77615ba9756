"""The content of a report."""

from msgspec import Struct

from consumer.telemetry.outcome_counts import AcceptanceSums, merged
from schemas import PublishedRecord


class StepRange(Struct):
    """The verify steps `first` to `last` of all streams, counted from 1.

    Attributes:
        steps: number of verify steps.
        accepted: draft tokens accepted in them.

    """

    first: int
    last: int
    steps: int = 0
    accepted: int = 0


class Series(Struct, kw_only=True):
    """One model on one engine, or all models without a series of their own.

    Attributes:
        engine: its name.
        model: its name; None if the records name none.
        rest: whether the series sums up all models without a series of their own.
        over_time: sums by start of the time bucket, milliseconds since 1970; the key None holds
            records without a time.
        histogram: verify steps by number of accepted drafts; the last one counts more as well.
        step_ranges: sums by position of the verify step in its stream, ascending.

    """

    engine: str
    model: str | None
    rest: bool = False
    over_time: dict[int | None, AcceptanceSums] = {}
    histogram: dict[int, int] = {}
    step_ranges: list[StepRange] = []

    @property
    def total(self) -> AcceptanceSums:
        """Sums over all requests of the series."""
        return merged(self.over_time.values())


class Drafter(Struct, frozen=True):
    """A model on one instance; None if the instance is unknown."""

    engine: str
    model: str | None
    instance: str | None
    sums: AcceptanceSums


class SlowRequest(Struct, frozen=True):
    """A request with a short acceptance length."""

    length: float
    steps: int
    record: PublishedRecord


class Report(Struct, frozen=True, kw_only=True):
    """The content of the page.

    Attributes:
        first_ms: start of the range, milliseconds since 1970; None if no record has a time.
        last_ms: end of the range.
        bucket_ms: width of a time bucket, which starts at a multiple of it.
        records: number of records in the sums.
        repeats: number of records excluded because their `record_id` came shortly before.
        unreadable: number of messages or lines that do not hold a record.
        untimed: number of records without a time, which only the plots over time exclude.
        fleets: names of the first fleets.
        series: the busiest models first; the rest, if any, last.
        drafters: models by instance, the slowest first; those with few requests last.
        drafters_left_out: number of further drafters.
        slow_requests: the slowest first.

    """

    first_ms: int | None
    last_ms: int | None
    bucket_ms: int
    records: int
    repeats: int
    unreadable: int
    untimed: int
    fleets: list[str]
    series: list[Series]
    drafters: list[Drafter]
    drafters_left_out: int
    slow_requests: list[SlowRequest]
