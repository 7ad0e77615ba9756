"""One assigned partition: its requests, and what it adds to the next batch."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from confluent_kafka import KafkaError, TopicPartition

from consumer.core.checkpoint import encode
from consumer.core.message import Message
from consumer.core.output_messages import OutputMessage
from consumer.core.partition import MessageResult, Partition
from consumer.kafka.batch import PartitionBatch, PartitionKey
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import EventTotal, OutcomeCounts
from consumer.telemetry.outcome_reporter import OutcomeReporter
from schemas import MessageOutcome

_ACCEPTED: Final = MessageOutcome.ACCEPTED
_COMMIT_EVERY_S: Final = 5.0  # Of a position that moves without outcomes.
_NO_LEADER_EPOCH: Final = -1


class ConsumedMessage(Message, Protocol):
    """A message, or an error, as the consumer returns it."""

    def error(self) -> KafkaError | None:
        """Return the error that the client reports in place of a message."""
        ...

    def leader_epoch(self) -> int | None:
        """Return the epoch of the partition's leader that the message came from."""
        ...


class AssignedPartition:
    """One assigned partition.

    Args:
        core: the state of its requests; reading continues at its position.
        topic_hash: hash of the topic's id.
        committed: the position that the group has committed; None if it has none.
        now: seconds of the monotonic clock.
        intact: whether everything that the checkpoint refers to is still in the log.

    Attributes:
        end: offset at which the log ended when reading last reached its end.
        at_end_since: when reading reached it; None if messages have come since.

    """

    def __init__(
        self,
        core: Partition,
        topic_hash: int,
        committed: int | None,
        now: float,
        *,
        intact: bool = True,
    ) -> None:
        self.core = core
        self.topic_hash = topic_hash
        self.intact = intact
        self.end = 0
        self.at_end_since: float | None = None
        self._submitted = committed
        self._submitted_at = now
        self._was_live = core.live
        self._has_changed = False
        self._last: ConsumedMessage | None = None
        self._not_accepted: list[tuple[Message, MessageResult]] = []
        self._outputs: list[OutputMessage] = []
        self._counts = OutcomeCounts()
        self._possible_repeats = 0
        self.output_bytes = 0

    @property
    def key(self) -> PartitionKey:
        """Topic and partition."""
        return self.core.origin.topic, self.core.origin.partition

    @property
    def is_new(self) -> bool:
        """Whether the group has no position of it, nor is one on its way."""
        return self._submitted is None

    @property
    def output_count(self) -> int:
        """Number of records and dead letters for the next batch."""
        return len(self._outputs)

    def feed(
        self, messages: Sequence[ConsumedMessage], is_over: Callable[[Message], bool]
    ) -> tuple[int, int]:
        """Feed the next messages, until time is over.

        Returns:
            how many were fed, and how many of these were only re-read.

        """
        result, totals = self.core.feed_all(messages, is_over), self._counts.totals
        if result.repeated:
            totals[EventTotal.REFETCHED_MESSAGES.total] += result.repeated
        if result.repeated < result.fed:
            self.at_end_since, self._last = None, messages[result.fed - 1]
        with_outcome = len(result.not_accepted)
        for envelope, accepted in result.accepted.items():
            totals["message", _ACCEPTED, None, (envelope,)] += accepted
            with_outcome += accepted
        for (envelope, member), times in result.odd.items():
            totals["odd_member", member, None, (envelope,)] += times
        self._not_accepted += result.not_accepted
        return result.fed, result.fed - result.repeated - with_outcome

    def reach_end(self, offset: int, now: float) -> None:
        """Note that the log ends at an offset, which reading has reached."""
        self.end, self.at_end_since = offset, now
        core = self.core
        if not core.live and offset >= core.resumed_at:
            core.go_live()
        if core.live and offset > core.position:
            # Above the last message there may be marks of transactions, which would stay as lag.
            core.position = offset

    def pop_went_live(self) -> bool:
        """Return True once, when re-reading has finished; the partition is then due for a commit.

        Requests that ended while it was re-read have their outcome only now.
        """
        went_live = self.core.live and not self._was_live
        if went_live:
            self._was_live = self._has_changed = True
        return went_live

    def report_outcomes(self, reporter: OutcomeReporter, metrics: Metrics) -> None:
        """Make outputs, log lines and counts of the outcomes since the last call.

        Those of many messages together, since a cold cache makes a dead letter twice as dear.
        """
        core, counts = self.core, self._counts
        not_accepted, self._not_accepted = self._not_accepted, []
        letters: list[OutputMessage] = []
        for message, result in not_accepted:
            counts.totals["message", result.outcome, result.reason, (result.envelope,)] += 1
            letters += reporter.report_message(message, result, core.origin)
        if letters:
            self._add(letters)
        for request in core.drain():
            counts.add_request(request, metrics.labels_of(request))
            self._add(reporter.report_request(request, core.origin))
        repeats = core.possible_repeats - self._possible_repeats
        if repeats:
            self._possible_repeats += repeats
            counts.totals[EventTotal.POSSIBLE_REPEATS.total] += repeats

    def _add(self, outputs: list[OutputMessage]) -> None:
        self._has_changed = True
        self._outputs += outputs
        for output in outputs:
            self.output_bytes += len(output.value)

    # Commits

    def is_due(self, now: float, *, everything: bool) -> bool:
        """Return whether to include the partition in a batch; never while it is re-read."""
        core = self.core
        if not core.live or (core.position == self._submitted and not self._has_changed):
            return False
        overdue = now - self._submitted_at >= _COMMIT_EVERY_S
        return self._has_changed or overdue or everything or self._submitted is None

    def cut_batch(self, now: float) -> PartitionBatch:
        """Return what has gathered since the last batch, with the position to commit."""
        core, last = self.core, self._last
        checkpoint = encode(core.checkpoint(self.topic_hash))
        epoch = None if last is None else last.leader_epoch()
        position = TopicPartition(
            *self.key, core.position, checkpoint, _NO_LEADER_EPOCH if epoch is None else epoch
        )
        batch = PartitionBatch(position, self._outputs, self._counts)
        self._outputs, self._counts, self.output_bytes = [], OutcomeCounts(), 0
        self._submitted, self._submitted_at, self._has_changed = core.position, now, False
        return batch

    def restore(self, batch: PartitionBatch) -> None:
        """Put an aborted batch before what has gathered since; nothing is read again."""
        since, self._outputs = self._outputs, []
        self._add(batch.outputs)
        self._outputs += since
        self._counts.merge(batch.counts)

    def commit_again(self) -> None:
        """Include the partition in the next batch: the group has not committed its position."""
        self._submitted = None
