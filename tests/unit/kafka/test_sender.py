"""Messages reach the broker whole, in order, and whatever it says to their neighbours."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, Producer

from consumer.core.output_messages import OutputMessage
from consumer.kafka.at_least_once import AtLeastOnce
from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.errors import ClientsLostError, DeliveryError, Stopped
from consumer.kafka.sender import Sender
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.outcome_counts import OutcomeCounts
from tests.unit.core.made import TRACE
from tests.unit.kafka.fakes import FENCED, FakeProducer, Json, Log, at, failure, output

TOPICS = {"record": "records", "dead_letter": "dead"}


class Delivering:
    """A delivery at least once to a fake broker."""

    def __init__(self, producer: FakeProducer | None = None) -> None:
        self.log = Log()
        self.producer = FakeProducer() if producer is None else producer
        self.sender = Sender(cast("Producer", self.producer), TOPICS, self.log, transactional=False)
        self.delivery = AtLeastOnce(self.sender)

    def deliver(self, *outputs: OutputMessage) -> None:
        batch = Batch([PartitionBatch(at(7), list(outputs), OutcomeCounts())])
        self.dropped = self.delivery.deliver(batch).dropped

    @property
    def keys(self) -> list[bytes]:
        return [message["key"] for message in self.producer.delivered]


def test_a_message_goes_out_with_all_that_it_has() -> None:
    delivering = Delivering()
    letter = output("r", timestamp=9, kind="dead_letter")
    delivering.deliver(letter)
    [message] = delivering.producer.delivered
    assert message == {
        "topic": "dead",
        "key": b"r",
        "value": letter.value,
        "headers": [],
        "timestamp": 9,
    }


def test_messages_of_all_partitions_go_out_in_their_order() -> None:
    delivering = Delivering()
    parts = [
        PartitionBatch(at(7, one), [output(f"{one}a"), output(f"{one}b")], OutcomeCounts())
        for one in (0, 1)
    ]
    delivering.delivery.deliver(Batch(parts))
    assert delivering.keys == [b"0a", b"0b", b"1a", b"1b"]


def test_it_is_delivered_only_when_every_message_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivering = Delivering()
    delivering.producer.stuck = True
    waited = 0

    def poll(_timeout: float) -> int:
        nonlocal waited
        waited += 1
        if waited == 5:
            delivering.producer.stuck = False
            delivering.producer._settle()
        return 0

    monkeypatch.setattr(delivering.producer, "poll", poll)
    delivering.deliver(output())
    assert waited == 5


def test_a_full_queue_waits_and_never_drops() -> None:
    delivering = Delivering(FakeProducer(room=3))
    outputs = [output(f"r{number}") for number in range(50)]
    delivering.deliver(*outputs)
    assert delivering.keys == [one.key for one in outputs]
    assert delivering.producer.polls >= 16


@pytest.mark.parametrize("room", [0, 1_000])
def test_a_stop_gives_up_what_the_broker_does_not_take(room: int) -> None:
    delivering = Delivering(FakeProducer(room=room))
    delivering.producer.stuck = True
    delivering.delivery.stop()
    with pytest.raises(Stopped):
        delivering.deliver(output())
    assert delivering.keys == []


def test_the_clients_log_is_served_where_nothing_is_written() -> None:
    delivering = Delivering()
    delivering.delivery.idle()
    assert delivering.producer.polls == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("poll", failure(FENCED, fatal=True)),
        # What the client says once it is at its end does not call itself fatal.
        ("produce", failure(KafkaError._FATAL)),
    ],
)
def test_a_producer_at_its_end_is_to_be_replaced(call: str, error: Exception) -> None:
    delivering = Delivering()
    delivering.producer.failures[call] = [cast("Any", error)]
    with pytest.raises(ClientsLostError, match="producer: as the test says"):
        delivering.deliver(output())


# What the broker refuses


def _if_any(
    code: int, is_wrong: Callable[[Json], bool]
) -> Callable[[Json, list[Json]], int | None]:
    """Refuse a whole batch where one message of it is wrong, as brokers do."""
    return lambda _message, batch: code if any(map(is_wrong, batch)) else None


@pytest.mark.parametrize("code", [KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD])
def test_a_timestamp_that_is_refused_is_left_to_the_producer(code: int) -> None:
    """With it the broker refuses all that share its batch."""
    delivering = Delivering(FakeProducer(_if_any(code, lambda one: one["timestamp"] == 666)))
    delivering.deliver(output("a"), output("b", timestamp=666), output("c"))
    assert delivering.keys == [b"a", b"b", b"c"]
    assert delivering.producer.delivered[1]["timestamp"] == 0


def test_who_shares_the_batch_of_a_wrong_message_is_delivered_all_the_same() -> None:
    def refuses(message: Json, batch: list[Json]) -> int | None:
        if not any(one["key"] == b"wrong" for one in batch):
            return None
        different = KafkaError._INVALID_DIFFERENT_RECORD
        return KafkaError.MSG_SIZE_TOO_LARGE if message["key"] == b"wrong" else different

    delivering = Delivering(FakeProducer(refuses))
    delivering.deliver(output("a"), output("wrong"), output("b"))
    assert delivering.keys == [b"a", b"b"]
    assert delivering.dropped == 1
    [line] = delivering.log.of(LogEvent.DELIVERY_FAILED)
    assert line == line | {
        "level": "error",
        "topic": "input",
        "partition": 3,
        "offset": 7,
        "request_id": "wrong",
        "output_topic": "records",
        "outputs": 1,
        "action": "dropped",
    }


def test_a_batch_that_is_too_large_only_together_loses_nothing() -> None:
    """Somebody may lower a topic's limit while the service runs."""
    delivering = Delivering(
        FakeProducer(lambda _one, batch: KafkaError.MSG_SIZE_TOO_LARGE if len(batch) > 1 else None)
    )
    delivering.deliver(*[output(f"r{number}") for number in range(5)])
    assert len(delivering.keys) == 5
    assert delivering.dropped == 0


