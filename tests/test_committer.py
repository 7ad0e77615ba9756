"""Records are delivered before positions are given back, whatever the broker says to them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Producer

from consumer.committer import Batch, Committer, DeliveryError
from consumer.logs import Event
from tests.kafka_fakes import FakeProducer, Json, Log, at, output

SECONDS = 10
TOPICS = {"record": "records", "dead_letter": "dead"}

Made = Callable[[FakeProducer], Committer]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def make(log: Log) -> Iterator[Made]:
    made = []

    def maker(producer: FakeProducer) -> Committer:
        committer = Committer(cast("Producer", producer), TOPICS, log)
        made.append(committer)
        return committer

    yield maker
    for committer in made:
        committer.stop()


def _delivered(committer: Committer, *outputs: Any) -> list[int]:
    """Hand a batch over, and return the offsets that come back to be committed."""
    committer.hand_over(Batch(list(outputs), [at(7)]))
    assert committer.wait(SECONDS)
    return [one.offset for one in committer.delivered()]


def _keys(producer: FakeProducer) -> list[bytes]:
    return [message["key"] for message in producer.delivered]


def test_a_message_goes_out_with_all_that_it_has(make: Made) -> None:
    producer = FakeProducer()
    letter = output("r", timestamp=9, kind="dead_letter")
    assert _delivered(make(producer), letter) == [7]
    [message] = producer.delivered
    assert message == {
        "topic": "dead",
        "key": b"r",
        "value": letter.value,
        "headers": [],
        "timestamp": 9,
    }


def test_positions_come_back_only_when_every_message_is_acknowledged(make: Made) -> None:
    producer = FakeProducer()
    producer.stuck = True
    committer = make(producer)
    committer.hand_over(Batch([output()], [at(7)]))
    assert not committer.wait(0.05)
    assert committer.busy
    assert committer.delivered() == []
    producer.stuck = False
    assert committer.wait(SECONDS)
    assert [one.offset for one in committer.delivered()] == [7]
    assert committer.delivered() == []


def test_a_full_queue_waits_and_never_drops(make: Made) -> None:
    producer = FakeProducer(room=3)
    outputs = [output(f"r{number}") for number in range(50)]
    assert _delivered(make(producer), *outputs) == [7]
    assert _keys(producer) == [one.key for one in outputs]
    assert producer.polls >= 16


def test_a_second_batch_is_refused_while_one_is_on_its_way(make: Made) -> None:
    producer = FakeProducer()
    producer.stuck = True
    committer = make(producer)
    committer.hand_over(Batch([output()], []))
    with pytest.raises(RuntimeError, match="still on its way"):
        committer.hand_over(Batch([], []))


def test_positions_of_a_partition_that_was_lost_meanwhile_do_not_come_back(make: Made) -> None:
    """They would be committed over those of its new owner."""
    producer = FakeProducer()
    producer.stuck = True
    committer = make(producer)
    committer.hand_over(Batch([output()], [at(7, 0), at(8, 1)]))
    committer.disown([at(-1, 0)])
    producer.stuck = False
    assert committer.wait(SECONDS)
    assert [one.partition for one in committer.delivered()] == [1]
    committer.hand_over(Batch([], [at(9, 0)]))  # Assigned anew.
    assert committer.wait(SECONDS)
    assert [one.offset for one in committer.delivered()] == [9]


def test_a_stop_gives_up_what_the_broker_does_not_take(make: Made) -> None:
    producer = FakeProducer()
    producer.stuck = True
    committer = make(producer)
    committer.hand_over(Batch([output()], [at(7)]))
    assert producer.waited_for.wait(SECONDS)
    committer.stop()
    assert committer.wait(SECONDS)
    assert committer.delivered() == []


def test_a_stop_gives_up_on_a_full_queue(make: Made) -> None:
    producer = FakeProducer(room=0)
    producer.stuck = True
    committer = make(producer)
    committer.hand_over(Batch([output()], [at(7)]))
    assert producer.waited_for.wait(SECONDS)
    committer.stop()
    assert committer.wait(SECONDS)
    assert committer.delivered() == []


def test_a_batch_that_nobody_has_begun_is_given_up_too(make: Made) -> None:
    committer = make(FakeProducer())
    committer.stop()
    committer.hand_over(Batch([output()], [at(7)]))
    assert committer.busy
    assert committer.delivered() == []


def test_the_clients_log_is_served_though_nothing_is_written(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.committer._IDLE_S", 0.001)
    producer = FakeProducer()
    polled = threading.Event()
    monkeypatch.setattr(producer, "poll", lambda _timeout: polled.set())
    make(producer)
    assert polled.wait(SECONDS)


# What the broker refuses


def _if_any(
    code: int, is_wrong: Callable[[Json], bool]
) -> Callable[[Json, list[Json]], int | None]:
    """Refuse a whole batch where one message of it is wrong, as brokers do."""
    return lambda _message, batch: code if any(map(is_wrong, batch)) else None


@pytest.mark.parametrize("code", [KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD])
def test_a_timestamp_that_is_refused_is_left_to_the_producer(make: Made, code: int) -> None:
    """With it the broker refuses all that share its batch."""
    producer = FakeProducer(_if_any(code, lambda message: message["timestamp"] == 666))
    outputs = [output("a"), output("b", timestamp=666), output("c")]
    assert _delivered(make(producer), *outputs) == [7]
    assert _keys(producer) == [b"a", b"b", b"c"]
    assert producer.delivered[1]["timestamp"] == 0


def test_who_shares_the_batch_of_a_wrong_message_is_delivered_all_the_same(
    make: Made, log: Log
) -> None:
    def refuses(message: Json, batch: list[Json]) -> int | None:
        if not any(one["key"] == b"wrong" for one in batch):
            return None
        different = KafkaError._INVALID_DIFFERENT_RECORD
        return KafkaError.MSG_SIZE_TOO_LARGE if message["key"] == b"wrong" else different

    producer = FakeProducer(refuses)
    committer = make(producer)
    assert _delivered(committer, output("a"), output("wrong"), output("b")) == [7]
    assert _keys(producer) == [b"a", b"b"]
    assert committer.dropped == 1
    [line] = log.of(Event.DELIVERY_FAILED)
    assert line == line | {
        "level": "error",
        "topic": "input",
        "partition": 3,
        "offset": 7,
        "request_id": "wrong",
        "output_topic": "records",
        "messages": 1,
        "follows": "dropped",
    }


def test_a_batch_that_is_too_large_only_together_loses_nothing(make: Made) -> None:
    """Somebody may lower a topic's limit while the service runs."""
    producer = FakeProducer(
        lambda _message, batch: KafkaError.MSG_SIZE_TOO_LARGE if len(batch) > 1 else None
    )
    committer = make(producer)
    assert _delivered(committer, *[output(f"r{number}") for number in range(5)]) == [7]
    assert len(producer.delivered) == 5
    assert committer.dropped == 0


