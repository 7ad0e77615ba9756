"""What the loop and the committer ask of a kind of delivery: exactly once or at least once."""

from collections.abc import Iterable
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition
from msgspec import Struct

from consumer.kafka.batch import Batch, PartitionKey


class DeliveryResult(Struct, frozen=True):
    """What became of a batch.

    Attributes:
        batch: the batch as it was delivered or, after an error, as it is to be handed over again.
        error: why the batch was aborted; None if the broker has all of it.
        dropped: number of messages that were dropped because each alone exceeds its topic's limit.

    """

    batch: Batch
    error: str | None = None
    dropped: int = 0


class Delivery(Protocol):
    """Delivers batches. The committer's thread calls every method except `stop`."""

    def start(self) -> None:
        """Prepare for batches.

        Raises:
            ClientsLostError: the producer has to be replaced.
            ClusterError: the cluster does not allow the settings.
            KafkaFailureError: no retry will succeed.
            Stopped: `stop` was called meanwhile.

        """

    def deliver(self, batch: Batch) -> DeliveryResult:
        """Deliver a batch.

        Raises:
            ClientsLostError: the producer has to be replaced.
            KafkaFailureError: no retry will succeed.
            Stopped: `stop` was called meanwhile.

        """

    def idle(self) -> None:
        """Run the producer's callbacks while there is nothing to deliver."""

    def stop(self) -> None:
        """Give up undelivered messages as soon as possible; called from another thread."""


class OffsetCommits:
    """Commits the positions of delivered batches. The thread that polls the consumer calls it.

    This base commits nothing: a transaction contains its positions.
    """

    @property
    def pending(self) -> bool:
        """Whether a position is still to be committed, or a commit is unanswered."""
        return False

    def can_hand_over(self, group_metadata: bytes) -> bool:  # noqa: ARG002
        """Return whether a batch may be handed over with this membership."""
        return True

    def can_close_consumer(self, *, batch_in_flight: bool) -> bool:  # noqa: ARG002
        """Return whether closing the consumer returns even if no broker is reachable."""
        return True

    def add(self, positions: Iterable[TopicPartition]) -> None:
        """Add positions of a delivered batch, with their checkpoints as metadata."""

    def drop_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the positions of partitions that this member no longer owns."""

    def commit(self, consumer: Consumer) -> None:
        """Commit the added positions without waiting for the answer."""

    def commit_and_wait(self, consumer: Consumer) -> None:
        """Commit the added positions and wait for the answer, before partitions are revoked."""

    def on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """Accept the client's answer to an asynchronous commit."""

    def pop_failed(self) -> list[PartitionKey]:
        """Return the partitions whose commit failed since the last call.

        Raises:
            KafkaException: a commit failed and no retry will succeed.

        """
        return []
