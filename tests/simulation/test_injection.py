"""What a simulation can do to clients of the broker in memory, and how fast that is."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.kafka_in_memory.consumer import MemoryConsumer, read_committed
from tests.support.kafka_in_memory.producer import MemoryProducer
from tests.support.manual_clock import ManualClock

COMMIT = "producer.commit_transaction"
SEND = "producer.send_offsets_to_transaction"
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))


class Crash(BaseException):
    """Ends a client as a power cut would."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> MemoryBroker:
    broker = MemoryBroker(clock)
    broker.create_topic("input", 4)
    broker.create_topic("output", 2)
    return broker


@pytest.fixture
def producer(broker: MemoryBroker) -> MemoryProducer:
    return transactional(broker)


def transactional(broker: MemoryBroker, name: str = "one") -> MemoryProducer:
    producer = MemoryProducer(broker, {"transactional.id": name})
    producer.init_transactions(1)
    return producer


def member(broker: MemoryBroker) -> MemoryConsumer:
    consumer = MemoryConsumer(broker, {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["input"])
    return consumer


def at(operation: str, do: Callable[[], None]) -> Callable[[str], None]:
    """Return a hook that does something at an operation, but not inside what it does."""
    busy = False

    def between(name: str) -> None:
        nonlocal busy
        if name == operation and not busy:
            busy = True
            do()
            busy = False

    return between


def crash() -> None:
    raise Crash


def code_of(call: Callable[..., object], *arguments: object) -> int:
    with pytest.raises(KafkaException) as raised:
        call(*arguments)
    return int(raised.value.args[0].code())


def written(broker: MemoryBroker) -> list[bytes | None]:
    return [message.value() for message in read_committed(broker, "output")]


def begin(producer: MemoryProducer) -> None:
    producer.begin_transaction()
    producer.produce("output", b"x")


def test_every_operation_is_announced(broker: MemoryBroker, producer: MemoryProducer) -> None:
    seen: list[str] = []
    broker.between = seen.append
    begin(producer)
    producer.commit_transaction(1)
    member(broker).poll(0)
    assert seen == [
        "producer.begin_transaction",
        "producer.produce",
        COMMIT,
        f"{COMMIT}.done",
        "consumer.subscribe",
        "consumer.poll",
        "consumer.incremental_assign",
    ]


@pytest.mark.parametrize(("moment", "expected"), [("", []), (".done", [b"x"])])
def test_a_crash_comes_before_or_after_the_commit(
    broker: MemoryBroker, producer: MemoryProducer, moment: str, expected: list[bytes]
) -> None:
    begin(producer)
    broker.between = at(COMMIT + moment, crash)
    with pytest.raises(Crash):
        producer.commit_transaction(1)
    assert written(broker) == expected
    transactional(broker)
    assert written(broker) == expected


@pytest.mark.parametrize("moment", ["", ".done"])
def test_a_commit_whose_answer_is_lost_is_resumed_by_the_same_call_only(
    broker: MemoryBroker, producer: MemoryProducer, moment: str
) -> None:
    begin(producer)
    broker.fail_next[COMMIT + moment] = [TIMED_OUT]
    assert code_of(producer.commit_transaction) == KafkaError._TIMED_OUT
    assert code_of(producer.abort_transaction) == KafkaError._CONFLICT
    assert code_of(producer.produce, "output", b"y") == KafkaError._STATE
    producer.commit_transaction(1)
    assert written(broker) == [b"x"]
    begin(producer)


def test_a_commit_may_be_done_although_its_producer_learns_that_it_is_fenced(
    broker: MemoryBroker, producer: MemoryProducer
) -> None:
    begin(producer)
    broker.fail_next[f"{COMMIT}.done"] = [TIMED_OUT]
    assert code_of(producer.commit_transaction) == KafkaError._TIMED_OUT
    transactional(broker)
    assert code_of(producer.commit_transaction) == KafkaError._FENCED
    assert written(broker) == [b"x"]


def test_an_injected_error_that_needs_an_abort_needs_one(
    broker: MemoryBroker, producer: MemoryProducer
) -> None:
    begin(producer)
    refusal = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, txn_requires_abort=True)
    broker.fail_next[SEND] = [KafkaException(refusal)]
    group_metadata = member(broker).consumer_group_metadata()
    assert code_of(producer.send_offsets_to_transaction, [], group_metadata) == refusal.code()
    assert code_of(producer.commit_transaction) == refusal.code()
    producer.abort_transaction(1)
    begin(producer)
    producer.commit_transaction(1)
    assert written(broker) == [b"x"]


