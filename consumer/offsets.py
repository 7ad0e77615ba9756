"""Commits of positions, made and answered on the thread that polls the consumer.

A synchronous commit from another thread does not come back while the consumer is being read
(librdkafka 2.16: it returned when the reading paused, 12 s later; asynchronous commits of the
same load took 2 to 6 ms). So commits are asynchronous, and answered inside `poll`.
"""

from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from msgspec import Struct

from consumer.clients import may_pass
from consumer.logs import Event, Logger

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


class Settled(Struct):
    """What became of positions.

    Attributes:
        committed: those that the group has now.
        left: those that it did not take; the next commit of their partitions makes up for them.

    """

    committed: list[TopicPartition]
    left: list[TopicPartition]


class Offsets:
    """Commits positions and notes what became of them.

    Args:
        log: where lines go.

    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._settled = Settled([], [])
        self._failure: KafkaError | None = None
        self.on_their_way = 0

    def commit(
        self, consumer: Consumer, positions: list[TopicPartition], *, wait: bool = False
    ) -> None:
        """Commit positions.

        Args:
            consumer: whose group it is.
            positions: next offset to read of each partition, with metadata.
            wait: come back only when the group has answered; for a partition about to go.

        """
        if not positions:
            return
        try:
            if wait:
                self._note(consumer.commit(offsets=positions, asynchronous=False) or [])
            else:
                self.on_their_way += 1
                consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            if not wait:
                self.on_their_way -= 1
            self._excuse(error.args[0])
            self._settled.left += positions

    def on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """Take the client's answer to an asynchronous commit; given to it as `on_commit`."""
        self.on_their_way = max(self.on_their_way - 1, 0)
        if error is not None:
            self._excuse(error)
            self._settled.left += positions
        else:
            self._note(positions)

    def settled(self) -> Settled:
        """Return what became of positions since the last call.

        Raises:
            KafkaException: a commit failed, and none will ever succeed.

        """
        if self._failure is not None:
            raise KafkaException(self._failure)
        settled, self._settled = self._settled, Settled([], [])
        return settled

    def _note(self, results: list[TopicPartition]) -> None:
        for result in results:
            if result.error is None:
                self._settled.committed.append(result)
                continue
            self._excuse(result.error, topic=result.topic, partition=result.partition)
            self._settled.left.append(result)

    def _excuse(self, error: KafkaError, **fields: object) -> None:
        """Log why a commit failed; keep the error if no commit will ever succeed."""
        if error.code() not in _MOVED_ON and not may_pass(error):
            self._failure = error
        self._log.warning(Event.COMMIT_FAILED, error=error.str(), follows="left", **fields)
