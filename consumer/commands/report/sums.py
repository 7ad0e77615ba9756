"""The content of a report: sums of records, and their ratios."""

from collections.abc import Iterable

from msgspec import Struct

from schemas import PublishedRecord


class Sums(Struct):
    """Sums over requests. Each ratio covers the requests that report both of its sums.

    Attributes:
        requests: number of requests.
        counted: number of requests that report verify steps and accepted draft tokens.
        steps: their verify steps.
        accepted: their accepted draft tokens.
        measured: number of requests whose engine counts proposed draft tokens.
        drafted: their proposed draft tokens.
        accepted_of_drafted: their accepted draft tokens.

    """

    requests: int = 0
    counted: int = 0
    steps: int = 0
    accepted: int = 0
    measured: int = 0
    drafted: int = 0
    accepted_of_drafted: int = 0

    def add(self, record: PublishedRecord) -> None:
        """Add the record of one request."""
        self.requests += 1
        accepted = record.num_accepted_draft_tokens
        if accepted is None:
            return
        if (steps := record.num_spec_steps) is not None:
            self.counted += 1
            self.steps += steps
            self.accepted += accepted
        if record.draft_tokens_measured and (drafted := record.num_draft_tokens) is not None:
            self.measured += 1
            self.drafted += drafted
            self.accepted_of_drafted += accepted

    def merge(self, other: "Sums") -> None:
        """Add the requests of other sums."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def length(self) -> float | None:
        """Mean acceptance length, bonus token included; None without steps."""
        return 1 + self.accepted / self.steps if self.steps else None

    @property
    def rate(self) -> float | None:
        """Draft acceptance rate from 0 to 1; None without proposed drafts."""
        return self.accepted_of_drafted / self.drafted if self.drafted else None


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
    over_time: dict[int | None, Sums] = {}
    histogram: dict[int, int] = {}
    step_ranges: list[StepRange] = []

    @property
    def total(self) -> Sums:
        """Sums over all requests of the series."""
        return merged(self.over_time.values())


class Drafter(Struct, frozen=True):
    """A model on one instance; None if the instance is unknown."""

    engine: str
    model: str | None
    instance: str | None
    sums: Sums


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


def merged(sums: Iterable[Sums]) -> Sums:
    """Return the total of sums."""
    total = Sums()
    for one in sums:
        total.merge(one)
    return total
