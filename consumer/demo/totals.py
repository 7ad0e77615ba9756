"""What the fleet sent and what the service published, as counts."""

from collections import Counter, defaultdict

from consumer.demo.fleet import FleetMessage, MessageKind, OutcomeReason
from consumer.telemetry.outcome_counts import AcceptanceCounts, AcceptanceSums, Labels, merged
from schemas import BadPayloadReason, DeadLetter, PublishedRecord, RequestOutcome


class DemoTotals:
    """Counts of messages, records and dead letters, and of the records that have not arrived.

    A demo may run for days: of the requests, only those with a missing or an unexpected record are
    kept.

    Attributes:
        messages: messages sent.
        requests: requests sent completely, by their expected outcome and reason.
        acceptance: records that arrived, by engine and model.
        samples: the first record of each engine.
        arrived: expected records that arrived.
        dead_letters: dead letters that arrived, by reason.
        expected_dead_letters: dead letters that must arrive, by reason.
        unreadable: outputs that are neither a record nor a dead letter.

    """

    def __init__(self) -> None:
        self.messages: Counter[MessageKind] = Counter()
        self.requests: Counter[tuple[RequestOutcome, OutcomeReason | None]] = Counter()
        self.acceptance: defaultdict[Labels, AcceptanceCounts] = defaultdict(AcceptanceCounts)
        self.samples: dict[str, PublishedRecord] = {}
        self.arrived = 0
        self.dead_letters: Counter[str] = Counter()
        self.expected_dead_letters: Counter[str] = Counter()
        self.unreadable = 0
        self._after_timeout: set[str] = set()
        # Records expected less records arrived, in any order; a request with 0 has no entry.
        self._open: Counter[str] = Counter()

    def add_message(self, message: FleetMessage) -> None:
        """Count a message that was sent."""
        self.messages[message.kind] += 1
        if isinstance(message.reason, BadPayloadReason):
            self.expected_dead_letters[message.reason] += 1
        if (expected := message.expected) is None:
            return
        self.requests[expected.outcome, expected.reason] += 1
        if expected.outcome is RequestOutcome.MALFORMED_STATS and expected.reason is not None:
            self.expected_dead_letters[expected.reason] += 1
        if expected.record is not None:
            if expected.after_timeout:
                self._after_timeout.add(expected.request_id)
            self._match(expected.request_id, 1)

    def add_record(self, record: PublishedRecord) -> None:
        """Count a record that arrived."""
        self.samples.setdefault(record.engine, record)
        self.acceptance[record.engine, record.model or "unknown"].add(record)
        self._match(str(record.request_id), -1)

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Count a dead letter that arrived."""
        self.dead_letters[letter.reason or letter.outcome] += 1

    @property
    def sums(self) -> AcceptanceSums:
        """Sums over all records that arrived."""
        return merged(acceptance.sums for acceptance in self.acceptance.values())

    @property
    def missing(self) -> int:
        """Expected records that have not arrived, without those of `not_due`."""
        return sum(balance > 0 for balance in self._open.values()) - self.not_due

    @property
    def not_due(self) -> int:
        """Expected records that the service publishes only after its idle timeout."""
        return len(self._after_timeout)

    @property
    def unexpected(self) -> int:
        """Records that no request expects: second ones, and those of requests without one."""
        return -sum(balance for balance in self._open.values() if balance < 0)

    @property
    def is_complete(self) -> bool:
        """Whether every expected record and dead letter has arrived."""
        return not self.missing and self.dead_letters.total() >= self.expected_dead_letters.total()

    def _match(self, request_id: str, change: int) -> None:
        before = self._open[request_id]
        self.arrived += before * change < 0
        self._open[request_id] += change
        if not self._open[request_id]:
            del self._open[request_id]
            self._after_timeout.discard(request_id)