def test_a_message_that_the_client_refuses_at_once_is_dropped_and_said() -> None:
    delivering = Delivering()
    delivering.producer.refused_at_once[b"large"] = KafkaError.MSG_SIZE_TOO_LARGE
    delivering.deliver(output("large"), output("small"))
    assert delivering.keys == [b"small"]
    assert delivering.dropped == 1
    assert len(delivering.log.of(LogEvent.DELIVERY_FAILED)) == 1


def test_the_line_of_a_dropped_record_names_its_trace() -> None:
    delivering = Delivering()
    delivering.producer.refused_at_once[b"large"] = KafkaError.MSG_SIZE_TOO_LARGE
    traced = msgspec.structs.replace(output("large"), headers=[("traceparent", TRACE.encode())])
    delivering.deliver(traced)
    [line] = delivering.log.of(LogEvent.DELIVERY_FAILED)
    assert (line["request_id"], line["traceparent"]) == ("large", TRACE)


def test_whoever_was_sent_alone_once_is_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Identities are used again: a later batch would go out message by message."""
    refusals = iter([KafkaError.MSG_SIZE_TOO_LARGE])
    delivering = Delivering(FakeProducer(lambda _message, _batch: next(refusals, None)))
    one = output("a")
    delivering.deliver(one)
    waits = 0
    wait = delivering.sender._wait

    def counted() -> None:
        nonlocal waits
        waits += 1
        wait()

    monkeypatch.setattr(delivering.sender, "_wait", counted)
    delivering.deliver(one, output("b"))
    assert waits == 1


@pytest.mark.parametrize(
    ("first", "alone"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, None),
        (KafkaError._UNKNOWN_TOPIC, None),
        (KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD),
    ],
)
def test_what_will_never_be_taken_stops_the_service_with_its_place(
    first: int, alone: int | None
) -> None:
    codes = iter([first, alone])
    delivering = Delivering(FakeProducer(lambda _message, _batch: next(codes)))
    with pytest.raises(DeliveryError, match="topic 'records'"):
        delivering.deliver(output())
    [line] = delivering.log.of(LogEvent.DELIVERY_FAILED)
    assert line == line | {"topic": "input", "partition": 3, "offset": 7, "action": "stopping"}
