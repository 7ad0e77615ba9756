"""The broker in memory and a real one, used in the same way."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.kafka.server.cluster import KafkaCluster
from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.kafka_in_memory.consumer import MemoryConsumer
from tests.support.kafka_in_memory.producer import MemoryProducer
from tests.support.manual_clock import ManualClock

T = TypeVar("T")
Client = Any  # A client of either side.
Seen = tuple[bytes | int | None, int | None]
"""The value of a message or the code of an error, and the offset."""

_SECONDS: Final = 15.0
_QUIET_S: Final = 0.25
_STEP_S: Final = 0.02
_ROUNDS: Final = 50
SESSION_S: Final = 1.5
"""How long a group waits for its members."""

_READER: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
_MEMBER: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": round(SESSION_S * 1000),
}


class MemorySide:
    """The broker in memory."""

    step = 0.0

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"name-{self._names}"

    def topic(self, partitions: int = 1, **config: str) -> str:
        name = self.name()
        self.broker.create_topic(name, partitions, _dotted(config))
        return name

    def recreate(self, topic: str) -> None:
        self.broker.delete_topic(topic)
        self.broker.create_topic(topic)

    def topic_id(self, topic: str) -> str:
        return self.broker.topic_id(topic)

    def add_partitions(self, topic: str, total: int) -> None:
        self.broker.add_partitions(topic, total)

    def delete_below(self, topic: str, offset: int) -> None:
        self.broker.delete_below(topic, 0, offset)

    def consumer(self, config: Mapping[str, Any]) -> Client:
        return MemoryConsumer(self.broker, config)

    def producer(self, config: Mapping[str, Any]) -> Client:
        return MemoryProducer(self.broker, config)

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def rounds(self) -> Iterator[None]:
        yield from [None] * _ROUNDS

    def quiet(self) -> Iterator[None]:
        yield from [None] * 3

    def close(self) -> None:
        pass


class RealSide:
    """A real Kafka, each test with topics and groups of its own."""

    step = _STEP_S

    def __init__(self, kafka: KafkaCluster) -> None:
        self._kafka = kafka
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        self._consumers: list[Consumer] = []

    def name(self) -> str:
        return uuid4().hex[:12]

    def topic(self, partitions: int = 1, **config: str) -> str:
        name = self.name()
        self._kafka.create_topic(name, partitions, config=_dotted(config))
        return name

    def recreate(self, topic: str) -> None:
        self._kafka.delete_topic(topic)
        self._kafka.create_topic(topic)

    def topic_id(self, topic: str) -> str:
        futures = self._admin.describe_topics(TopicCollection([topic]))
        return str(futures[topic].result(_SECONDS).topic_id)

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(_SECONDS)

    def delete_below(self, topic: str, offset: int) -> None:
        place = TopicPartition(topic, 0, offset)
        self._admin.delete_records([place])[place].result(_SECONDS)

    def consumer(self, config: Mapping[str, Any]) -> Client:
        defaults = {
            "bootstrap.servers": self._kafka.bootstrap_servers,
            "fetch.wait.max.ms": 20,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
        if "session.timeout.ms" in config:
            # A process that stands still is not heard of either; here, only its polls stop.
            defaults["max.poll.interval.ms"] = config["session.timeout.ms"]
            defaults["heartbeat.interval.ms"] = 100
        self._consumers.append(Consumer({**defaults, **config}))
        return self._consumers[-1]

    def producer(self, config: Mapping[str, Any]) -> Client:
        defaults = {
            "bootstrap.servers": self._kafka.bootstrap_servers,
            "linger.ms": 0,
            "log_level": 0,
        }
        return Producer({**defaults, **config})

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def rounds(self) -> Iterator[None]:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            yield

    def quiet(self) -> Iterator[None]:
        deadline = time.monotonic() + _QUIET_S
        while time.monotonic() < deadline:
            yield

    def close(self) -> None:
        for consumer in self._consumers:
            with suppress(RuntimeError):  # It may be closed.
                consumer.close()


class Bench:
    """What the tests do with a side."""

    def __init__(self, side: MemorySide | RealSide) -> None:
        self.side = side

    def until(self, look: Callable[[], T], seen_so_far: Callable[[], object] = str) -> T:
        """Do something until it gives something."""
        for _ in self.side.rounds():
            if seen := look():
                return seen
        raise AssertionError(seen_so_far())

    # Producers

    def transactional(self, name: str | None = None, **config: Any) -> Client:
        """Return a producer that is ready for its first transaction."""
        name = name or self.side.name()
        producer = self.side.producer({"transactional.id": name, **_dotted(config)})
        producer.init_transactions(_SECONDS)
        return producer

    def write(self, topic: str, *values: bytes) -> None:
        """Write without a transaction."""
        producer = self.side.producer({})
        for value in values:
            producer.produce(topic, value)
            assert producer.flush(_SECONDS) == 0

    def begin(self, producer: Client, topic: str, *values: bytes) -> None:
        """Begin a transaction, of which the broker has some records."""
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
            assert producer.flush(_SECONDS) == 0

    # Readers

    def reader(self, topic: str, offset: int = 0, **config: Any) -> Client:
        """Return a consumer without a group that reads a partition."""
        consumer = self.side.consumer({"group.id": self.side.name(), **_READER, **_dotted(config)})
        consumer.assign([TopicPartition(topic, 0, offset)])
        return consumer

    def read(self, consumer: Client, least: int = 1) -> list[Seen]:
        """Return what comes until nothing comes any more: values, or codes of errors."""
        seen: list[Seen] = []

        def take() -> bool:
            message = consumer.poll(self.side.step)
            if message is not None:
                error = message.error()
                seen.append((error.code() if error else message.value(), message.offset()))
            return len(seen) >= least

        if least:
            self.until(take, lambda: seen)
        for _ in self.side.quiet():
            take()
        return seen

    def watermarks(self, consumer: Client, topic: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the watermarks by a question and as of the last fetch."""
        place = TopicPartition(topic, 0)
        asked = consumer.get_watermark_offsets(place, timeout=_SECONDS)
        return asked, consumer.get_watermark_offsets(place, cached=True)

    # Groups

    def member(self, topic: str, group: str, **config: Any) -> "Watched":
        """Return a consumer that has subscribed and has not polled."""
        consumer = self.side.consumer({"group.id": group, **_MEMBER, **_dotted(config)})
        return Watched(self, consumer, topic)

    def wait_until_owned(self, *members: "Watched", sizes: tuple[int, ...]) -> None:
        """Let members poll until they have so many partitions each."""

        def look() -> bool:
            for one in members:
                one.poll()
            return tuple(len(one.owned) for one in members) == sizes

        self.until(look, lambda: [one.callbacks for one in members])

    def committed(self, consumer: Client, topic: str) -> tuple[int, str | None]:
        """Return what a consumer's group has committed of partition 0."""
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=_SECONDS)
        return found.offset, found.metadata


