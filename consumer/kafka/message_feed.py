"""Feeds what the consumer returns, messages and errors, to the assigned partitions."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from confluent_kafka import KafkaError

from consumer.kafka.assigned_partition import AssignedPartition, ConsumedMessage
from consumer.kafka.assignment import Assignment
from consumer.kafka.batch import PartitionKey
from consumer.kafka.client_config import is_static_member
from consumer.kafka.context import Context
from consumer.kafka.errors import ClientsLostError, FencedError, KafkaFailureError
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import EventTotal

_MAX_TURN_S: Final = 10.0
_CHUNK: Final = 64  # Messages between two readings of the clock.
_PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's public constants
_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - are named so.
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001


class MessageFeed:
    """Feeds messages to partitions.

    Args:
        context: settings, clock, log and stop.
        assignment: the assigned partitions.
        metrics: counts messages without an outcome.

    """

    def __init__(self, context: Context, assignment: Assignment, metrics: Metrics) -> None:
        self._context = context
        self._assignment = assignment
        self._metrics = metrics

    def feed_in_time(self, messages: Sequence[ConsumedMessage]) -> None:
        """Feed messages, but stop before the group would expel a member that does not poll."""
        clock = self._context.clock
        limit = clock.monotonic() + _MAX_TURN_S
        for first in range(0, len(messages), _CHUNK):
            self.feed(messages[first : first + _CHUNK])
            if self._context.stop.requested:
                return  # What was not fed is not committed either.
            if clock.monotonic() > limit:
                self._return(messages[first + _CHUNK :])
                return

    def feed(self, messages: Sequence[ConsumedMessage]) -> None:
        """Feed messages, of which those of one partition mostly follow each other."""
        if _are_alike(messages):
            self._feed_partition(_key_of(messages[0]), messages)
            return
        for (key, good), group in groupby(messages, lambda m: (_key_of(m), m.error() is None)):
            if good:
                self._feed_partition(key, list(group))
                continue
            for message in group:
                if (error := message.error()) is not None:
                    self._handle_error(message, error)

    def _return(self, messages: Sequence[ConsumedMessage]) -> None:
        """Have messages that were not fed read again."""
        first: dict[PartitionKey, int] = {}
        for message in messages:
            if message.error() is None:
                first.setdefault(_key_of(message), message.offset() or 0)
        for key, offset in first.items():
            if key in self._assignment.partitions:
                self._assignment.read_from(key, offset)

    def _feed_partition(self, key: PartitionKey, messages: Sequence[ConsumedMessage]) -> None:
        """Feed messages of one partition, none of which is an error."""
        partition = self._assignment.partitions.get(key)
        if partition is None:
            self._metrics.count(EventTotal.REVOKED_MESSAGES, len(messages))
            return
        if reread := partition.feed(messages):
            self._metrics.count(EventTotal.REREAD_MESSAGES, reread)
        if partition.pop_went_live():
            self._log_live(partition)

    def _handle_error(self, message: ConsumedMessage, error: KafkaError) -> None:
        partition = self._assignment.partitions.get(_key_of(message))
        code, log = error.code(), self._context.log
        if code == _PARTITION_EOF:
            if partition is not None:
                partition.reach_end(message.offset() or 0, self._context.clock.monotonic())
                if partition.pop_went_live():
                    self._log_live(partition)
        elif code == _OUT_OF_RANGE:
            if partition is not None:
                self._assignment.relocate(partition.key, error.str())
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise KafkaFailureError(error.str())
        elif error.fatal() or code == _FATAL:  # The client marks the latter as not fatal.
            if is_static_member(self._context.settings):
                raise FencedError(f"another process has this group.instance.id: {error.str()}")
            raise ClientsLostError(f"consumer: {error.str()}")
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            log.error(LogEvent.TOPIC_UNAVAILABLE, topic=message.topic(), error=error.str())
        else:
            log.warning(LogEvent.KAFKA_ERROR, topic=message.topic(), error=error.str())

    def _log_live(self, partition: AssignedPartition) -> None:
        log, core, (topic, number) = self._context.log, partition.core, partition.key
        fields = {"topic": topic, "partition": number, "offset": core.position}
        log.info(LogEvent.REREAD_FINISHED, **fields, open_requests=core.open_requests)
        if core.ended_in_reread and partition.intact:
            log.error(LogEvent.STATE_DIFFERS, **fields, requests=core.ended_in_reread)


def _key_of(message: ConsumedMessage) -> PartitionKey:
    return message.topic() or "", message.partition() or 0


def _are_alike(messages: Sequence[ConsumedMessage]) -> bool:
    """Return whether all messages are of one partition, and none is an error."""
    return (
        len({message.partition() for message in messages}) == 1
        and len({message.topic() for message in messages}) == 1
        and {message.error() is None for message in messages} == {True}
    )
