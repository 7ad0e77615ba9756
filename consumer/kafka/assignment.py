"""The partitions that the group has assigned to this member."""

from collections.abc import Mapping

from confluent_kafka import TopicPartition
from msgspec import Struct

from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.batch import PartitionKey
from consumer.kafka.context import Context
from consumer.kafka.session import Session
from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_reporter import OutcomeReporter


class Telemetry(Struct, frozen=True):
    """What reports on the service; it lives as long as the process.

    Attributes:
        reporter: turns outcomes into records, dead letters and log lines.
        metrics: counts what happens; outcomes count when they are committed.
        health: gets this member's place in the group.

    """

    reporter: OutcomeReporter
    metrics: Metrics
    health: Health


class Assignment:
    """The assigned partitions.

    Args:
        context: settings, clock, log and stop.
        session: the objects that share the Kafka clients.
        telemetry: gets outcomes.

    Attributes:
        partitions: by topic and partition.

    """

    def __init__(self, context: Context, session: Session, telemetry: Telemetry) -> None:
        self.partitions: dict[PartitionKey, AssignedPartition] = {}
        self._context = context
        self._session = session
        self._telemetry = telemetry

    def add(self, partitions: Mapping[PartitionKey, AssignedPartition]) -> None:
        """Start to read partitions, each at its position."""
        self.partitions.update(partitions)
        self._session.consumer.incremental_assign(
            [TopicPartition(*key, one.core.position) for key, one in partitions.items()]
        )

    def remove(self, partitions: list[TopicPartition]) -> None:
        """Stop reading partitions, and drop their state."""
        self._drop(partitions)
        self._session.consumer.incremental_unassign(partitions)

    def read_from(self, key: PartitionKey, offset: int) -> None:
        """Continue at another offset; the client refuses to seek where it has stopped fetching."""
        self._session.consumer.incremental_unassign([TopicPartition(*key)])
        self._session.consumer.incremental_assign([TopicPartition(*key, offset)])

    def relocate(self, key: PartitionKey, error: str) -> None:
        """Continue where the log has messages, since its next offset is not in the log.

        Args:
            key: topic and partition.
            error: what is wrong, for the log.

        Raises:
            UnansweredError: the cluster does not answer.
            KafkaException: the cluster refuses to answer.
            Stopped: the service is to stop.

        """
        log, (topic, number), former = self._context.log, key, self.partitions[key]
        fields = {"topic": topic, "partition": number, "offset": former.core.position}
        found = self._session.starter.relocate(key, former)
        if found is not former:
            former.core.close_all()
            self.report_outcomes()
        if found is None:
            self._drop([TopicPartition(*key)])
            reason = "the recreated topic does not have this partition"
            log.error(LogEvent.TOPIC_RECREATED, **fields, error=reason)
            return
        if found is not former:
            found.restore(former.cut_batch(self._context.clock.monotonic()))
            self.partitions[key] = found
        recreated = found.topic_hash != former.topic_hash
        event = LogEvent.TOPIC_RECREATED if recreated else LogEvent.KAFKA_ERROR
        log.error(event, **fields, error=error, start_offset=found.core.position)
        self.read_from(key, found.core.position)

    def report_outcomes(self) -> None:
        """Report the outcomes of all partitions since the last call."""
        reporter, metrics = self._telemetry.reporter, self._telemetry.metrics
        for one in self.partitions.values():
            one.report_outcomes(reporter, metrics)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        self._session.committer.drop_revoked(partitions)
        self._session.offsets.drop_revoked(partitions)
        for one in partitions:
            self.partitions.pop((one.topic, one.partition), None)
