"""All objects that share one set of Kafka clients."""

from confluent_kafka import Consumer
from msgspec import Struct

from consumer.kafka.committer import Committer
from consumer.kafka.delivery import OffsetCommits
from consumer.kafka.partition_monitor import PartitionMonitor
from consumer.kafka.partition_start import PartitionStarter


class Session(Struct, frozen=True):
    """One consumer and one producer, with the objects that use them.

    The service replaces the session as a whole when one of its clients fails.

    Attributes:
        consumer: a consumer that has not subscribed yet.
        committer: delivers records and dead letters with the producer.
        offsets: commits the positions of delivered batches.
        starter: finds where partitions start.
        monitor: checks partitions every second.

    """

    consumer: Consumer
    committer: Committer
    offsets: OffsetCommits
    starter: PartitionStarter
    monitor: PartitionMonitor
