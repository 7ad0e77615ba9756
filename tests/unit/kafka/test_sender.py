"""Messages reach the broker whole and in order, and rejected ones do not take others with them."""

from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import KafkaError

from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.errors import ClientsLostError, DeliveryError, Stopped
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.outcome_counts import OutcomeCounts
from tests.unit.core.made import TRACE
from tests.unit.kafka.delivering import Delivering, both_deliveries
from tests.unit.kafka.fakes import FENCED, Json, Rejects, at, failure, output


@both_deliveries
def test_a_message_arrives_with_all_its_parts(*, transactional: bool) -> None:
    delivering = Delivering(transactional=transactional).start()
    letter = output("r", timestamp=9, to="dead_letter")
    delivering.deliver(letter)
    [message] = delivering.producer.delivered
    expected = {"topic": "dead", "key": b"r", "value": letter.value, "headers": [], "timestamp": 9}
    assert message == expected


@both_deliveries
def test_messages_of_all_partitions_arrive_in_order(*, transactional: bool) -> None:
    delivering = Delivering(transactional=transactional).start()
    shares = [
        PartitionBatch(at(7, one), [output(f"{one}a"), output(f"{one}b")], OutcomeCounts())
        for one in (0, 1)
    ]
    delivering.delivery.deliver(Batch(shares))
    assert delivering.keys == [b"0a", b"0b", b"1a", b"1b"]


def test_a_batch_is_delivered_only_when_every_message_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivering = Delivering(transactional=False)
    producer, poll = delivering.producer, delivering.producer.poll
    producer.stuck = True

    def fifth_poll_acknowledges(timeout: float) -> int:
        producer.stuck = producer.polls < 4
        return poll(timeout)

    monkeypatch.setattr(producer, "poll", fifth_poll_acknowledges)
    delivering.deliver(output())
    assert (producer.polls, delivering.keys) == (5, [b"r"])


@both_deliveries
def test_a_full_queue_waits_and_never_drops(*, transactional: bool) -> None:
    delivering = Delivering(transactional=transactional, room=3).start()
    outputs = [output(f"r{number}") for number in range(50)]
    delivering.deliver(*outputs)
    assert delivering.keys == [one.key for one in outputs]
    assert delivering.producer.polls >= 16


@pytest.mark.parametrize("room", [0, 1_000])
def test_a_stop_gives_up_unacknowledged_messages(room: int) -> None:
    delivering = Delivering(transactional=False, room=room)
    delivering.producer.stuck = True
    delivering.delivery.stop()
    with pytest.raises(Stopped):
        delivering.deliver(output())
    assert delivering.keys == []


@both_deliveries
def test_the_producers_callbacks_run_while_nothing_is_written(*, transactional: bool) -> None:
    delivering = Delivering(transactional=transactional).start()
    before = delivering.producer.polls
    delivering.delivery.idle()
    assert delivering.producer.polls == before + 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("poll", failure(FENCED, fatal=True)),
        # The client does not mark its own report of an earlier fatal error as fatal.
        ("produce", failure(KafkaError._FATAL)),
    ],
)
def test_a_failed_producer_has_to_be_replaced(call: str, error: Exception) -> None:
    delivering = Delivering(transactional=False)
    delivering.producer.failures[call] = [cast("Any", error)]
    with pytest.raises(ClientsLostError, match="producer: as the test says"):
        delivering.deliver(output())


# Messages that the broker rejects


def _rejects_all_with(name: str, value: object, code: int, others: int) -> Rejects:
    """Reject a batch with one wrong message, and the others as brokers or the client do."""

    def rejects(message: Json, batch: list[Json]) -> int | None:
        if not any(one[name] == value for one in batch):
            return None
        return code if message[name] == value else others

    return rejects


@both_deliveries
@pytest.mark.parametrize("code", [KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD])
@pytest.mark.parametrize("others", [None, KafkaError._INVALID_DIFFERENT_RECORD])
def test_the_producers_clock_replaces_a_rejected_timestamp(
    code: int, others: int | None, *, transactional: bool
) -> None:
    """The broker rejects all messages that share a batch with it."""
    rejects = _rejects_all_with("timestamp", 666, code, others or code)
    delivering = Delivering(rejects, transactional=transactional).start()
    delivering.deliver_until_committed(output("a"), output("b", timestamp=666), output("c"))
    assert delivering.keys == [b"a", b"b", b"c"]
    now = delivering.producer.broker.clock.wall()
    timestamps = [one["timestamp"] for one in delivering.producer.delivered]
    assert timestamps[1] == now
    assert {*timestamps} <= {5, now}
    if others:  # Their own timestamps were not in question.
        assert timestamps == [5, now, 5]


@both_deliveries
def test_only_a_message_that_is_too_large_on_its_own_is_dropped_and_logged(
    *, transactional: bool
) -> None:
    too_large, different = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_DIFFERENT_RECORD
    rejects = _rejects_all_with("key", b"large", too_large, different)
    delivering = Delivering(rejects, transactional=transactional).start()
    aborts = delivering.deliver_until_committed(output("a"), output("large"), output("b"))
    assert (aborts > 0) is transactional
    assert delivering.keys == [b"a", b"b"]
    assert delivering.committed == (7 if transactional else None)
    assert delivering.dropped == 1
    [line] = delivering.log.of(LogEvent.DELIVERY_FAILED)
    assert line == line | {
        "level": "error",
        "topic": "input",
        "partition": 3,
        "offset": 7,
        "request_id": "large",
        "output_topic": "records",
        "outputs": 1,
        "action": "dropped",
    }


@both_deliveries
def test_a_batch_that_is_too_large_only_as_a_whole_loses_nothing(*, transactional: bool) -> None:
    """An operator may lower a topic's limit while the service runs."""
    delivering = Delivering(
        lambda _one, batch: KafkaError.MSG_SIZE_TOO_LARGE if len(batch) > 1 else None,
        transactional=transactional,
    ).start()
    delivering.deliver_until_committed(*[output(f"r{number}") for number in range(5)])
    assert len(delivering.keys) == 5
    assert delivering.dropped == 0


@both_deliveries
def test_a_message_that_the_client_itself_rejects_is_dropped_and_logged(
    *, transactional: bool
) -> None:
    delivering = Delivering(transactional=transactional).start()
    delivering.producer.refused_at_once[b"large"] = KafkaError.MSG_SIZE_TOO_LARGE
    traced = msgspec.structs.replace(output("large"), headers=[("traceparent", TRACE.encode())])
    assert delivering.deliver_until_committed(traced, output("small")) == transactional
    assert delivering.keys == [b"small"]
    assert delivering.committed == (7 if transactional else None)
    assert delivering.dropped == 1
    [line] = delivering.log.of(LogEvent.DELIVERY_FAILED)
    assert (line["request_id"], line["traceparent"]) == ("large", TRACE)


def test_a_message_that_was_sent_alone_once_is_not_sent_alone_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Identities are used again: a later batch would be sent message by message."""
    rejections = iter([KafkaError.MSG_SIZE_TOO_LARGE])
    delivering = Delivering(lambda *_: next(rejections, None), transactional=False)
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
def test_a_message_that_will_always_be_rejected_stops_the_service_and_is_named(
    first: int, alone: int | None
) -> None:
    codes = iter([first, alone])
    delivering = Delivering(lambda *_: next(codes), transactional=False)
    with pytest.raises(DeliveryError, match="topic 'records'"):
        delivering.deliver(output())
    [line] = delivering.log.of(LogEvent.DELIVERY_FAILED)
    assert line == line | {"topic": "input", "partition": 3, "offset": 7, "action": "stopping"}
