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
from consumer.kafka.turn import Turn
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import EventTotal

_CHUNK: Final = 64  # Messages of content, which are quick, between two readings of the clock.
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
        self.turn = Turn(context, metrics)

    def feed_in_time(self, messages: Sequence[ConsumedMessage]) -> None:
        """Feed messages until the turn is over; the rest is read again."""
        self.turn.begin()
        fed = 0
        while fed < len(messages):
            chunk = messages[fed : fed + _CHUNK]
            done = self.feed(chunk)
            fed += done
            if done < len(chunk) or self.turn.is_over(chunk[-1]) or self._context.stop.requested:
                break
        self.turn.end(fed)
        if fed < len(messages) and not self._context.stop.requested:
            self._return(messages[fed:])  # When the service stops, they are not committed either.

    def feed(self, messages: Sequence[ConsumedMessage]) -> int:
        """Feed messages, of which those of one partition mostly follow each other.

        Returns:
            how many were fed before the turn was over.

        """
        if _are_alike(messages):
            return self._feed_partition(_key_of(messages[0]), messages)
        done = 0
        for (key, good), group in groupby(messages, lambda m: (_key_of(m), m.error() is None)):
            some = list(group)
            fed = self._feed_partition(key, some) if good else self._handle_errors(some)
            done += fed
            if fed < len(some):
                break
        return done

    def _return(self, messages: Sequence[ConsumedMessage]) -> None:
        """Have messages that were not fed read again."""
        first: dict[PartitionKey, int] = {}
        for message in messages:
            if message.error() is None:
                first.setdefault(_key_of(message), message.offset() or 0)
        for key, offset in first.items():
            if key in self._assignment.partitions:
                self._assignment.read_from(key, offset)

    def _feed_partition(self, key: PartitionKey, messages: Sequence[ConsumedMessage]) -> int:
        """Feed messages of one partition, none of which is an error; return how many were fed."""
        partition = self._assignment.partitions.get(key)
        if partition is None:
            self._metrics.count(EventTotal.REVOKED_MESSAGES, len(messages))
            return len(messages)
        fed, reread = partition.feed(messages, self.turn.is_over)
        if reread:
            self._metrics.count(EventTotal.REREAD_MESSAGES, reread)
        if partition.pop_went_live():
            self._log_live(partition)
        return fed

    def _handle_errors(self, messages: Sequence[ConsumedMessage]) -> int:
        for message in messages:
            if (error := message.error()) is not None:
                self._handle_error(message, error)
        return len(messages)

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
