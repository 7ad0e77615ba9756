"""A Kafka cluster in memory: what real clients could observe of one, without threads and time.

`test_broker.py` holds it against a real Kafka. It is exact about what may be seen when, which
clients are fenced and what is refused; it knows nothing of replicas, requests, or waiting.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.kafka_in_memory.groups import Group, GroupMetadata, Position
from tests.support.kafka_in_memory.log import (
    Headers,
    Message,
    Outcome,
    Partition,
    Place,
    Transaction,
)

_MAX_METADATA: Final = 4096
_MAX_MESSAGE_BYTES: Final = 1_048_588
_BATCH_BYTES: Final = 70  # What a batch of one record needs besides key, value and headers.


class Clock(Protocol):
    """Tells the time."""

    def monotonic(self) -> float: ...
    def wall(self) -> int: ...


class RefusedError(Exception):
    """The broker does not do what it was asked to."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Topic:
    def __init__(self, number: int, name: str, config: Mapping[str, str]) -> None:
        self.id = f"{name}-{number}"
        self.limit = int(config.get("max.message.bytes", _MAX_MESSAGE_BYTES))
        self.size = 0


class _Producer:
    """What the broker knows of a transactional id."""

    def __init__(self) -> None:
        self.epoch = -1
        self.timeout = 0.0
        self.transaction: Transaction | None = None
        self.last: Outcome | None = None


