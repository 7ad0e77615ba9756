"""What a report says: sums of records, and the ratios that follow from them."""

from collections.abc import Iterable

from msgspec import Struct

from schemas import PublishedRecord


class Sums(Struct):
    """Counts of several requests. A ratio is one of sums, over the requests that state both.

    Attributes:
        requests: records, whatever they state.
        counted: of these, with verify steps and accepted drafts.
        steps: verify steps of the counted.
        accepted: draft tokens accepted of the counted.
        measured: records whose proposed drafts were counted by the engine.
        drafted: draft tokens proposed of the measured.
        accepted_of_drafted: draft tokens accepted of the measured.

    """

    requests: int = 0
    counted: int = 0
    steps: int = 0
    accepted: int = 0
    measured: int = 0
    drafted: int = 0
    accepted_of_drafted: int = 0

    def add(self, record: PublishedRecord) -> None:
        """Count one more request."""
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
        """Count the requests of another sum too."""
        self.requests += other.requests
        self.counted += other.counted
        self.steps += other.steps
        self.accepted += other.accepted
        self.measured += other.measured
        self.drafted += other.drafted
        self.accepted_of_drafted += other.accepted_of_drafted

    @property
    def length(self) -> float | None:
        """Mean tokens per verify step, bonus token included; None without steps."""
        return 1 + self.accepted / self.steps if self.steps else None

    @property
    def rate(self) -> float | None:
        """Share of the proposed drafts that was accepted, from 0 to 1; None without drafts."""
        return self.accepted_of_drafted / self.drafted if self.drafted else None


class Position(Struct):
    """Verify steps number `first` to `last` of their streams, counted from 1.

    Attributes:
        first: the first step.
        last: the last step.
        steps: how many verify steps of all streams these are.
        accepted: draft tokens accepted in them.

    """

    first: int
    last: int
    steps: int = 0
    accepted: int = 0


class Series(Struct, kw_only=True):
    """One model on one engine, or all that are not shown by themselves.

    Attributes:
        engine: its name.
        model: its name, None where no record says.
        rest: whether this is all models that are not shown by themselves.
        over_time: sums by the start of the time bucket, milliseconds since 1970; under None those
            of records without a time.
        histogram: verify steps by the drafts accepted in them, the last for it or more.
        positions: sums by the place of the verify step in its stream, in order.

    """

    engine: str
    model: str | None
    rest: bool = False
    over_time: dict[int | None, Sums] = {}
    histogram: dict[int, int] = {}
    positions: list[Position] = []

    @property
    def total(self) -> Sums:
        """All requests of the series."""
        return merged(self.over_time.values())


class Drafter(Struct, frozen=True):
    """A model on one instance. Without name (None), the instance is not known."""

    engine: str
    model: str | None
    instance: str | None
    sums: Sums


class SlowRequest(Struct, frozen=True):
    """A request whose drafts were of little use, and where to find it."""

    length: float
    steps: int
    record: PublishedRecord


class Report(Struct, frozen=True, kw_only=True):
    """All that the page shows.

    Attributes:
        first_ms: begin of the range, milliseconds since 1970; None without any time.
        last_ms: end of the range.
        bucket_ms: width of a time bucket, which starts at a multiple of it.
        records: how many records were summed.
        repeats: records left out because their `record_id` had come shortly before.
        unreadable: messages or lines that hold no record.
        untimed: records without a time, which are in all but the plots over time.
        fleets: names of fleets, the first ones only.
        series: models, the busiest first; the rest, if any, last.
        drafters: models by instance, the slowest drafts first, few requests last.
        drafters_left_out: how many more there are.
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
    """Return the sum of sums."""
    total = Sums()
    for one in sums:
        total.merge(one)
    return total
