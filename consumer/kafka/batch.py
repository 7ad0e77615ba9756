"""What is delivered and committed together."""

from confluent_kafka import TopicPartition
from msgspec import Struct

from consumer.core.output_messages import OutputMessage
from consumer.telemetry.outcome_counts import OutcomeCounts

PartitionKey = tuple[str, int]  # Topic and partition.


class PartitionBatch(Struct, frozen=True):
    """One partition's share of a batch.

    Attributes:
        position: next offset to read, with the checkpoint as metadata.
        outputs: messages for the output topics that come from before the position.
        counts: what happened since the previous position.

    """

    position: TopicPartition
    outputs: list[OutputMessage]
    counts: OutcomeCounts

    @property
    def key(self) -> PartitionKey:
        """Topic and partition."""
        return self.position.topic, self.position.partition


class Batch(Struct, frozen=True):
    """What is delivered and committed together.

    Attributes:
        partitions: the shares of the partitions that take part.
        group_metadata: the consumer's membership when the batch was handed over. With it the broker
            rejects the commit of a member that the group has replaced.

    """

    partitions: list[PartitionBatch]
    group_metadata: bytes = b""
