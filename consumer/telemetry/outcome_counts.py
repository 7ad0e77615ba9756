"""What happened, as sums: since the last commit, in one batch, or since the start.

Batches are added up when they are committed, so that nothing is counted that was not published.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import add
from typing import Final

from msgspec import Struct, field

from consumer.core.records import RequestResult
from schemas import PublishedRecord

Labels = tuple[str, ...]  # Envelope of a message; engine and model of a request.
Total = tuple[str, str, str | None, Labels]  # Kind, outcome, reason and labels.

_STEP_BOUNDS: Final = tuple(range(17))
_DEEPEST: Final = len(_STEP_BOUNDS)
_LENGTH_BOUNDS: Final = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 12, 17)
_RATIO_BOUNDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)

READ_AGAIN: Final[Total] = ("message read again", "", None, ())
POSSIBLE_REPEAT: Final[Total] = ("possible repeat of a whole response", "", None, ())
DROPPED: Final[Total] = ("record or dead letter too large for its topic", "", None, ())


class BucketCounts(Struct):
    """Counts of values by the least bound that is not below them, and the sum of the values.

    Attributes:
        bounds: upper bounds, ascending.
        counts: one for each bound, and one for what lies above all of them.
        sum: of all values.

    """

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    sum: float = 0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def add(self, other: "BucketCounts") -> None:
        """Add what another one of the same bounds has counted."""
        self.counts = list(map(add, self.counts, other.counts))
        self.sum += other.sum


class AcceptanceCounts(Struct):
    """Acceptance of the published requests of one engine and model.

    A ratio of two of these is of the same requests, which is why some are there twice.

    Attributes:
        verify_steps: of requests that report accepted drafts as well.
        accepted: draft tokens accepted in them.
        verify_steps_alone: of requests that do not report accepted drafts.
        drafted: draft tokens proposed, of requests whose engine counts them.
        rated_accepted: draft tokens accepted of these.
        steps: drafts accepted per verify step, of requests with a histogram.
        lengths: mean acceptance length per request.
        ratios: draft acceptance rate per request.

    """

    verify_steps: int = 0
    accepted: int = 0
    verify_steps_alone: int = 0
    drafted: int = 0
    rated_accepted: int = 0
    steps: BucketCounts = field(default_factory=lambda: BucketCounts(_STEP_BOUNDS))
    lengths: BucketCounts = field(default_factory=lambda: BucketCounts(_LENGTH_BOUNDS))
    ratios: BucketCounts = field(default_factory=lambda: BucketCounts(_RATIO_BOUNDS))

    def take(self, record: PublishedRecord) -> None:
        """Count the record of one request."""
        steps, accepted = record.num_spec_steps, record.num_accepted_draft_tokens
        drafted = record.num_draft_tokens if record.draft_tokens_measured else None
        if accepted is None:
            self.verify_steps_alone += steps or 0
        elif steps:
            self.verify_steps += steps
            self.accepted += accepted
            self.lengths.observe(1 + accepted / steps)
        if accepted is not None and drafted:
            self.drafted += drafted
            self.rated_accepted += accepted
            self.ratios.observe(accepted / drafted)
        if record.acceptance_histogram is not None:
            counts, depths = self.steps.counts, 0
            for depth, times in record.acceptance_histogram.items():
                counts[min(depth, _DEEPEST)] += times  # The bounds are the depths themselves.
                depths += depth * times
            self.steps.sum += depths

    def add(self, other: "AcceptanceCounts") -> None:
        """Add what another one has counted."""
        self.verify_steps += other.verify_steps
        self.accepted += other.accepted
        self.verify_steps_alone += other.verify_steps_alone
        self.drafted += other.drafted
        self.rated_accepted += other.rated_accepted
        self.steps.add(other.steps)
        self.lengths.add(other.lengths)
        self.ratios.add(other.ratios)


class OutcomeCounts(Struct):
    """What happened.

    Attributes:
        totals: how often each outcome occurred.
        acceptance: of published requests, by engine and model.

    """

    totals: Counter[Total] = field(default_factory=Counter)
    acceptance: defaultdict[Labels, AcceptanceCounts] = field(
        default_factory=lambda: defaultdict(AcceptanceCounts)
    )

    def take(self, result: RequestResult, labels: Labels) -> None:
        """Count the outcome of one request."""
        self.totals["request", result.outcome, result.reason, labels] += 1
        if result.record is not None:
            self.acceptance[labels].take(result.record)

    def add(self, other: "OutcomeCounts") -> None:
        """Add what happened elsewhere."""
        self.totals.update(other.totals)
        for labels, acceptance in other.acceptance.items():
            self.acceptance[labels].add(acceptance)


def totals_by_name(totals: Counter[Total]) -> dict[str, int]:
    """Return totals by their names, as the log shows them: `request incomplete(gap)`."""
    sums: Counter[str] = Counter()
    for (kind, outcome, reason, _), count in totals.items():
        sums[f"{kind} {outcome}".strip() + (f"({reason})" if reason else "")] += count
    return dict(sorted(sums.items()))