class MemoryBroker:
    """The whole cluster.

    Args:
        clock: for timeouts and timestamps.

    Attributes:
        between: called with the name of an operation before it has an effect, and, if its
            answer may be lost, with the name and `.done` after the effect. It may let others run,
            raise a KafkaException, or end the client with an exception of its own.
        fail_next: by name of an operation, what its next calls raise.
        away: whether no broker can be reached. Timeouts go on.
        partitions: all logs.

    """

    def __init__(self, clock: Clock) -> None:
        self.between: Callable[[str], None] = lambda _operation: None
        self.fail_next: dict[str, list[KafkaException]] = {}
        self.away = False
        self.clock = clock
        self.partitions: dict[Place, Partition] = {}
        self._topics: dict[str, _Topic] = {}
        self._changes = 0
        self._created = 0
        self._groups: dict[str, Group] = {}
        self._producers: dict[str, _Producer] = {}

    def call(self, operation: str) -> None:
        """Note that a client does something, and fail if a test wants it to."""
        self.between(operation)
        if failures := self.fail_next.get(operation):
            raise failures.pop(0)
        self.expire()

    def expire(self) -> None:
        """Abort transactions and expel members whose time is over."""
        now = self.clock.monotonic()
        for producer in self._producers.values():
            if producer.transaction is not None and now > producer.transaction.deadline:
                producer.epoch += 1
                self._end(producer, Outcome.ABORTED)
        for group in self._groups.values():
            group.expire(now)

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; `config` may have `max.message.bytes`."""
        if name in self._topics:
            raise RefusedError(KafkaError.TOPIC_ALREADY_EXISTS)
        self._created += 1
        self._topics[name] = _Topic(self._created, name, config or {})
        self.add_partitions(name, partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have so many partitions."""
        for number in range(self._topics[topic].size, total):
            self.partitions[topic, number] = Partition((topic, number))
        self._topics[topic].size = total
        self._changes += 1

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and what groups have committed for it."""
        for number in range(self._topics.pop(name).size):
            del self.partitions[name, number]
        self._changes += 1
        for group in self._groups.values():
            group.forget(name)

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """Delete records, as retention does."""
        if offset > self.partitions[topic, partition].end:
            raise RefusedError(KafkaError.OFFSET_OUT_OF_RANGE)
        self.partitions[topic, partition].delete_below(offset)

    def topic_id(self, topic: str) -> str:
        """Return what tells a topic from an earlier one of that name."""
        return self._topics[topic].id

    def size_of(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if there is none."""
        return self._topics[topic].size if topic in self._topics else 0

    # Transactions

    def init_producer(self, name: str, timeout: float) -> int:
        """Return the epoch with which a producer goes on, and fence all with an earlier one."""
        producer = self._producers.setdefault(name, _Producer())
        if producer.transaction is not None:
            self._end(producer, Outcome.ABORTED)
        producer.epoch += 1
        producer.timeout = timeout
        return producer.epoch

    def end_transaction(self, name: str, epoch: int, outcome: Outcome) -> None:
        """End a transaction; asking again, since the answer was lost, does no harm."""
        producer = self._not_fenced(name, epoch)
        if producer.transaction is not None:
            self._end(producer, outcome)
        elif producer.last is not outcome:
            raise RefusedError(KafkaError.INVALID_TXN_STATE)

    def append(
        self,
        place: Place,
        content: tuple[bytes | None, bytes | None, Headers],
        timestamp: int = 0,
        producer: tuple[str, int] | None = None,
        *,
        in_order: bool = True,
    ) -> Message:
        """Write a record.

        Args:
            place: where to.
            content: key, value and headers.
            timestamp: milliseconds; 0 stands for now.
            producer: transactional id and epoch of the producer whose transaction it is part of.
            in_order: whether the producer has lost none since its last one there.

        Raises:
            RefusedError: it is not written.

        """
        transaction = self._transaction(*producer) if producer else None
        if place not in self.partitions:
            raise RefusedError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        key, value, headers = content
        size = len(key or b"") + len(value or b"") + _BATCH_BYTES
        size += sum(len(name) + len(text or b"") for name, text in headers)
        if size > self._topics[place[0]].limit:
            raise RefusedError(KafkaError.MSG_SIZE_TOO_LARGE)
        if not in_order:
            raise RefusedError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        timestamp = timestamp or self.clock.wall()
        return self.partitions[place].append(content, timestamp, transaction)

    def _transaction(self, name: str, epoch: int) -> Transaction:
        """Return the open transaction of a producer, whose time begins with its first use."""
        producer = self._not_fenced(name, epoch)
        if producer.transaction is None:
            producer.transaction = Transaction(self.clock.monotonic() + producer.timeout)
        return producer.transaction

    def _not_fenced(self, name: str, epoch: int) -> _Producer:
        producer = self._producers[name]
        if producer.epoch != epoch:
            raise RefusedError(KafkaError.INVALID_PRODUCER_EPOCH)
        return producer

    def _end(self, producer: _Producer, outcome: Outcome) -> None:
        transaction, producer.transaction = producer.transaction, None
        if transaction is None:
            return
        producer.last = transaction.outcome = outcome
        for partition in transaction.partitions:
            partition.end_transaction(transaction)
        for group in self._groups.values():
            group.end_transaction(transaction)

    # Groups

    def group(self, name: str) -> Group:
        """Return a group, which begins to exist when a client asks for it."""
        if name not in self._groups:
            self._groups[name] = Group(name, lambda: (self._changes, self.partitions))
        return self._groups[name]

    def commit(self, committer: GroupMetadata, positions: list[TopicPartition]) -> None:
        """Commit offsets outside of transactions: all but the refused ones."""
        group = self.group(committer.group)
        accepted, code = self._accepted(group, committer, positions, transactional=False)
        group.offsets.update(accepted)
        if code is not None:
            raise RefusedError(code)

    def commit_in_transaction(
        self, name: str, epoch: int, committer: GroupMetadata, positions: list[TopicPartition]
    ) -> None:
        """Add offsets to a transaction."""
        transaction = self._transaction(name, epoch)
        group = self.group(committer.group)
        accepted, code = self._accepted(group, committer, positions, transactional=True)
        group.pending.setdefault(transaction, {}).update(accepted)
        if code is not None:
            raise RefusedError(code)

    @staticmethod
    def _accepted(
        group: Group,
        committer: GroupMetadata,
        positions: list[TopicPartition],
        *,
        transactional: bool,
    ) -> tuple[dict[Place, Position], int | None]:
        """Return what may be committed, and the code of the last error."""
        code = group.refusal(committer, transactional=transactional)
        if code is not None:
            return {}, code
        accepted = {}
        for one in positions:
            # The client sends the text with the zero that ends it; Java counts in UTF-16.
            if one.metadata and len(one.metadata.encode("utf-16-le")) // 2 >= _MAX_METADATA:
                code = KafkaError.OFFSET_METADATA_TOO_LARGE
            else:
                place = one.topic, one.partition
                accepted[place] = group.position(one)
        return accepted, code
