"""A look back at a topic when its end is late, marked by transactions, or never comes."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from consumer import topic_range
from consumer.failures import ClusterError, NoBrokerError
from consumer.settings import Settings
from tests.kafka_fakes import FakeConsumer, FakeMessage, end, failure
from tests.manual_clock import ManualClock


class Looked(FakeConsumer):
    """A topic of two partitions; time passes while nothing comes."""

    def __init__(self) -> None:
        super().__init__()
        self.watermarks = {0: (5, 8), 1: (0, 0)}
        self.clock = ManualClock()
        self.error: KafkaError | None = None
        self.starts: list[TopicPartition] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout > 0
        self._fail("list_topics")
        described = SimpleNamespace(error=self.error, partitions={0: None, 1: None})
        return SimpleNamespace(topics={topic: described})

    def assign(self, starts: list[TopicPartition]) -> None:
        self.starts = starts

    def consume(self, most: int, timeout: float) -> list[FakeMessage]:
        self.clock.advance(timeout)
        return super().consume(most, timeout)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Looked:
    looked = Looked()
    monkeypatch.setattr(topic_range, "make_consumer", lambda _settings: looked)
    return looked


def read(consumer: Looked, **bounds: int) -> Iterator[int | None]:
    found = topic_range.read_range(Settings(), "input", clock=consumer.clock, **bounds)
    return (message.offset() for message in found)


def test_a_partition_ends_where_it_ended_when_it_was_asked(consumer: Looked) -> None:
    consumer.incoming = [FakeMessage(b"", offset) for offset in range(5, 12)]

    assert list(read(consumer)) == [5, 6, 7]
    assert [(one.partition, one.offset) for one in consumer.starts] == [(0, 5)]
    assert consumer.closed


def test_the_end_may_be_a_mark_of_a_transaction(consumer: Looked) -> None:
    """Which is no message: only the client can say that there is nothing more."""
    consumer.incoming = [FakeMessage(b"", 5), FakeMessage(b"", 6), end(8)]

    assert list(read(consumer)) == [5, 6]


def test_a_topic_without_messages_is_not_waited_for(consumer: Looked) -> None:
    consumer.watermarks = {0: (5, 5), 1: (0, 0)}

    assert list(read(consumer)) == []
    assert consumer.clock.monotonic() == ManualClock().monotonic()


def test_a_partition_whose_messages_are_all_too_old_is_not_read(consumer: Looked) -> None:
    consumer.watermarks = {0: (5, 8), 1: (0, 9)}
    consumer.times = {1: 8}
    consumer.incoming = [FakeMessage(b"", 8, 1, timestamp=100)]

    assert list(read(consumer, since_ms=100)) == [8]
    assert [(one.partition, one.offset) for one in consumer.starts] == [(1, 8)]


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_what_may_pass_or_is_of_the_group_is_passed_over(consumer: Looked, code: int) -> None:
    """The client asks for the coordinator of a group that is never joined."""
    consumer.incoming = [FakeMessage(None, 0, error=KafkaError(code)), FakeMessage(b"", 7)]

    assert list(read(consumer)) == [7]


def test_a_minute_in_which_nothing_comes_but_errors_is_the_end_of_patience(
    consumer: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = FakeMessage(None, 0, error=KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def consume(_most: int, timeout: float) -> list[FakeMessage]:
        consumer.clock.advance(timeout)
        return [passing]

    monkeypatch.setattr(consumer, "consume", consume)
    with pytest.raises(ClusterError, match="before the end of partition 0: no broker answers, or"):
        list(read(consumer))
    assert consumer.clock.monotonic() - ManualClock().monotonic() == 60
    assert consumer.closed


def test_an_error_that_stays_is_told(consumer: Looked) -> None:
    forbidden = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    consumer.incoming = [FakeMessage(None, 0, error=forbidden)]

    with pytest.raises(ClusterError, match="Topic authorization failed") as caught:
        list(read(consumer))
    assert not isinstance(caught.value, NoBrokerError)


def test_no_broker_is_told_as_such(consumer: Looked) -> None:
    consumer.failures["list_topics"] = [failure(KafkaError._TRANSPORT)]

    with pytest.raises(NoBrokerError, match="'input' cannot be read"):
        list(read(consumer))


def test_a_range_that_is_left_early_leaves_no_client(consumer: Looked) -> None:
    consumer.incoming = [FakeMessage(b"", offset) for offset in range(5, 8)]
    reading = topic_range.read_range(Settings(), "input", clock=consumer.clock)
    assert next(reading).offset() == 5

    reading.close()

    assert consumer.closed
