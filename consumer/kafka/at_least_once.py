"""Commits of positions, made and answered on the thread that polls the consumer.

A synchronous commit from another thread does not come back while the consumer is being read
(librdkafka 2.16: it returned when the reading paused, 12 s later; asynchronous commits of the
same load took 2 to 6 ms). So commits are asynchronous, and answered inside `poll`.
"""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.kafka.batch import PartitionKey
from consumer.kafka.errors import may_pass
from consumer.telemetry.logging_setup import LogEvent, Logger

# The group has moved on: whoever has the partition now reads it again from the last commit.
_MOVED_ON: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._STATE,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)


class OffsetCommits:
    """Commits positions, one commit at a time, and notes which ones failed.

    Args:
        log: where lines go.

    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._waiting: dict[PartitionKey, TopicPartition] = {}
        self._left: list[PartitionKey] = []
        self._failure: KafkaError | None = None
        self._unanswered = 0

    @property
    def settled(self) -> bool:
        """Whether every commit has been answered, and no position waits for one."""
        return not self._unanswered and not self._waiting

    def add(self, positions: Iterable[TopicPartition]) -> None:
        """Take positions that are to be committed: next offsets to read, with metadata."""
        self._waiting.update({(one.topic, one.partition): one for one in positions})

    def drop_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget positions of partitions that belong to somebody else by now."""
        for one in partitions:
            self._waiting.pop((one.topic, one.partition), None)

    def commit(self, consumer: Consumer) -> None:
        """Commit what waits, unless a commit is still unanswered: without broker they pile up."""
        if self._waiting and not self._unanswered:
            positions = self._take()
            self._unanswered += 1
            try:
                consumer.commit(offsets=positions, asynchronous=True)
            except KafkaException as error:
                self.on_commit(error.args[0], positions)

    def commit_at_once(self, consumer: Consumer) -> None:
        """Commit what waits, and come back with the answer: the partitions are about to go."""
        if self._waiting:
            positions = self._take()
            try:
                self._note(consumer.commit(offsets=positions, asynchronous=False) or [])
            except KafkaException as error:
                self._fail(error.args[0], positions)

    def on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """Take the client's answer to a commit; given to it as `on_commit`."""
        self._unanswered -= 1
        if error is not None:
            self._fail(error, positions)
        else:
            self._note(positions)

    def left(self) -> list[PartitionKey]:
        """Return the partitions whose commit failed since the last call; the next one makes up.

        Raises:
            KafkaException: a commit failed, and none will ever succeed.

        """
        if self._failure is not None:
            raise KafkaException(self._failure)
        left, self._left = self._left, []
        return left

    def _take(self) -> list[TopicPartition]:
        positions, self._waiting = list(self._waiting.values()), {}
        return positions

    def _note(self, results: list[TopicPartition]) -> None:
        for result in results:
            if result.error is not None:
                self._fail(result.error, [result], topic=result.topic, partition=result.partition)

    def _fail(self, error: KafkaError, positions: list[TopicPartition], **fields: object) -> None:
        """Log why a commit failed; keep the error if no commit will ever succeed."""
        if error.code() not in _MOVED_ON and not may_pass(error):
            self._failure = error
        self._left += [(one.topic, one.partition) for one in positions]
        self._log.warning(LogEvent.COMMIT_FAILED, error=error.str(), follows="left", **fields)
