"""Sums of outcomes: since the last commit, of one batch, or since the start.

The sums of a batch are added to the others when it is committed, so that only what was published
is counted.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import add
from typing import Final

from msgspec import Struct, field

from consumer.core.outcomes import RequestResult
from schemas import PublishedRecord

Labels = tuple[str, ...]  # Envelope of a message or member; engine and model of a request.
Total = tuple[str, str, str | None, Labels]  # Kind, outcome, reason and labels.

_STEP_BOUNDS: Final = tuple(range(17))
_MAX_BOUND: Final = len(_STEP_BOUNDS)
_LENGTH_BOUNDS: Final = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 12, 17)
_RATE_BOUNDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


DIFFERING: Final = "differing"  # Kind of the total of a statement that differs from its counts.


class EventTotal(StrEnum):
    """Totals that are not the outcome of a message or request."""

    REREAD_MESSAGES = "reread_messages"
    REFETCHED_MESSAGES = "refetched_messages"
    REVOKED_MESSAGES = "revoked_messages"
    POSSIBLE_REPEATS = "possible_repeats"
    DROPPED_OUTPUTS = "dropped_outputs"
    SLOW_MESSAGES = "slow_messages"

    @property
    def total(self) -> Total:
        """Return the key of this total in `OutcomeCounts.totals`."""
        return self.value, "", None, ()


class BucketCounts(Struct):
    """Counts of values by the least bound that is not below them, and the sum of the values.

    Attributes:
        bounds: upper bounds, ascending.
        counts: one for each bound, and one for the values above all of them.
        sum: of all values.

    """

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    sum: float = 0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def merge(self, other: "BucketCounts") -> None:
        """Add counts over the same bounds."""
        self.counts = list(map(add, self.counts, other.counts))
        self.sum += other.sum


class AcceptanceSums(Struct):
    """Sums over records. A ratio divides two sums over the same records.

    Attributes:
        requests: records, whichever numbers they state.
        with_steps: records that state verify steps and accepted draft tokens.
        verify_steps: verify steps of these.
        accepted: draft tokens accepted of these.
        with_drafts: records that state accepted draft tokens, and whose engine counts drafts.
        drafted: draft tokens proposed of these.
        accepted_of_drafted: draft tokens accepted of these.
        verify_steps_without_accepted: verify steps of records without accepted draft tokens.

    """

    requests: int = 0
    with_steps: int = 0
    verify_steps: int = 0
    accepted: int = 0
    with_drafts: int = 0
    drafted: int = 0
    accepted_of_drafted: int = 0
    verify_steps_without_accepted: int = 0

    def add(self, record: PublishedRecord) -> None:
        """Add a record; a number that it does not state stays out of the ratio."""
        self.requests += 1
        steps, accepted = record.num_spec_steps, record.num_accepted_draft_tokens
        if accepted is None:
            self.verify_steps_without_accepted += steps or 0
            return
        if steps is not None:
            self.with_steps += 1
            self.verify_steps += steps
            self.accepted += accepted
        if record.draft_tokens_measured and (drafted := record.num_draft_tokens) is not None:
            self.with_drafts += 1
            self.drafted += drafted
            self.accepted_of_drafted += accepted

    def merge(self, other: "AcceptanceSums") -> None:
        """Add the sums over other records."""
        self.requests += other.requests
        self.with_steps += other.with_steps
        self.verify_steps += other.verify_steps
        self.accepted += other.accepted
        self.with_drafts += other.with_drafts
        self.drafted += other.drafted
        self.accepted_of_drafted += other.accepted_of_drafted
        self.verify_steps_without_accepted += other.verify_steps_without_accepted

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens per verify step, bonus token included; None without verify steps."""
        return 1 + self.accepted / self.verify_steps if self.verify_steps else None

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted by proposed draft tokens, from 0 to 1; None without proposed ones."""
        return self.accepted_of_drafted / self.drafted if self.drafted else None


def merged(sums: Iterable[AcceptanceSums]) -> AcceptanceSums:
    """Return the sums over the records of all sums."""
    total = AcceptanceSums()
    for one in sums:
        total.merge(one)
    return total


class AcceptanceCounts(Struct):
    """Acceptance of the published requests of one engine and model.

    Attributes:
        sums: their sums.
        accepted_per_step: accepted draft tokens per verify step, of records with a histogram.
        mean_lengths: mean acceptance length per request.
        acceptance_rates: draft acceptance rate per request.

    """

    sums: AcceptanceSums = field(default_factory=AcceptanceSums)
    accepted_per_step: BucketCounts = field(default_factory=lambda: BucketCounts(_STEP_BOUNDS))
    mean_lengths: BucketCounts = field(default_factory=lambda: BucketCounts(_LENGTH_BOUNDS))
    acceptance_rates: BucketCounts = field(default_factory=lambda: BucketCounts(_RATE_BOUNDS))

    def add(self, record: PublishedRecord) -> None:
        """Add the record of one request."""
        self.sums.add(record)
        steps, accepted = record.num_spec_steps, record.num_accepted_draft_tokens
        if accepted is not None:
            if steps:
                self.mean_lengths.observe(1 + accepted / steps)
            if record.draft_tokens_measured and record.num_draft_tokens:
                self.acceptance_rates.observe(accepted / record.num_draft_tokens)
        if record.acceptance_histogram is not None:
            counts, accepted_in_steps = self.accepted_per_step.counts, 0
            for depth, times in record.acceptance_histogram.items():
                # The bounds are the depths themselves. A call of min() would cost more.
                counts[depth if depth < _MAX_BOUND else _MAX_BOUND] += times  # noqa: FURB136
                accepted_in_steps += depth * times
            self.accepted_per_step.sum += accepted_in_steps

    def merge(self, other: "AcceptanceCounts") -> None:
        """Add the sums and distributions of other records."""
        self.sums.merge(other.sums)
        self.accepted_per_step.merge(other.accepted_per_step)
        self.mean_lengths.merge(other.mean_lengths)
        self.acceptance_rates.merge(other.acceptance_rates)


class OutcomeCounts(Struct):
    """Counts of outcomes.

    Attributes:
        totals: how often each outcome occurred.
        acceptance: of published requests, by engine and model.

    """

    totals: Counter[Total] = field(default_factory=Counter)
    acceptance: defaultdict[Labels, AcceptanceCounts] = field(
        default_factory=lambda: defaultdict(AcceptanceCounts)
    )

    def add_request(self, result: RequestResult, labels: Labels) -> None:
        """Count the outcome of one request."""
        self.totals["request", result.outcome, result.reason, labels] += 1
        if result.record is not None:
            self.acceptance[labels].add(result.record)
            for field_name in result.differing:
                self.totals[DIFFERING, field_name, None, (result.record.engine,)] += 1

    def merge(self, other: "OutcomeCounts") -> None:
        """Add the outcomes that another object counted."""
        self.totals.update(other.totals)
        for labels, acceptance in other.acceptance.items():
            self.acceptance[labels].merge(acceptance)


def totals_by_name(totals: Counter[Total]) -> dict[str, int]:
    """Return totals by their names, as the log shows them: `request incomplete(gap)`."""
    sums: Counter[str] = Counter()
    for (kind, outcome, reason, _), count in totals.items():
        sums[f"{kind} {outcome}".strip() + (f"({reason})" if reason else "")] += count
    return dict(sorted(sums.items()))
