"""What is looked at every second, since nobody would tell: silence, held offsets, new topics.

Kafka says nothing where a partition has fallen silent, where somebody's open transaction hides
what comes after it, or where a topic was deleted and made anew.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.kafka.batch import PartitionKey
from consumer.kafka.errors import cause_of
from consumer.kafka.partition_start import AssignedPartition, TopicIds, hash_of
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.metrics import AssignmentState

_ANSWER_S: Final = 1.0
_TOPICS_EVERY_S: Final = 10.0
_REREAD_EVERY_S: Final = 10.0
_HELD_S: Final = 30.0
_HELD_AGAIN_S: Final = 300.0
_MISSING: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the client's public constants are named so.
)


class PartitionMonitor:
    """Looks at the assigned partitions.

    Args:
        idle_timeout: seconds of silence after which open requests are closed.
        consumer: answers questions about partitions.
        topics: answers questions about topics.
        clock: for intervals.
        log: where lines go.

    """

    def __init__(
        self, idle_timeout: float, consumer: Consumer, topics: TopicIds, clock: Clock, log: Logger
    ) -> None:
        self._idle_timeout = idle_timeout
        self._consumer = consumer
        self._topics = topics
        self._clock = clock
        self._log = log
        self._asked: Mapping[str, Future[Any]] = {}
        self._ask_at = clock.monotonic() + _TOPICS_EVERY_S
        self._missing: set[str] = set()

    def close_silent(self, assigned: Mapping[PartitionKey, AssignedPartition]) -> None:
        """Close the open requests of partitions in which nothing has come for too long."""
        now = self._clock.monotonic()
        for (topic, number), one in assigned.items():
            since, core = one.at_end_since, one.core
            if since is None or now - since < self._idle_timeout or not core.open_requests:
                continue
            try:
                at_end = core.live and self._end(topic, number) <= one.end
            except KafkaException:
                # Where no broker answers, nobody knows. The others are asked in the next round, as
                # each of these questions holds up the loop.
                one.at_end_since = now
                break
            if not at_end:
                one.at_end_since = now
                continue
            count = core.open_requests
            core.close_silent()
            self._log.info(LogEvent.PARTITION_SILENT, topic=topic, partition=number, requests=count)

    def tell_progress(self, assigned: Mapping[PartitionKey, AssignedPartition]) -> None:
        """Say how far partitions have been read again."""
        now = self._clock.monotonic()
        for (topic, number), one in assigned.items():
            if one.core.live or now - one.told_at < _REREAD_EVERY_S:
                continue
            one.told_at = now
            self._log.info(
                LogEvent.REREAD_PROGRESS,
                topic=topic,
                partition=number,
                offset=one.core.position,
                position=one.core.resumed_at,
                remaining=one.core.resumed_at - one.core.position,
            )

    def tell_held(self, assigned: Mapping[PartitionKey, AssignedPartition]) -> None:
        """Say where more was written than may be read, and has been for a while.

        A reader at the last stable offset is not even told that it has reached an end.
        """
        now = self._clock.monotonic()
        for (topic, number), one in assigned.items():
            position = one.core.position
            if position != one.seen_at:
                one.seen_at, one.seen_since, one.held_told_at = position, now, None
            told = one.held_told_at
            if now - one.seen_since < _HELD_S or (told and now - told < _HELD_AGAIN_S):
                continue
            partition = TopicPartition(topic, number)
            try:
                _, written = self._consumer.get_watermark_offsets(partition, cached=True)
                if written <= position:
                    continue
                _, visible = self._consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)
            except KafkaException:
                one.seen_since = now  # As above: each of these questions holds up the loop.
                break
            if visible <= position:
                one.held_told_at = now
                self._log.warning(
                    LogEvent.LAST_STABLE_OFFSET_BLOCKED,
                    topic=topic,
                    partition=number,
                    offset=position,
                    hidden_messages=written - position,
                    seconds=round(now - one.seen_since),
                )

    def state(self, assigned: Mapping[PartitionKey, AssignedPartition]) -> AssignmentState:
        """Return what the partitions look like now; nothing is asked of a broker."""
        cores = {place: one.core for place, one in assigned.items()}
        left = [core.resumed_at - core.position for core in cores.values() if not core.live]
        lags = {}
        for place, core in cores.items():
            with suppress(KafkaException):
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
                if end >= 0:  # Else nothing was fetched yet.
                    lags[place] = max(0, end - max(core.position, core.resumed_at))
        return AssignmentState(
            open_requests=sum(core.open_requests for core in cores.values()),
            oldest_open_age=max((core.oldest_open_age for core in cores.values()), default=0.0),
            lags=lags,
            assigned=len(cores),
            rereading=len(left),
            reread_left=sum(left),
        )

    def recreated(self, assigned: Mapping[PartitionKey, AssignedPartition]) -> list[PartitionKey]:
        """Return partitions whose topic is another one by now, though its name is the same."""
        now = self._clock.monotonic()
        if not self._asked and now >= self._ask_at:
            self._ask_at = now + _TOPICS_EVERY_S
            self._asked = self._topics.describe_topics({topic for topic, _ in assigned})
        if not self._asked or not all(future.done() for future in self._asked.values()):
            return []
        hashes = self._hashes(self._asked)
        self._asked = {}
        return [
            place
            for place, one in assigned.items()
            if hashes.get(place[0], one.topic_hash) != one.topic_hash
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

    def _end(self, topic: str, number: int) -> int:
        """Ask where the log ends, with what a transaction holds back that is still open."""
        partition = TopicPartition(topic, number)
        _, visible = self._consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)
        _, written = self._consumer.get_watermark_offsets(partition, cached=True)
        return max(visible, written)