def test_without_a_broker_messages_wait(broker: MemoryBroker, producer: MemoryProducer) -> None:
    broker.away = True
    begin(producer)
    assert producer.flush(1) == len(producer) == 1
    assert code_of(producer.commit_transaction) == KafkaError._TIMED_OUT
    consumer = member(broker)
    assert consumer.poll(0) is None
    assert code_of(consumer.committed, [TopicPartition("input", 0)]) == KafkaError._TIMED_OUT
    broker.away = False
    producer.commit_transaction(1)
    assert written(broker) == [b"x"]


def test_messages_that_waited_for_longer_than_a_transaction_may_take_need_an_abort(
    broker: MemoryBroker, clock: ManualClock, producer: MemoryProducer
) -> None:
    broker.away = True
    begin(producer)
    clock.advance(61)
    assert code_of(producer.commit_transaction) == KafkaError._TIMED_OUT
    broker.away = False
    producer.abort_transaction(1)
    assert written(broker) == []


def test_offsets_that_could_not_be_sent_are_not_committed(
    broker: MemoryBroker, producer: MemoryProducer
) -> None:
    consumer = member(broker)
    begin(producer)
    broker.fail_next[SEND] = [TIMED_OUT]
    position = TopicPartition("input", 0, 5)
    group_metadata = consumer.consumer_group_metadata()
    assert (
        code_of(producer.send_offsets_to_transaction, [position], group_metadata)
        == KafkaError._TIMED_OUT
    )
    producer.commit_transaction(1)
    assert written(broker) == [b"x"]
    assert consumer.committed([position])[0].offset == -1001


def test_another_member_may_join_before_the_offsets_are_sent(
    broker: MemoryBroker, producer: MemoryProducer
) -> None:
    first, second = member(broker), member(broker)
    first.poll(0)
    group_metadata = first.consumer_group_metadata()
    begin(producer)
    broker.between = at(SEND, lambda: assert_none(second.poll(0)))
    refused = code_of(
        producer.send_offsets_to_transaction, [TopicPartition("input", 0, 1)], group_metadata
    )
    assert refused == KafkaError.ILLEGAL_GENERATION


def test_a_pending_offset_can_be_waited_for(broker: MemoryBroker, producer: MemoryProducer) -> None:
    consumer, position = member(broker), TopicPartition("input", 0, 5, "m")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 1)
    broker.between = at("consumer.committed.unstable", producer.commit_transaction)
    assert consumer.committed([position])[0].offset == 5


def test_a_commit_made_without_a_broker_is_answered_later(broker: MemoryBroker) -> None:
    answers: list[KafkaError | None] = []
    config = {"group.id": "g", "on_commit": lambda error, _: answers.append(error)}
    consumer = MemoryConsumer(broker, config)
    broker.away = True
    consumer.commit(offsets=[TopicPartition("input", 0, 5)], asynchronous=True)
    consumer.poll(0)
    assert answers == []
    broker.away = False
    consumer.poll(0)
    assert answers == [None]
    assert consumer.committed([TopicPartition("input", 0)])[0].offset == 5


def test_two_members_copy_every_record_once(broker: MemoryBroker) -> None:
    """The round whose time matters for simulations; it takes a few milliseconds."""
    for number in range(200):
        broker.append(("input", number % 4), (None, b"%d" % number, []))
    members = [copier(broker, name) for name in ("one", "two")]
    for _ in range(20):
        for one in members:
            next(one)
    assert sorted(int(value or b"") for value in written(broker)) == list(range(200))


def copier(broker: MemoryBroker, name: str) -> Iterator[None]:
    """Consume, transform and produce in transactions, one in each step."""
    consumer, producer = member(broker), transactional(broker, name)
    while True:
        yield
        messages = consumer.consume(25, 0)
        if not messages:
            continue
        producer.begin_transaction()
        positions: dict[int, int] = {}
        for message in messages:
            producer.produce("output", message.value(), key=message.value())
            positions[message.partition()] = (message.offset() or 0) + 1
        offsets = [TopicPartition("input", *place) for place in positions.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 1)
        producer.commit_transaction(1)


def assert_none(found: object) -> None:
    assert found is None
