"""What is delivered and committed together."""

from typing import Protocol

from confluent_kafka import TopicPartition
from msgspec import Struct

from consumer.core.output_messages import OutputMessage
from consumer.telemetry.outcome_counts import OutcomeCounts

PartitionKey = tuple[str, int]  # Topic and partition.


class PartitionBatch(Struct, frozen=True):
    """What one partition adds to a batch.

    Attributes:
        position: next offset to read, with the checkpoint as metadata.
        outputs: messages for the output topics that come from before the position.
        counts: what happened since the position before.

    """

    position: TopicPartition
    outputs: list[OutputMessage]
    counts: OutcomeCounts

    @property
    def place(self) -> PartitionKey:
        """Topic and partition."""
        return self.position.topic, self.position.partition


class Batch(Struct, frozen=True):
    """What is committed together.

    Attributes:
        parts: one for each partition that takes part.
        group: the consumer's membership in its group at the moment of the hand-over, by which the
            broker tells a member from one that has been replaced; None without transactions.

    """

    parts: list[PartitionBatch]
    group: bytes | None = None


class Stopped(Exception):  # noqa: N818 - no error.
    """The committer is told to give up what is not done."""


class Delivery(Protocol):
    """How a batch gets to the broker."""

    @property
    def dropped(self) -> int:
        """How many messages were larger than their topic takes, even alone."""
        ...

    def start(self) -> None:
        """Make ready for batches.

        Raises:
            ClientsLostError: the clients are of no use.
            ClusterError: the cluster does not allow it as the settings are.
            KafkaFailureError: this will never succeed.
            Stopped: `stop` was called meanwhile.

        """
        ...

    def deliver(self, batch: Batch) -> str | None:
        """Deliver a batch.

        Returns:
            None; or why nothing of it counts, and it is to be given again.

        Raises:
            ClientsLostError: the clients are of no use any more.
            KafkaFailureError: this will never succeed.
            Stopped: `stop` was called meanwhile.

        """
        ...

    def idle(self) -> None:
        """Let the client say what it has to, while there is nothing to deliver."""
        ...

    def stop(self) -> None:
        """Give up as soon as possible; called from another thread."""
        ...