def test_a_message_that_the_client_refuses_at_once_is_dropped_and_said(
    make: Made, log: Log
) -> None:
    producer = FakeProducer()
    producer.refused_at_once[b"large"] = KafkaError.MSG_SIZE_TOO_LARGE
    committer = make(producer)
    assert _delivered(committer, output("large"), output("small")) == [7]
    assert _keys(producer) == [b"small"]
    assert (committer.dropped, len(log.of(Event.DELIVERY_FAILED))) == (1, 1)


@pytest.mark.parametrize(
    ("first", "alone"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, None),
        (KafkaError._UNKNOWN_TOPIC, None),
        (KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD),
    ],
)
def test_what_will_never_be_taken_stops_the_service_with_its_place(
    make: Made, log: Log, first: int, alone: int | None
) -> None:
    codes = iter([first, alone])
    committer = make(FakeProducer(lambda _message, _batch: next(codes)))
    committer.hand_over(Batch([output()], [at(7)]))
    assert committer.wait(SECONDS)
    with pytest.raises(DeliveryError, match="topic 'records'"):
        committer.delivered()
    [line] = log.of(Event.DELIVERY_FAILED)
    assert line == line | {"topic": "input", "partition": 3, "offset": 7, "follows": "stopped"}


def test_an_error_in_the_thread_is_raised_where_somebody_sees_it(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = FakeProducer()

    def broken(_timeout: float) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(producer, "flush", broken)
    committer = make(producer)
    committer.hand_over(Batch([output()], [at(7)]))
    assert committer.wait(SECONDS)
    with pytest.raises(ZeroDivisionError):
        committer.delivered()
