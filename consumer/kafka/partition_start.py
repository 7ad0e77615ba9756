"""Where a partition begins: its state is found again at its committed offset, on every assignment.

What is asked of the cluster is asked again for a while: brokers come and go. An answer that is
guessed would lose open requests or publish a topic again.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage
from msgspec import Struct, field

from consumer.core.checkpoint import Checkpoint, Ignored, NewerCheckpointError, decode, topic_hash
from consumer.core.message import Message
from consumer.core.output_messages import OutputMessage
from consumer.core.partition import MessageResult, Partition, Pipeline
from consumer.kafka.batch import PartitionKey
from consumer.kafka.client_config import transaction_timeout_s
from consumer.kafka.errors import ClusterError, UnansweredError, cause_of, is_transient
from consumer.kafka.retry import Retry
from consumer.settings.settings import Settings
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.outcome_counts import OutcomeCounts
from consumer.telemetry.stop import Stop

T = TypeVar("T")

_REQUEST_S: Final = 10.0
_AGAIN_S: Final = 0.2
_PATIENCE_WITH_NEW_S: Final = 2.0  # With a partition of a new topic, which may have none such.


class TopicIds(Protocol):
    """Tells the ids of topics, by which a recreated topic is told from the one before."""

    def describe_topics(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        """Ask for topics; each answer has a `topic_id`, or raises `KafkaException`."""
        ...


def hash_of(answer: Future[Any]) -> int:
    """Return the hash of the topic's id in an answer.

    Raises:
        KafkaException: the cluster does not tell. A guess would make every checkpoint foreign.

    """
    return topic_hash(str(answer.result().topic_id))


class AssignedPartition(Struct):
    """One assigned partition.

    Attributes:
        core: the pipeline's state of it; reading goes on at its position.
        topic_hash: hash of the topic's id.
        handed: position last handed over for a commit; None if the group has not got it.
        handed_at: when that was, in seconds of the monotonic clock.
        intact: whether all that its checkpoint speaks of was still there.
        changed: whether there was an outcome since it was handed over last.
        others: messages that were not accepted, with their outcomes, still to be reported.
        outputs: messages for the output topics since then.
        counts: what happened since then.
        possible_repeats: how many of the core's possible repeats were counted.
        last: the last message that was taken.
        end: the offset at which the log ended when that was reached last.
        at_end_since: when that was, or None if messages came since.
        told_at: when the progress of re-reading was logged last.
        seen_at: position at which it was found when it was looked at last.
        seen_since: when it was found there first.
        held_told_at: when it was logged last that messages are hidden there.

    """

    core: Partition
    topic_hash: int
    handed: int | None
    handed_at: float
    intact: bool = True
    changed: bool = False
    others: list[tuple[Message, MessageResult]] = field(default_factory=list)
    outputs: list[OutputMessage] = field(default_factory=list)
    counts: OutcomeCounts = field(default_factory=OutcomeCounts)
    possible_repeats: int = 0
    last: KafkaMessage | None = None
    end: int = 0
    at_end_since: float | None = None
    told_at: float = 0.0
    seen_at: int = -1
    seen_since: float = 0.0
    held_told_at: float | None = None


class PartitionStarter:
    """Finds the state of partitions.

    Args:
        settings: the settings.
        pipeline: the core.
        consumer: answers questions about partitions.
        topics: answers questions about topics.
        known: how many partitions each topic had when the service was started.
        patience: seconds for which questions are asked again; nobody polls meanwhile.
        stop: whether the service is told to stop.
        clock: for intervals.
        log: where lines go.

    """

    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        consumer: Consumer,
        topics: TopicIds,
        known: Mapping[str, int],
        patience: float,
        stop: Stop,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._consumer = consumer
        self._topics = topics
        self._known = known
        self._patience = patience
        self._retry = Retry(lambda: stop.requested, clock, log, pause_s=_AGAIN_S)
        self._clock = clock
        self._log = log

    def find(self, given: list[TopicPartition]) -> dict[PartitionKey, AssignedPartition]:
        """Find the state of partitions at their committed offsets.

        Raises:
            UnansweredError: the cluster does not answer.
            ClusterError: a checkpoint is of a newer version.
            KafkaException: it refuses to.
            Stopped: the service is told to stop.

        """
        committed = self._committed(given)
        hashes = self._asked("ids of topics", lambda: self._hashes({one.topic for one in given}))
        return {
            (one.topic, one.partition): self._found(one, hashes[one.topic]) for one in committed
        }

    def find_anew(
        self, place: PartitionKey, assigned: AssignedPartition
    ) -> AssignedPartition | None:
        """Find where to go on in a partition whose next offset is not in the log.

        Returns:
            what was given, if messages were deleted by age or size: what is open may end yet; a
            state without history, if offsets mean other messages now; None, if the topic was made
            anew without this partition.

        Raises:
            UnansweredError: the cluster does not answer.
            KafkaException: it refuses to.
            Stopped: the service is told to stop.

        """
        topic, number = place
        what = f"id of topic {topic}"
        topic_hash = self._asked(what, lambda: self._hashes([topic]))[topic]
        if topic_hash != assigned.topic_hash:
            try:
                low, _ = self._watermarks(topic, number, _PATIENCE_WITH_NEW_S)
            except UnansweredError:
                return None
            return self._clean(topic, number, low, topic_hash)
        low, high = self._watermarks(topic, number)
        core = assigned.core
        if core.position > high:  # Its end was cut off.
            return self._clean(topic, number, high, topic_hash)
        core.position = max(core.position, low)
        return assigned

    def _found(self, committed: TopicPartition, topic_hash: int) -> AssignedPartition:
        topic, number, offset = committed.topic, committed.partition, committed.offset
        low, high = self._watermarks(topic, number)
        if offset < 0:
            first = self._first_offset(topic, number, (low, high), topic_hash)
            return self._clean(topic, number, first, topic_hash)
        try:
            checkpoint = decode(committed.metadata or "", offset, topic_hash)
        except NewerCheckpointError as error:
            if self._settings.newer_checkpoints == "refuse":
                raise ClusterError(
                    f"group {self._settings.group!r}: partition {number} of topic {topic!r} was "
                    f"last committed by a newer version of this service ({error}...); run that "
                    "version, or set newer_checkpoints to ignore, which forgets the open requests"
                ) from error
            checkpoint = Ignored("metadata of a newer version")
        if not isinstance(checkpoint, Ignored) and offset <= high:
            return self._resumed(checkpoint, topic, number, low, topic_hash)
        if isinstance(checkpoint, Ignored):
            # Above the end, it is the offset of an earlier topic of this name.
            reason, start = checkpoint.reason, offset if low <= offset <= high else low
        else:
            reason, start = "the end of the topic was cut off", high
        self._log.warning(
            LogEvent.CHECKPOINT_IGNORED,
            topic=topic,
            partition=number,
            offset=offset,
            reason=reason,
            start_offset=start,
        )
        return self._clean(topic, number, start, topic_hash)

    def _clean(self, topic: str, number: int, offset: int, topic_hash: int) -> AssignedPartition:
        core = self._pipeline.partition(topic, number, offset)
        return AssignedPartition(core, topic_hash, None, self._clock.monotonic())

    def _resumed(
        self, checkpoint: Checkpoint, topic: str, number: int, low: int, topic_hash: int
    ) -> AssignedPartition:
        core = self._pipeline.resume(topic, number, checkpoint)
        deleted = max(0, low - core.position)
        core.position += deleted
        if deleted or not core.live:
            say = self._log.warning if deleted else self._log.info
            say(
                LogEvent.REREAD_STARTED,
                topic=topic,
                partition=number,
                offset=core.position,
                position=checkpoint.position,
                open_requests=len(checkpoint.open),
                deleted=deleted,
            )
        now = self._clock.monotonic()
        intact = not deleted and checkpoint.settings == self._pipeline.settings_digest
        return AssignedPartition(core, topic_hash, checkpoint.position, now, intact, told_at=now)

    def _first_offset(
        self, topic: str, number: int, watermarks: tuple[int, int], topic_hash: int
    ) -> int:
        """Return where a partition begins for which the group has no committed offset."""
        low, high = watermarks
        start = self._settings.start
        if start == "earliest" or number >= self._known.get(topic, 0):
            return low  # What was written to a new partition before it was noticed is not old.
        if start == "latest":
            time = self._time_of_others(topic, number, topic_hash)
            return high if time is None else self._first_since(topic, number, time, high)
        return self._first_since(topic, number, int(start), high)

    def _time_of_others(self, topic: str, number: int, topic_hash: int) -> int | None:
        """Return the stream time at which the group stands in the partitions of lower numbers.

        A partition that was added since the group first started has a higher number than all that
        the group has read, and is not to be begun later than where the group stands.
        """
        others = self._committed([TopicPartition(topic, lower) for lower in range(number)])
        found = [
            decode(one.metadata or "", one.offset, topic_hash) for one in others if one.offset >= 0
        ]
        times = [one.start.now for one in found if isinstance(one, Checkpoint) and one.start.now]
        return min(times, default=None)

    def _first_since(self, topic: str, number: int, time: int, high: int) -> int:
        """Return the offset of the first message that is not older than a time."""
        wanted, ask = TopicPartition(topic, number, time), self._consumer.offsets_for_times
        [found] = self._asked(
            f"offsets of {topic}:{number}", lambda: _checked(ask([wanted], timeout=_REQUEST_S))
        )
        return found.offset if found.offset >= 0 else high

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if not partitions:
            return []
        ask, patience = self._consumer.committed, self._patience
        if self._settings.transactional:
            # Those of a transaction that brokers do not end are released by a new producer.
            patience = min(patience, 2 * transaction_timeout_s(self._settings))
        return self._asked(
            "committed offsets", lambda: _checked(ask(partitions, timeout=_REQUEST_S)), patience
        )

    def _hashes(self, topics: Iterable[str]) -> dict[str, int]:
        return {
            topic: hash_of(answer) for topic, answer in self._topics.describe_topics(topics).items()
        }

    def _watermarks(
        self, topic: str, number: int, patience: float | None = None
    ) -> tuple[int, int]:
        partition, ask = TopicPartition(topic, number), self._consumer.get_watermark_offsets
        what = f"watermarks of {topic}:{number}"
        return self._asked(what, lambda: ask(partition, timeout=_REQUEST_S), patience)

    def _asked(self, what: str, ask: Callable[[], T], patience: float | None = None) -> T:
        """Ask the cluster, and again while what went wrong may pass.

        Raises:
            UnansweredError: it has not passed for too long.
            KafkaException: it will not pass.
            Stopped: the service is told to stop.

        """
        try:
            return self._retry.call(
                ask, max_s=self._patience if patience is None else patience, operation=what
            )
        except KafkaException as error:
            cause = cause_of(error)
            if is_transient(cause):
                raise UnansweredError(f"no answer, {what}: {cause.str()}") from error
            raise


def _checked(partitions: list[Any]) -> list[TopicPartition]:
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions
