"""Batches on their way to the committer, and what becomes of them."""

from typing import Final

from consumer.kafka.assignment import Assignment
from consumer.kafka.batch import Batch
from consumer.kafka.committer import CommitResult
from consumer.kafka.context import Context
from consumer.kafka.errors import KafkaFailureError
from consumer.kafka.session import Session
from consumer.kafka.stall_guard import StallGuard
from consumer.telemetry.clock import Clock
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import EventTotal

_MAX_OUTPUT_BYTES: Final = 64 << 20
_MAX_ABORTS: Final = 20  # Consecutive ones; about half a minute.
_ABORT_PAUSE_S: Final = 0.05
_MAX_ABORT_PAUSE_S: Final = 2.0


class CommitPace:
    """When the next batch is due: after an interval, or after a pause that grows with each abort.

    Args:
        interval_s: seconds between two batches.
        clock: for intervals.

    """

    def __init__(self, interval_s: float, clock: Clock) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._due_at = clock.monotonic()
        self._aborts = 0

    @property
    def is_due(self) -> bool:
        """Whether a batch is due."""
        return self._clock.monotonic() >= self._due_at

    @property
    def pause_s(self) -> float:
        """Seconds for which even a full batch waits after an abort."""
        return max(0.0, self._due_at - self._clock.monotonic()) if self._aborts else 0.0

    def hurry(self) -> None:
        """Let a batch be due at once."""
        self._due_at = self._clock.monotonic()

    def note_hand_over(self) -> None:
        """Begin the next interval."""
        self._due_at = self._clock.monotonic() + self._interval_s

    def note_success(self) -> None:
        """End the series of aborts."""
        self._aborts = 0

    def note_abort(self, error: str, *, has_progress: bool) -> None:
        """Begin a pause.

        Args:
            error: why the transaction was aborted.
            has_progress: whether the next attempt has less to deliver.

        Raises:
            KafkaFailureError: too many consecutive transactions were aborted.

        """
        self._aborts = 1 if has_progress else self._aborts + 1
        if self._aborts > _MAX_ABORTS:
            raise KafkaFailureError(
                f"{self._aborts} consecutive transactions were aborted; last error: {error}"
            )
        pause = min(_ABORT_PAUSE_S * 2**self._aborts, _MAX_ABORT_PAUSE_S)
        self._due_at = self._clock.monotonic() + pause


class CommitCycle:
    """Hands batches to the committer, one at a time, and processes their results.

    Args:
        context: settings, clock, log and stop.
        session: the objects that share the Kafka clients.
        assignment: the assigned partitions.
        metrics: counts what was committed.
        guard: detects a batch that hangs.

    Attributes:
        pace: when the next batch is due.
        has_delivered: whether a batch has been delivered.

    """

    def __init__(
        self,
        context: Context,
        session: Session,
        assignment: Assignment,
        metrics: Metrics,
        guard: StallGuard,
    ) -> None:
        self.pace = CommitPace(context.settings.commit_interval, context.clock)
        self.has_delivered = False
        self._max_outputs = context.settings.max_commit_outputs
        self._clock = context.clock
        self._session = session
        self._assignment = assignment
        self._metrics = metrics
        self._guard = guard

    @property
    def is_full(self) -> bool:
        """Whether as much has gathered as one batch may hold."""
        partitions = self._assignment.partitions.values()
        return (
            sum(one.output_count for one in partitions) >= self._max_outputs
            or sum(one.output_bytes for one in partitions) >= _MAX_OUTPUT_BYTES
        )

    def hand_over(self, *, everything: bool = False) -> bool:
        """Give the committer what has gathered; return whether it got a batch.

        It gets none if nothing has to be committed, or if this consumer is not a member yet.

        Args:
            everything: whether to include positions that have moved without an outcome.

        """
        group = self._session.consumer.consumer_group_metadata()
        if not self._session.offsets.can_hand_over(group):
            return False
        self.pace.note_hand_over()
        now = self._clock.monotonic()
        partitions = [
            one.cut_batch(now)
            for one in self._assignment.partitions.values()
            if one.is_due(now, everything=everything)
        ]
        if partitions:
            self._guard.begin()
            self._session.committer.hand_over(Batch(partitions, group))
        return bool(partitions)

    def process_result(self) -> None:
        """Process the result of the last batch, if there is one.

        Raises:
            KafkaFailureError: too many consecutive transactions were aborted.

        """
        result = self._session.committer.pop_result()
        if result is None:
            return
        if result.dropped:
            self._metrics.count(EventTotal.DROPPED_OUTPUTS, result.dropped)
        if result.error is None:
            self._note_commit(result)
        else:
            self._metrics.count_aborted_batch()
            self.pace.note_abort(result.error, has_progress=bool(result.dropped))
            self._restore(result)

    def _note_commit(self, result: CommitResult) -> None:
        self._metrics.count_committed_batch(
            ((share.counts, share.outputs) for share in result.batch.partitions),
            duration_s=result.duration_s,
            committed_at_ms=result.ended_at_ms,
        )
        self.has_delivered = True
        self.pace.note_success()
        self._session.offsets.add(share.position for share in result.still_assigned)

    def _restore(self, result: CommitResult) -> None:
        """Put an aborted batch back, except the shares of partitions that were revoked."""
        for share in result.still_assigned:
            self._assignment.partitions[share.key].restore(share)

    def commit_offsets(self, *, wait: bool = False) -> None:
        """Commit the positions of delivered batches that are not committed yet."""
        offsets, consumer = self._session.offsets, self._session.consumer
        if wait:
            offsets.commit_and_wait(consumer)
        else:
            offsets.commit(consumer)
        for key in offsets.pop_failed():
            if key in self._assignment.partitions:
                self._assignment.partitions[key].commit_again()

    def deliver_rest(self, deadline: float) -> None:
        """Deliver what has gathered and what was handed over, until a deadline.

        Args:
            deadline: in monotonic seconds.

        """
        committer, clock = self._session.committer, self._clock
        self._assignment.report_outcomes()
        while committer.wait_until_delivered(deadline - clock.monotonic()):
            self.process_result()
            # Without the pause the limit of consecutive aborts would be reached at once.
            if pause := min(self.pace.pause_s, max(0.0, deadline - clock.monotonic())):
                clock.sleep(pause)
            if clock.monotonic() >= deadline or not self.hand_over(everything=True):
                break
