"""Where a partition starts: its state is found again at its committed offset, on every assignment.

Questions are repeated for a while, because brokers come and go. A guessed answer would lose open
requests or publish a topic again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from consumer.core.checkpoint import Checkpoint, Ignored, NewerCheckpointError, decode
from consumer.core.partition import Pipeline
from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.batch import PartitionKey
from consumer.kafka.client_config import max_callback_s, transaction_timeout_s
from consumer.kafka.context import Context
from consumer.kafka.errors import ClusterError, UnansweredError, cause_of, is_transient
from consumer.kafka.retry import Retry
from consumer.kafka.topic_ids import TopicIds, hash_of
from consumer.telemetry.log_events import LogEvent

T = TypeVar("T")

_REQUEST_S: Final = 10.0
_PAUSE_S: Final = 0.2
_RECREATED_S: Final = 2.0  # For a partition that the recreated topic may not have.


class PartitionStarter:
    """Finds where partitions start, and their state there.

    Args:
        context: settings, clock, log and stop.
        pipeline: makes the state of partitions.
        consumer: answers questions about partitions.
        topic_ids: answers questions about topics.
        partition_counts: how many partitions each topic had when the service started.

    """

    def __init__(
        self,
        context: Context,
        pipeline: Pipeline,
        consumer: Consumer,
        topic_ids: TopicIds,
        partition_counts: Mapping[str, int],
    ) -> None:
        clock, log, stop = context.clock, context.log, context.stop
        self._settings = context.settings
        self._clock = clock
        self._log = log
        self._pipeline = pipeline
        self._consumer = consumer
        self._topic_ids = topic_ids
        self._partition_counts = partition_counts
        self._max_s = max_callback_s(context.settings)  # Nothing polls meanwhile.
        self._retry = Retry(lambda: stop.requested, clock, log, pause_s=_PAUSE_S)

    def find(self, assigned: list[TopicPartition]) -> dict[PartitionKey, AssignedPartition]:
        """Return each assigned partition with its state at the group's committed offset.

        The state resumes at the checkpoint of the commit. Without a usable checkpoint the partition
        starts without history: at the committed offset if the log has it, or else where the setting
        `start` or the log begins.

        Raises:
            UnansweredError: the cluster does not answer.
            ClusterError: a checkpoint is of a newer version, and `newer_checkpoints` is `refuse`.
            KafkaException: the cluster refuses to answer.
            Stopped: the service is to stop.

        """
        committed = self._committed(assigned)
        hashes = self._topic_hashes("ids of topics", {one.topic for one in assigned})
        return {
            (one.topic, one.partition): self._state_at(one, hashes[one.topic]) for one in committed
        }

    def relocate(self, key: PartitionKey, partition: AssignedPartition) -> AssignedPartition | None:
        """Find where to continue in a partition whose next offset is not in the log.

        Returns:
            the same partition, at another position, if messages were deleted by age or size: its
            open requests may still end; a state without history, if offsets refer to other messages
            now; None, if the recreated topic does not have this partition.

        Raises:
            UnansweredError: the cluster does not answer.
            KafkaException: the cluster refuses to answer.
            Stopped: the service is to stop.

        """
        topic, number = key
        topic_hash = self._topic_hashes(f"id of topic {topic}", [topic])[topic]
        if topic_hash != partition.topic_hash:
            try:
                low, _ = self._watermarks(topic, number, _RECREATED_S)
            except UnansweredError:
                return None
            return self._without_history(topic, number, low, topic_hash)
        low, high = self._watermarks(topic, number)
        core = partition.core
        if core.position > high:  # The end of the log was cut off.
            return self._without_history(topic, number, high, topic_hash)
        if low > core.position:
            core.position = low
            partition.intact = False  # What is re-read may no longer lead to the same state.
        return partition

    def _state_at(self, committed: TopicPartition, topic_hash: int) -> AssignedPartition:
        topic, number, offset = committed.topic, committed.partition, committed.offset
        low, high = self._watermarks(topic, number)
        if offset < 0:
            first = self._first_offset(topic, number, (low, high), topic_hash)
            return self._without_history(topic, number, first, topic_hash)
        checkpoint = self._checkpoint_of(committed, topic_hash)
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
        return self._without_history(topic, number, start, topic_hash)

    def _checkpoint_of(self, committed: TopicPartition, topic_hash: int) -> Checkpoint | Ignored:
        """Decode the checkpoint of a committed offset.

        Raises:
            ClusterError: it is of a newer version, and `newer_checkpoints` is `refuse`.

        """
        try:
            return decode(committed.metadata or "", committed.offset, topic_hash)
        except NewerCheckpointError as error:
            if self._settings.newer_checkpoints == "refuse":
                raise ClusterError(
                    f"group {self._settings.group!r}: partition {committed.partition} of topic "
                    f"{committed.topic!r} was last committed by a newer version of this service "
                    f"({error}...); run that version, or set newer_checkpoints to ignore, which "
                    "forgets the open requests"
                ) from error
            return Ignored("metadata of a newer version")

    def _without_history(
        self, topic: str, number: int, offset: int, topic_hash: int
    ) -> AssignedPartition:
        core = self._pipeline.partition(topic, number, offset)
        return AssignedPartition(core, topic_hash, None, self._clock.monotonic())

    def _resumed(
        self, checkpoint: Checkpoint, topic: str, number: int, low: int, topic_hash: int
    ) -> AssignedPartition:
        core = self._pipeline.resume(topic, number, checkpoint)
        deleted = max(0, low - core.position)
        core.position += deleted
        if deleted or not core.live:
            log = self._log.warning if deleted else self._log.info
            log(
                LogEvent.REREAD_STARTED,
                topic=topic,
                partition=number,
                offset=core.position,
                position=checkpoint.position,
                open_requests=len(checkpoint.open),
                deleted=deleted,
            )
        intact = not deleted and checkpoint.settings == self._pipeline.settings_digest
        now = self._clock.monotonic()
        return AssignedPartition(core, topic_hash, checkpoint.position, now, intact=intact)

    def _first_offset(
        self, topic: str, number: int, watermarks: tuple[int, int], topic_hash: int
    ) -> int:
        """Return where a partition starts for which the group has no committed offset."""
        low, high = watermarks
        start = self._settings.start
        if start == "earliest" or number >= self._partition_counts.get(topic, 0):
            return low  # What was written to a new partition before it was noticed is not old.
        if start == "latest":
            time = self._time_of_group(topic, number, topic_hash)
            return high if time is None else self._first_since(topic, number, time, high)
        return self._first_since(topic, number, int(start), high)

    def _time_of_group(self, topic: str, number: int, topic_hash: int) -> int | None:
        """Return the clock of the group in the partitions of lower numbers, in ms since 1970.

        A partition that was added after the group first started has a higher number than all that
        the group has read, and must not start later than the group stands.
        """
        lower = self._committed([TopicPartition(topic, lower) for lower in range(number)])
        found = [self._checkpoint_of(one, topic_hash) for one in lower if one.offset >= 0]
        times = [
            one.start.clock for one in found if isinstance(one, Checkpoint) and one.start.clock
        ]
        return min(times, default=None)

    def _first_since(self, topic: str, number: int, time: int, high: int) -> int:
        """Return the offset of the first message that is not older than a time."""
        wanted, ask = TopicPartition(topic, number, time), self._consumer.offsets_for_times
        [found] = self._answer(
            f"offsets of {topic}:{number}", lambda: _checked(ask([wanted], timeout=_REQUEST_S))
        )
        return found.offset if found.offset >= 0 else high

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if not partitions:
            return []
        ask, max_s = self._consumer.committed, self._max_s
        if self._settings.transactional:
            # A new producer releases those of a transaction that brokers do not end.
            max_s = min(max_s, 2 * transaction_timeout_s(self._settings))
        return self._answer(
            "committed offsets", lambda: _checked(ask(partitions, timeout=_REQUEST_S)), max_s
        )

    def _topic_hashes(self, what: str, topics: Iterable[str]) -> dict[str, int]:
        def ask() -> dict[str, int]:
            return {
                topic: hash_of(answer)
                for topic, answer in self._topic_ids.describe_topics(topics).items()
            }

        return self._answer(what, ask)

    def _watermarks(self, topic: str, number: int, max_s: float | None = None) -> tuple[int, int]:
        partition, ask = TopicPartition(topic, number), self._consumer.get_watermark_offsets
        what = f"watermarks of {topic}:{number}"
        return self._answer(what, lambda: ask(partition, timeout=_REQUEST_S), max_s)

    def _answer(self, what: str, ask: Callable[[], T], max_s: float | None = None) -> T:
        """Return the cluster's answer; ask again while an error may pass.

        Raises:
            UnansweredError: the error has not passed in time.
            KafkaException: the error will not pass.
            Stopped: the service is to stop.

        """
        try:
            return self._retry.call(ask, self._max_s if max_s is None else max_s, operation=what)
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