class Watched:
    """A member of a group that notes the callbacks of its assignment."""

    def __init__(self, bench: Bench, consumer: Client, topic: str) -> None:
        self.consumer = consumer
        self.callbacks: list[tuple[str, list[int]]] = []
        self.owned: set[int] = set()
        self.errors: list[int] = []
        self.then: Callable[[str], None] = lambda _what: None
        self._step = bench.side.step
        consumer.subscribe(
            [topic],
            on_assign=self._taking("assign"),
            on_revoke=self._taking("revoke"),
            on_lost=self._taking("lost"),
        )

    def poll(self) -> Self:
        message = self.consumer.poll(self._step)
        error = message.error() if message is not None else None
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self.errors.append(error.code())
        return self

    def metadata(self) -> Any:
        return self.consumer.consumer_group_metadata()

    def _taking(self, what: str) -> Callable[[Client, list[TopicPartition]], None]:
        def take(consumer: Client, partitions: list[TopicPartition]) -> None:
            numbers = {one.partition for one in partitions}
            self.callbacks.append((what, sorted(numbers)))
            self.then(what)
            if what == "assign":
                self.owned |= numbers
                consumer.incremental_assign(partitions)
            else:
                self.owned -= numbers
                consumer.incremental_unassign(partitions)

        return take


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Turn Python names into those of properties."""
    return {name.replace("_", "."): value for name, value in config.items()}
