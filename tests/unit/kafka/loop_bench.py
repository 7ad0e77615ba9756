"""A consume loop on the broker in memory, turned by hand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from consumer import app
from consumer.core.checkpoint import Checkpoint, decode, topic_hash
from consumer.kafka.administrator import Administrator, Cluster
from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.committer import Committer
from consumer.kafka.context import Context
from consumer.kafka.delivery import Delivery
from consumer.settings.settings import Settings
from consumer.telemetry.health import Health
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import totals_by_name
from consumer.telemetry.stop import Stop
from tests.support.kafka_in_memory.administrator import MemoryAdministrator
from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.kafka_in_memory.consumer import MemoryConsumer, read_committed
from tests.support.kafka_in_memory.groups import GroupMetadata, Position
from tests.support.kafka_in_memory.log import Message
from tests.support.kafka_in_memory.producer import MemoryProducer
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import pipeline
from tests.unit.kafka.fakes import Log, failure

INPUT: Final = "input"
GROUP: Final = "group"
ABORTED: Final = failure(KafkaError.ILLEGAL_GENERATION, abortable=True)
_WRITTEN_AT: Final = 1_767_225_600_000
_FOREVER: Final = 10**12
_UPSTREAM: Final = "upstream"


class LoopConsumer(MemoryConsumer):
    """A consumer whose place in its group and whose pace are the test's.

    Attributes:
        is_expelled: whether the group has expelled it, which it does not know yet.
        max_messages: how many messages one `consume` returns.
        on_poll: called before each poll, with its timeout.
        on_idle: called when a poll returns nothing.
        is_closed: whether it was closed.
        commits: the positions of each commit that did not fail.
        answers_commits: whether a broker answers asynchronous commits.

    """

    def __init__(self, broker: MemoryBroker, on_commit: Any) -> None:
        config = {
            "group.id": GROUP,
            "session.timeout.ms": _FOREVER,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "on_commit": on_commit,
        }
        super().__init__(broker, config)
        self.is_expelled = False
        self.answers_commits = True
        self.max_messages = _FOREVER
        self.on_poll: Callable[[float], None] = lambda _timeout: None
        self.on_idle: Callable[[], None] = lambda: None
        self.is_closed = False
        self.commits: list[list[TopicPartition]] = []

    def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        answer = super().commit(offsets=offsets, asynchronous=asynchronous)
        self.commits.append(offsets)
        return answer

    def poll(self, timeout: float = -1) -> Message | None:
        self.on_poll(timeout)
        message = super().poll(timeout)
        if message is None:
            self.on_idle()
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return super().consume(min(num_messages, self.max_messages), timeout)

    def report(self, error: KafkaError) -> None:
        """Return an error from the next poll."""
        self._events.append(Message((INPUT, 0), None, error=error))

    def call_back(self, event: str, *partitions: int) -> None:
        """Tell the service that partitions are assigned, revoked or lost."""
        self._tell(event, [(INPUT, number) for number in partitions])

    def close(self) -> None:
        super().close()
        self.is_closed = True

    @property
    def positions(self) -> dict[int, int]:
        """By partition, where the client reads."""
        return {number: cursor.position for (_, number), cursor in self._cursors.items()}

    @property
    def paused(self) -> bool:
        return any(cursor.paused for cursor in self._cursors.values())

    def _metadata(self) -> GroupMetadata:
        found = super()._metadata()
        return found._replace(generation=-1) if self.is_expelled else found

    def _answer_commits(self) -> None:
        if self.answers_commits:
            super()._answer_commits()


class InlineCommitter(Committer):
    """A committer without a thread: it delivers while the loop waits for it.

    Attributes:
        is_stuck: whether no call of the producer returns.

    """

    is_stuck = False

    def start(self) -> None:
        """Prepare when the loop waits for that."""

    def _wait_until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        if not self.is_stuck and self._failure is None:
            try:
                if not self._started:
                    self._delivery.start()
                    self._started = True
                self.deliver_handed_over()
            except BaseException as error:  # noqa: BLE001 - as in the thread.
                self._failure, self._batch = error, None
        if not reached() and timeout_s > 0:
            self._clock.sleep(timeout_s)
        return reached()


class LoopBench:
    """A loop whose clock and broker are in the hand of the test.

    Args:
        broker: where another loop has been; a new one by default.
        partitions: how many partitions the input of a new broker has.
        metrics: of a loop before it; new ones by default.
        skip: messages to skip.
        max_output_bytes: how large a record or dead letter the broker accepts.
        settings: other than the defaults.

    """

    def __init__(
        self,
        broker: MemoryBroker | None = None,
        *,
        partitions: int = 1,
        metrics: Metrics | None = None,
        skip: tuple[tuple[str, int, int], ...] = (),
        max_output_bytes: int = 1_000_000,
        **settings: Any,
    ) -> None:
        defaults: dict[str, Any] = {
            "topics": (INPUT,),
            "group": GROUP,
            "output_topic": "records",
            "dead_letter_topic": "dead",
            "commit_interval": 1.0,
            "shutdown_timeout": 10.0,
            "transactional_id": "mine",
        }
        self.settings = Settings(**defaults | settings)
        if broker is None:
            broker = MemoryBroker(ManualClock())
            broker.create_topic(INPUT, partitions)
            for topic in ("records", "dead"):
                broker.create_topic(topic, 1, {"max.message.bytes": str(max_output_bytes)})
        self.broker, self.clock = broker, cast("ManualClock", broker.clock)
        self.log, self.stop, self.metrics = Log(), Stop(), metrics or Metrics()
        self.calls: list[str] = []
        broker.between = self.calls.append
        self.administrator = MemoryAdministrator(broker)
        service = app.Service(
            Context(self.settings, self.clock, self.log, self.stop),
            pipeline(skip=frozenset(skip)),
            cast("Administrator", self.administrator),
            Cluster("fleet", True, 1_000_000, 1_000_000, {INPUT: 100}),
            Health(self.stop, self.settings.shutdown_timeout, self.clock, self.log),
            self.metrics,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app, "make_consumer", self._make_consumer)
            patch.setattr(app, "make_producer", self._make_producer)
            patch.setattr(app, "Committer", self._make_committer)
            self.loop = service._make_loop()
        self._is_started = False

    def _make_consumer(self, _settings: Settings, on_commit: Any, _on: Any) -> LoopConsumer:
        self.consumer = LoopConsumer(self.broker, on_commit)
        return self.consumer

    def _make_producer(self, settings: Settings, *_: Any) -> MemoryProducer:
        config: dict[str, Any] = {"transaction.timeout.ms": _FOREVER}
        if settings.transactional:
            config["transactional.id"] = settings.transactional_id
        return MemoryProducer(self.broker, config)

    def _make_committer(self, delivery: Delivery, clock: ManualClock) -> InlineCommitter:
        self.committer = InlineCommitter(delivery, clock)
        return self.committer

    # The course of things

    def start(self) -> None:
        """Join the group; its answer comes with a poll."""
        self._is_started = True
        self.loop._start()
        self.calls.clear()

    def turn(self) -> None:
        """Turn the loop once, and let the committer deliver what it was given."""
        if not self._is_started:
            self.start()
        self.loop._run_once()
        self.committer.wait_until_delivered(0)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and turn often enough that commits are made and answered."""
        self.clock.advance(seconds)
        for _ in range(3):
            self.turn()

    def write(self, *values: bytes, partition: int = 0, upstream: bool = False) -> None:
        """Write messages to the input, perhaps in a transaction of the producer of the input."""
        producer = (_UPSTREAM, self.broker.init_producer(_UPSTREAM, _FOREVER)) if upstream else None
        for value in values:
            place = INPUT, partition
            self.broker.append(place, (None, value, []), _WRITTEN_AT, producer)

    def send(self, *values: bytes, partition: int = 0) -> None:
        """Write messages to the input and turn the loop once, which reads them."""
        self.write(*values, partition=partition)
        self.turn()

    def abort_next(self, times: int = 1) -> None:
        """Have the next transactions aborted."""
        self.fail("producer.commit_transaction", *[ABORTED] * times)

    def fail(self, operation: str, *errors: Any) -> None:
        """Have the next calls fail; numbers stand for codes of errors."""
        failures = [failure(error) if isinstance(error, int) else error for error in errors]
        self.broker.fail_next[operation] = failures

    def revoke(self, *partitions: int) -> None:
        self.consumer.call_back("revoke", *partitions or [0])

    def lose(self, *partitions: int) -> None:
        self.consumer.call_back("lost", *partitions or [0])

    def recreate_topic(self, partitions: int = 1) -> None:
        self.broker.delete_topic(INPUT)
        self.broker.create_topic(INPUT, partitions)

    def crash(self) -> MemoryBroker:
        """End without a word; return the broker for another loop."""
        self.broker.group(GROUP).members.clear()
        return self.broker

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Let no call of the producer return for a while."""
        self.committer.is_stuck = True
        yield
        self.committer.is_stuck = False
        self.committer.wait_until_delivered(0)

    # What there is to see

    @property
    def keys(self) -> list[bytes | None]:
        """Keys of the records that a subscriber reads."""
        return [message.key() for message in read_committed(self.broker, "records")]

    @property
    def letters(self) -> list[Message]:
        return read_committed(self.broker, "dead")

    @property
    def totals(self) -> dict[str, int]:
        return totals_by_name(self.metrics.totals)

    @property
    def commit_count(self) -> int:
        """How many commits there were."""
        commits = ("producer.commit_transaction", "consumer.commit")
        return sum(call in commits for call in self.calls)

    def partition(self, number: int = 0) -> AssignedPartition:
        return self.loop._assignment.partitions[INPUT, number]

    def position(self, partition: int = 0) -> Position | None:
        return self.broker.group(GROUP).offsets.get((INPUT, partition))

    def committed(self, partition: int = 0) -> int | None:
        found = self.position(partition)
        return None if found is None else found.offset

    def checkpoint(self) -> Checkpoint:
        found = self.position()
        assert found is not None
        hashed = topic_hash(self.broker.topic_id(INPUT))
        checkpoint = decode(found.metadata or "", found.offset, hashed)
        assert isinstance(checkpoint, Checkpoint)
        return checkpoint

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"acceptance_{name}", labels)
