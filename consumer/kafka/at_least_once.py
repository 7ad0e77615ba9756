"""At least once: records first, their positions afterwards; a crash in between repeats records."""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.kafka.batch import Batch, PartitionKey
from consumer.kafka.delivery import DeliveryResult, OffsetCommits
from consumer.kafka.errors import ClientsLostError, cause_of, is_transient
from consumer.kafka.sender import Sender
from consumer.telemetry.log_events import LogEvent, Logger

# The group has moved on: the partition's new owner reads it again from the last commit.
_NO_LONGER_OWNED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._STATE,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)


class AtLeastOnce:
    """Deliver the messages of a batch; its positions are committed by the consumer afterwards.

    Args:
        sender: produces messages.

    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def start(self) -> None:
        """Do nothing: the producer needs no preparation."""

    def deliver(self, batch: Batch) -> DeliveryResult:
        """Deliver a batch, see `Delivery`."""
        outputs = [output for share in batch.partitions for output in share.outputs]
        dropped = 0
        try:
            while self._sender.send(outputs) is not None:
                replacements = self._sender.replace(self._sender.pop_rejected())
                outputs = [output for output in replacements.values() if output is not None]
                dropped += len(replacements) - len(outputs)
        except KafkaException as error:
            raise ClientsLostError(f"producer: {cause_of(error).str()}") from error
        finally:
            self._sender.forget_retries()
        return DeliveryResult(batch, dropped=dropped)

    def idle(self) -> None:
        """Run the producer's callbacks."""
        self._sender.idle()

    def stop(self) -> None:
        """Give up unacknowledged messages."""
        self._sender.stop()


class ConsumerOffsetCommits(OffsetCommits):
    """Commit positions with the consumer, one commit at a time.

    A synchronous commit from another thread does not return while the consumer is being read
    (librdkafka 2.16: it returned when the reading paused, 12 s later; asynchronous commits of the
    same load took 2 to 6 ms). So the polling thread commits asynchronously, and `poll` answers.

    Args:
        log: where failed commits are logged.

    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._added: dict[PartitionKey, TopicPartition] = {}
        self._failed: list[PartitionKey] = []
        self._failure: KafkaError | None = None
        self._unanswered = 0

    @property
    def pending(self) -> bool:
        """Whether a position is still to be committed, or a commit is unanswered."""
        return bool(self._unanswered or self._added)

    def can_close_consumer(self, *, batch_in_flight: bool) -> bool:
        """Return whether nothing is left to commit: else closing would wait for a broker."""
        return not self.pending and not batch_in_flight

    def add(self, positions: Iterable[TopicPartition]) -> None:
        """Add positions; a newer position of a partition replaces the older one."""
        self._added.update({(one.topic, one.partition): one for one in positions})

    def drop_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the positions of partitions that this member no longer owns."""
        for one in partitions:
            self._added.pop((one.topic, one.partition), None)

    def commit(self, consumer: Consumer) -> None:
        """Commit unless a commit is unanswered: without a broker they would pile up."""
        if self._added and not self._unanswered:
            positions = self._pop_added()
            self._unanswered += 1
            try:
                consumer.commit(offsets=positions, asynchronous=True)
            except KafkaException as error:
                self.on_commit(cause_of(error), positions)

    def commit_and_wait(self, consumer: Consumer) -> None:
        """Commit and wait for the answer, before partitions are revoked."""
        if self._added:
            positions = self._pop_added()
            try:
                self._note(consumer.commit(offsets=positions, asynchronous=False) or [])
            except KafkaException as error:
                self._fail(cause_of(error), positions)

    def on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """Accept the client's answer to an asynchronous commit."""
        self._unanswered -= 1
        if error is not None:
            self._fail(error, positions)
        else:
            self._note(positions)

    def pop_failed(self) -> list[PartitionKey]:
        """Return the partitions whose commit failed since the last call, to commit them again.

        Raises:
            KafkaException: a commit failed and no retry will succeed.

        """
        if self._failure is not None:
            raise KafkaException(self._failure)
        failed, self._failed = self._failed, []
        return failed

    def _pop_added(self) -> list[TopicPartition]:
        positions, self._added = list(self._added.values()), {}
        return positions

    def _note(self, results: list[TopicPartition]) -> None:
        for result in results:
            if result.error is not None:
                self._fail(result.error, [result], topic=result.topic, partition=result.partition)

    def _fail(self, error: KafkaError, positions: list[TopicPartition], **fields: object) -> None:
        """Log why a commit failed; keep the error if no retry will succeed."""
        if error.code() not in _NO_LONGER_OWNED and not is_transient(error):
            self._failure = error
        self._failed += [(one.topic, one.partition) for one in positions]
        self._log.warning(
            LogEvent.COMMIT_FAILED, error=error.str(), action="committing again", **fields
        )
