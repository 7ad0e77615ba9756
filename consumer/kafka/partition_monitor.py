"""Checks for what Kafka does not report: silent partitions, held offsets, recreated topics."""

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.batch import PartitionKey
from consumer.kafka.context import Context
from consumer.kafka.errors import cause_of
from consumer.kafka.topic_ids import TopicIds, hash_of
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import AssignmentState

_ANSWER_S: Final = 1.0
_TOPICS_EVERY_S: Final = 10.0
_REREAD_EVERY_S: Final = 10.0
_HELD_AFTER_S: Final = 30.0
_HELD_EVERY_S: Final = 300.0
_MISSING: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the client's public constants are named so.
)

Partitions = Mapping[PartitionKey, AssignedPartition]


class _Observations:
    """What the monitor remembers of one partition; times are seconds of the monotonic clock.

    Attributes:
        not_silent_at: when a broker last said, or no broker could say, that more may come.
        reread_logged_at: when the progress of re-reading was last logged.
        position: where reading stood at the last check.
        position_since: when reading was first seen there.
        held_logged_at: when hidden messages were last logged for this position.

    """

    def __init__(self, now: float) -> None:
        self.not_silent_at = -math.inf
        self.reread_logged_at = now
        self.position = -1
        self.position_since = now
        self.held_logged_at: float | None = None


class PartitionMonitor:
    """Checks the assigned partitions.

    Args:
        context: settings, clock and log.
        consumer: answers questions about partitions.
        topic_ids: answers questions about topics.

    """

    def __init__(self, context: Context, consumer: Consumer, topic_ids: TopicIds) -> None:
        self._idle_timeout_s = context.settings.idle_timeout
        self._clock = context.clock
        self._log = context.log
        self._consumer = consumer
        self._topic_ids = topic_ids
        self._observations = WeakKeyDictionary[AssignedPartition, _Observations]()
        self._answers: Mapping[str, Future[Any]] = {}
        self._ask_at = self._clock.monotonic() + _TOPICS_EVERY_S
        self._missing: set[str] = set()

    def close_silent(self, partitions: Partitions) -> None:
        """Close the open requests of partitions in which nothing has come for too long."""
        now = self._clock.monotonic()
        for one, seen in self._observed(partitions, now):
            if one.at_end_since is None or not one.core.open_requests:
                continue
            if now - max(one.at_end_since, seen.not_silent_at) < self._idle_timeout_s:
                continue
            try:
                at_end = one.core.live and self._end(one.key) <= one.end
            except KafkaException:
                # No broker can say. The other partitions follow in the next round, since each of
                # these questions holds up the loop.
                seen.not_silent_at = now
                break
            if not at_end:
                seen.not_silent_at = now
                continue
            topic, number = one.key
            count = one.core.open_requests
            one.core.close_silent()
            self._log.info(LogEvent.PARTITION_SILENT, topic=topic, partition=number, requests=count)

    def log_reread_progress(self, partitions: Partitions) -> None:
        """Log now and then how far partitions have been re-read."""
        now = self._clock.monotonic()
        for one, seen in self._observed(partitions, now):
            if one.core.live or now - seen.reread_logged_at < _REREAD_EVERY_S:
                continue
            seen.reread_logged_at = now
            topic, number = one.key
            self._log.info(
                LogEvent.REREAD_PROGRESS,
                topic=topic,
                partition=number,
                offset=one.core.position,
                position=one.core.resumed_at,
                remaining=one.core.resumed_at - one.core.position,
            )

    def log_blocked_offsets(self, partitions: Partitions) -> None:
        """Log where an open transaction has hidden messages for a while.

        The client does not report the end of a partition to a reader at the last stable offset.
        """
        now = self._clock.monotonic()
        for one, seen in self._observed(partitions, now):
            position, logged_at = one.core.position, seen.held_logged_at
            if position != seen.position:
                seen.position, seen.position_since, seen.held_logged_at = position, now, None
                continue
            if now - seen.position_since < _HELD_AFTER_S:
                continue
            if logged_at is not None and now - logged_at < _HELD_EVERY_S:
                continue
            partition = TopicPartition(*one.key)
            try:
                _, written = self._consumer.get_watermark_offsets(partition, cached=True)
                if written <= position:
                    continue
                _, visible = self._consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)
            except KafkaException:
                seen.position_since = now  # As above: each of these questions holds up the loop.
                break
            if visible <= position:
                seen.held_logged_at = now
                topic, number = one.key
                self._log.warning(
                    LogEvent.LAST_STABLE_OFFSET_BLOCKED,
                    topic=topic,
                    partition=number,
                    offset=position,
                    hidden_messages=written - position,
                    seconds=round(now - seen.position_since),
                )

    def state(self, partitions: Partitions) -> AssignmentState:
        """Return the gauges of all partitions, without asking a broker."""
        cores = {key: one.core for key, one in partitions.items()}
        left = [core.resumed_at - core.position for core in cores.values() if not core.live]
        lags = {}
        for key, core in cores.items():
            with suppress(KafkaException):
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
                if end >= 0:  # Else nothing was fetched yet.
                    lags[key] = max(0, end - max(core.position, core.resumed_at))
        return AssignmentState(
            open_requests=sum(core.open_requests for core in cores.values()),
            oldest_open_age=max((core.oldest_open_age for core in cores.values()), default=0.0),
            lags=lags,
            assigned=len(cores),
            rereading=len(left),
            reread_remaining=sum(left),
        )

    def recreated(self, partitions: Partitions) -> list[PartitionKey]:
        """Return partitions whose topic was deleted and recreated; never wait for the answer."""
        now = self._clock.monotonic()
        if not self._answers and now >= self._ask_at:
            self._ask_at = now + _TOPICS_EVERY_S
            self._answers = self._topic_ids.describe_topics({topic for topic, _ in partitions})
        if not self._answers or not all(answer.done() for answer in self._answers.values()):
            return []
        hashes = self._hashes(self._answers)
        self._answers = {}
        return [
            key
            for key, one in partitions.items()
            if hashes.get(key[0], one.topic_hash) != one.topic_hash
        ]

    def _hashes(self, answers: Mapping[str, Future[Any]]) -> dict[str, int]:
        hashes = {}
        for topic, answer in answers.items():
            try:
                hashes[topic] = hash_of(answer)
            except KafkaException as error:
                if cause_of(error).code() in _MISSING and topic not in self._missing:
                    self._missing.add(topic)
                    self._log.error(
                        LogEvent.TOPIC_UNAVAILABLE, topic=topic, error=cause_of(error).str()
                    )
            else:
                self._missing.discard(topic)
        return hashes

    def _observed(
        self, partitions: Partitions, now: float
    ) -> Iterator[tuple[AssignedPartition, _Observations]]:
        """Yield partitions with their observations, which vanish with the partition's state."""
        for one in partitions.values():
            seen = self._observations.get(one)
            if seen is None:
                seen = self._observations[one] = _Observations(now)
            yield one, seen

    def _end(self, key: PartitionKey) -> int:
        """Ask where the log ends, including what an open transaction hides."""
        partition = TopicPartition(*key)
        _, visible = self._consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)
        _, written = self._consumer.get_watermark_offsets(partition, cached=True)
        return max(visible, written)
