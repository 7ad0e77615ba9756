"""One suite for the broker in memory and for a real Kafka, so that the one cannot drift away."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.simulation.sides import SESSION_S, Bench, Client, MemorySide, RealSide

SECONDS = 15.0
END = KafkaError._PARTITION_EOF
OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET
ABORTABLE = "abort"
FATAL = "fatal"
RETRIABLE = "retriable"


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    memory = request.param == "memory"
    side = MemorySide() if memory else RealSide(request.getfixturevalue("kafka"))
    yield Bench(side)
    side.close()


def failure(call: Callable[..., object], *arguments: Any) -> tuple[int, str]:
    """Return the code of the error that a call raises, and its flag, if there is one."""
    with pytest.raises(KafkaException) as raised:
        call(*arguments)
    error = raised.value.args[0]
    flags = {
        FATAL: error.fatal(),
        RETRIABLE: error.retriable(),
        ABORTABLE: error.txn_requires_abort(),
    }
    [flag] = [name for name, is_set in flags.items() if is_set] or [""]
    return error.code(), flag


def at(topic: str, offset: int, metadata: str = "") -> list[TopicPartition]:
    return [TopicPartition(topic, 0, offset, metadata)]


class Reports:
    """Takes delivery reports."""

    def __init__(self) -> None:
        self.codes: list[int | None] = []

    def __call__(self, error: KafkaError | None, _message: object) -> None:
        self.codes.append(None if error is None else error.code())


# What readers see


def test_committed_records_are_visible_and_aborted_ones_never_are(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    bench.begin(producer, topic, b"aborted")
    producer.abort_transaction(SECONDS)
    bench.begin(producer, topic, b"committed")
    producer.commit_transaction(SECONDS)

    assert bench.read(bench.reader(topic), 2) == [(b"committed", 2), (END, 4)]
    uncommitted = bench.reader(topic, isolation_level="read_uncommitted")
    assert bench.read(uncommitted, 3) == [(b"aborted", 0), (b"committed", 2), (END, 4)]


def test_an_open_transaction_holds_back_readers_of_committed_records(bench: Bench) -> None:
    topic, producer, reader = bench.side.topic(), bench.transactional(), None
    bench.write(topic, b"0")
    bench.begin(producer, topic, b"1")
    bench.write(topic, b"2")
    reader = bench.reader(topic)
    uncommitted = bench.reader(topic, isolation_level="read_uncommitted")

    assert bench.read(reader, 2) == [(b"0", 0), (END, 1)]
    assert bench.watermarks(reader, topic) == ((0, 1), (0, 3))
    assert bench.read(uncommitted, 4) == [(b"0", 0), (b"1", 1), (b"2", 2), (END, 3)]
    assert bench.watermarks(uncommitted, topic) == ((0, 3), (0, 3))

    producer.commit_transaction(SECONDS)
    assert bench.read(reader, 3) == [(b"1", 1), (b"2", 2), (END, 4)]
    assert bench.watermarks(reader, topic) == ((0, 4), (0, 4))
    assert bench.read(uncommitted) == [(END, 4)]


def test_the_end_is_reported_again_only_after_it_has_moved(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    reader = bench.reader(topic)
    assert bench.read(reader) == [(END, 0)]
    assert bench.read(reader, 0) == []
    bench.begin(producer, topic, b"held back")
    assert bench.read(reader, 0) == []
    producer.abort_transaction(SECONDS)
    assert bench.read(reader) == [(END, 2)]


def test_between_what_is_stable_and_what_is_written_a_reader_waits(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    bench.begin(producer, topic, b"0", b"1")
    inside, above, beyond = (bench.reader(topic, offset) for offset in (1, 2, 3))
    assert bench.read(beyond) == [(OUT_OF_RANGE, 3)]
    assert bench.read(inside, 0) == bench.read(above, 0) == []
    producer.commit_transaction(SECONDS)
    assert bench.read(inside, 2) == [(b"1", 1), (END, 3)]
    assert bench.read(above) == [(END, 3)]


def test_a_reader_out_of_range_gets_one_error_and_stops(bench: Bench) -> None:
    topic = bench.side.topic()
    bench.write(topic, b"0", b"1", b"2")
    bench.side.delete_below(topic, 1)
    reader = bench.reader(topic, 0)
    assert bench.read(reader) == [(OUT_OF_RANGE, 0)]
    assert bench.watermarks(reader, topic) == ((1, 3), (-1, -1))
    assert bench.read(reader, 0) == []

    reader.incremental_unassign([TopicPartition(topic, 0)])
    reader.incremental_assign([TopicPartition(topic, 0, 1)])
    assert bench.read(reader, 3) == [(b"1", 1), (b"2", 2), (END, 3)]


def test_a_reader_without_a_committed_offset_gets_an_error(bench: Bench) -> None:
    reader = bench.reader(bench.side.topic(), -1001)
    assert bench.read(reader) == [(OUT_OF_RANGE, None)]


def test_watermarks_of_a_partition_that_was_not_fetched_are_unknown(bench: Bench) -> None:
    reader = bench.side.consumer({"group.id": bench.side.name()})
    topic = bench.side.topic()
    place, missing = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert reader.get_watermark_offsets(place, cached=True) == (-1001, -1001)
    unknown = failure(lambda: reader.get_watermark_offsets(missing, timeout=SECONDS))
    assert unknown == (KafkaError._UNKNOWN_PARTITION, "")


def test_offsets_are_found_by_time(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.side.producer({})
    for timestamp in (1_000, 2_000):
        producer.produce(topic, b"x", timestamp=timestamp)
        producer.flush(SECONDS)
    reader = bench.reader(topic)
    for timestamp, offset in ((1_000, 0), (1_001, 1), (2_001, -1)):
        [found] = reader.offsets_for_times(at(topic, timestamp), timeout=SECONDS)
        assert found.offset == offset


def test_a_recreated_topic_has_another_id_and_no_offsets(bench: Bench) -> None:
    topic, group = bench.side.topic(), bench.side.name()
    bench.write(topic, b"0", b"1")
    member = bench.side.consumer({"group.id": group})
    member.commit(offsets=at(topic, 2, "m"), asynchronous=False)
    reader, before = bench.reader(topic, 2), bench.side.topic_id(topic)
    assert bench.read(reader) == [(END, 2)]

    bench.side.recreate(topic)
    assert bench.side.topic_id(topic) != before
    assert bench.read(reader) == [(OUT_OF_RANGE, 2)]
    assert bench.committed(member, topic) == (-1001, None)


def test_what_is_assigned_is_not_assigned_again(bench: Bench) -> None:
    topic = bench.side.topic(2)
    reader = bench.reader(topic)
    assert failure(reader.incremental_assign, at(topic, 0)) == (KafkaError._CONFLICT, "")
    other = [TopicPartition(topic, 1)]
    assert failure(reader.incremental_unassign, other) == (KafkaError._INVALID_ARG, "")


def test_a_paused_partition_is_not_read(bench: Bench) -> None:
    topic = bench.side.topic()
    reader = bench.reader(topic)
    assert bench.read(reader) == [(END, 0)]
    reader.pause(reader.assignment())
    bench.write(topic, b"0")
    assert bench.read(reader, 0) == []
    reader.resume(reader.assignment())
    assert bench.read(reader, 2) == [(b"0", 0), (END, 1)]


# Offsets


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_count_only_when_their_transaction_is_committed(
    bench: Bench, *, commits: bool
) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    member = bench.side.consumer({"group.id": bench.side.name()})
    producer.begin_transaction()
    metadata = member.consumer_group_metadata()
    producer.send_offsets_to_transaction(at(topic, 7, "checkpoint"), metadata, SECONDS)
    if commits:
        producer.commit_transaction(SECONDS)
    else:
        producer.abort_transaction(SECONDS)
    assert bench.committed(member, topic) == ((7, "checkpoint") if commits else (-1001, None))


def test_while_an_offset_is_pending_no_client_gets_another_one(bench: Bench) -> None:
    topic, producer, group = bench.side.topic(), bench.transactional(), bench.side.name()
    member = bench.side.consumer({"group.id": group})
    careless = bench.side.consumer({"group.id": group, "isolation.level": "read_uncommitted"})
    producer.begin_transaction()
    metadata = member.consumer_group_metadata()
    producer.send_offsets_to_transaction(at(topic, 7), metadata, SECONDS)
    ask = [TopicPartition(topic, 0)], 0.3
    assert failure(member.committed, *ask) == (KafkaError._TIMED_OUT, "")
    assert bench.committed(careless, topic) == (-1001, None)


def test_a_plain_commit_counts_more_than_an_earlier_one_in_a_transaction(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    member = bench.side.consumer({"group.id": bench.side.name()})
    producer.begin_transaction()
    metadata = member.consumer_group_metadata()
    producer.send_offsets_to_transaction(at(topic, 7, "earlier"), metadata, SECONDS)
    member.commit(offsets=at(topic, 8, "later"), asynchronous=False)
    producer.commit_transaction(SECONDS)
    assert bench.committed(member, topic) == (8, "later")


def test_a_reader_begins_at_the_committed_offset_once_it_is_stable(bench: Bench) -> None:
    topic, group, producer = bench.side.topic(), bench.side.name(), bench.transactional()
    bench.write(topic, b"0", b"1")
    reader = bench.reader(topic, -1001, group_id=group)
    reader.unassign()
    metadata = reader.consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(at(topic, 1), metadata, SECONDS)
    reader.assign([TopicPartition(topic, 0)])
    assert bench.read(reader, 0) == []
    producer.commit_transaction(SECONDS)
    assert bench.read(reader, 2) == [(b"1", 1), (END, 2)]


def test_an_offset_may_have_no_metadata(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    member = bench.side.consumer({"group.id": bench.side.name()})
    metadata = member.consumer_group_metadata()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([], metadata, SECONDS)
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, SECONDS)
    producer.commit_transaction(SECONDS)
    assert bench.committed(member, topic) == (1, None)


def test_metadata_may_have_4095_characters(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    member = bench.side.consumer({"group.id": bench.side.name()})
    metadata = member.consumer_group_metadata()
    send = producer.send_offsets_to_transaction
    too_large = KafkaError.OFFSET_METADATA_TOO_LARGE
    producer.begin_transaction()
    send(at(topic, 1, "é" * 4095), metadata, SECONDS)
    producer.commit_transaction(SECONDS)
    for longer in ("é" * 4096, "\N{SNAKE}" * 2048):  # Kafka counts UTF-16 units.
        producer.begin_transaction()
        wrong = at(topic, 2, longer)
        assert failure(send, wrong, metadata, SECONDS) == (too_large, ABORTABLE)
        assert failure(producer.commit_transaction, SECONDS) == (too_large, ABORTABLE)
        producer.abort_transaction(SECONDS)
    assert bench.committed(member, topic) == (1, "é" * 4095)


def test_of_plain_commits_only_what_is_too_large_is_refused(bench: Bench) -> None:
    topic = bench.side.topic(2)
    member = bench.side.consumer({"group.id": bench.side.name()})
    offsets = [*at(topic, 1, "fits"), TopicPartition(topic, 1, 1, "x" * 4096)]
    refused = failure(lambda: member.commit(offsets=offsets, asynchronous=False))
    assert refused == (KafkaError.OFFSET_METADATA_TOO_LARGE, "")
    assert bench.committed(member, topic) == (1, "fits")


def test_an_asynchronous_commit_is_answered_in_poll(bench: Bench) -> None:
    answers: list[tuple[object, int]] = []

    def on_commit(error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        answers.append((error, offsets[0].offset))

    topic = bench.side.topic()
    config = {"group.id": bench.side.name(), "on_commit": on_commit}
    member = bench.side.consumer(config)
    member.commit(offsets=at(topic, 3), asynchronous=True)
    assert answers == []
    bench.until(lambda: member.poll(bench.side.step) or answers)
    assert answers == [(None, 3)]


# Fencing


def fenced(bench: Bench, topic: str) -> Client:
    """Return a producer in a transaction that a newer one has ended."""
    name = bench.side.name()
    producer = bench.transactional(name)
    bench.begin(producer, topic, b"of the older one")
    bench.transactional(name)
    return producer


def test_a_newer_producer_aborts_the_transaction_of_an_older_one(bench: Bench) -> None:
    topic = bench.side.topic()
    fenced(bench, topic)
    assert bench.read(bench.reader(topic)) == [(END, 2)]


def test_a_fenced_producer_never_works_again(bench: Bench) -> None:
    topic = bench.side.topic()
    metadata = bench.side.consumer({"group.id": "g"}).consumer_group_metadata()

    def send(producer: Client) -> None:
        producer.send_offsets_to_transaction(at(topic, 1), metadata, SECONDS)

    def commit(producer: Client) -> None:
        producer.commit_transaction(SECONDS)

    def abort(producer: Client) -> None:
        producer.abort_transaction(SECONDS)

    for first in (send, commit, abort):
        producer = fenced(bench, topic)
        dead = KafkaError._FENCED, FATAL
        assert failure(first, producer) == dead
        assert failure(producer.begin_transaction) == dead
        for then in (send, commit, abort):
            assert failure(then, producer) == dead
        assert failure(producer.init_transactions, SECONDS) == dead
        assert failure(producer.produce, topic, b"x") == (KafkaError._FATAL, "")


def test_a_fenced_producer_learns_it_from_a_record(bench: Bench) -> None:
    topic, reports = bench.side.topic(), Reports()
    producer = fenced(bench, topic)
    producer.produce(topic, b"x", on_delivery=reports)

    bench.side.wait(0.3)
    assert failure(producer.poll, SECONDS) == (KafkaError._FENCED, FATAL)
    bench.until(lambda: producer.poll(bench.side.step))
    assert reports.codes == [KafkaError.INVALID_PRODUCER_EPOCH]
    assert producer.flush(SECONDS) == 0
    assert failure(producer.produce, topic, b"y") == (KafkaError._FATAL, "")
    assert failure(producer.commit_transaction, SECONDS) == (KafkaError._FENCED, FATAL)


def test_flush_meets_a_fatal_error(bench: Bench) -> None:
    topic = bench.side.topic()
    producer = fenced(bench, topic)
    producer.produce(topic, b"x")
    assert failure(producer.flush, SECONDS) == (KafkaError._FENCED, FATAL)


def test_flush_fails_oddly_when_there_is_a_report_too(bench: Bench) -> None:
    topic = bench.side.topic()
    producer = fenced(bench, topic)
    producer.produce(topic, b"x", on_delivery=Reports())
    with pytest.raises((SystemError, KafkaException)):  # Whichever the client hears of first.
        producer.flush(SECONDS)


def test_a_producer_fenced_between_transactions_learns_it_with_the_first_record(
    bench: Bench,
) -> None:
    topic, name = bench.side.topic(), bench.side.name()
    producer = bench.transactional(name)
    bench.transactional(name)
    producer.begin_transaction()
    producer.commit_transaction(SECONDS)  # Of an empty transaction the broker hears nothing.
    producer.begin_transaction()
    producer.produce(topic, b"x")
    assert failure(producer.flush, SECONDS) == (KafkaError._FENCED, FATAL)
    assert failure(producer.commit_transaction, SECONDS) == (KafkaError._FENCED, FATAL)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    bench: Bench,
) -> None:
    topic = bench.side.topic()
    metadata = bench.side.consumer({"group.id": "g"}).consumer_group_metadata()
    committing, aborting, sending = (
        bench.transactional(transaction_timeout_ms=1000) for _ in range(3)
    )
    for producer in (committing, aborting, sending):
        bench.begin(producer, topic, b"x")
    bench.side.wait(3.5)  # Kafka looks once in a while.

    assert bench.read(bench.reader(topic)) == [(END, 6)]
    dead = KafkaError._FENCED, FATAL
    assert failure(committing.commit_transaction, SECONDS) == dead
    assert failure(aborting.abort_transaction, SECONDS) == dead
    send = sending.send_offsets_to_transaction
    assert failure(send, at(topic, 1), metadata, SECONDS) == dead


# States of the producer


def test_calls_in_the_wrong_state_are_refused(bench: Bench) -> None:
    topic, producer, wrong = bench.side.topic(), bench.transactional(), (KafkaError._STATE, "")
    metadata = bench.side.consumer({"group.id": "g"}).consumer_group_metadata()
    send = producer.send_offsets_to_transaction
    assert failure(producer.produce, topic, b"x") == wrong
    assert failure(send, at(topic, 1), metadata, SECONDS) == wrong
    assert failure(producer.commit_transaction, SECONDS) == wrong
    assert failure(producer.abort_transaction, SECONDS) == wrong
    producer.begin_transaction()
    assert failure(producer.begin_transaction) == wrong


def test_a_message_too_large_for_its_topic_spoils_the_transaction(bench: Bench) -> None:
    topic, reports = bench.side.topic(max_message_bytes="1000"), Reports()
    producer, too_large = bench.transactional(), KafkaError.MSG_SIZE_TOO_LARGE
    metadata = bench.side.consumer({"group.id": "g"}).consumer_group_metadata()
    bench.begin(producer, topic, b"fits")
    producer.produce(topic, b"x" * 1000, on_delivery=reports)
    assert producer.flush(SECONDS) == 0
    assert reports.codes == [too_large]

    assert failure(producer.produce, topic, b"x") == (KafkaError._STATE, "")
    send = producer.send_offsets_to_transaction
    assert failure(send, at(topic, 1), metadata, SECONDS) == (too_large, ABORTABLE)
    assert failure(producer.begin_transaction) == (too_large, ABORTABLE)
    assert failure(producer.commit_transaction, SECONDS) == (too_large, ABORTABLE)
    producer.abort_transaction(SECONDS)

    producer.begin_transaction()
    producer.produce(topic, b"x" * 1000, on_delivery=reports)
    assert failure(producer.commit_transaction, SECONDS) == (too_large, ABORTABLE)
    assert reports.codes == [too_large] * 2
    producer.abort_transaction(SECONDS)


def test_after_a_message_that_was_too_large_the_client_needs_another_abort(bench: Bench) -> None:
    topic, reports = bench.side.topic(max_message_bytes="1000"), Reports()
    other, producer = bench.side.topic(), bench.transactional()
    producer.begin_transaction()
    producer.produce(topic, b"x" * 1000)
    assert failure(producer.commit_transaction, SECONDS)[1] == ABORTABLE
    producer.abort_transaction(SECONDS)

    bench.begin(producer, other, b"no harm done")
    producer.commit_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"fits", on_delivery=reports)
    refused = failure(producer.commit_transaction, SECONDS)
    assert refused == (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, ABORTABLE)
    assert reports.codes == [KafkaError._PURGE_QUEUE]
    producer.abort_transaction(SECONDS)

    bench.begin(producer, topic, b"fits")
    producer.commit_transaction(SECONDS)
    assert bench.read(bench.reader(other), 2) == [(b"no harm done", 0), (END, 2)]
    assert [value for value, _ in bench.read(bench.reader(topic), 2)] == [b"fits", END]


def test_a_message_for_a_topic_that_does_not_exist_waits(bench: Bench) -> None:
    producer = bench.transactional()
    producer.begin_transaction()
    producer.produce(bench.side.name(), b"x")
    assert producer.flush(0.5) == 1
    waits = KafkaError._TIMED_OUT, RETRIABLE
    assert failure(producer.commit_transaction, 0.5) == waits
    assert failure(producer.abort_transaction, 0.5) == (KafkaError._CONFLICT, RETRIABLE)
    assert failure(producer.commit_transaction, 0.5) == waits


def test_a_message_too_large_for_the_client_does_no_harm(bench: Bench) -> None:
    topic, producer = bench.side.topic(), bench.transactional()
    producer.begin_transaction()
    refused = failure(producer.produce, topic, b"x" * 1_100_000)
    assert refused == (KafkaError.MSG_SIZE_TOO_LARGE, "")
    producer.produce(topic, b"0")
    producer.commit_transaction(SECONDS)
    assert bench.read(bench.reader(topic), 2) == [(b"0", 0), (END, 2)]


# Groups


def test_commits_of_an_earlier_generation_are_refused(bench: Bench) -> None:
    topic, group = bench.side.topic(2), bench.side.name()
    producer = bench.transactional()
    first = bench.member(topic, group)
    bench.wait_until_owned(first, sizes=(2,))
    second, before = bench.member(topic, group), first.metadata()
    bench.wait_until_owned(first, second, sizes=(1, 1))

    producer.begin_transaction()
    send, stale = producer.send_offsets_to_transaction, KafkaError.ILLEGAL_GENERATION
    assert failure(send, at(topic, 1), before, SECONDS) == (stale, ABORTABLE)
    assert failure(send, at(topic, 1), first.metadata(), SECONDS) == (stale, ABORTABLE)
    assert failure(producer.produce, topic, b"x") == (KafkaError._STATE, "")
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    send(at(topic, 1), first.metadata(), SECONDS)
    producer.commit_transaction(SECONDS)
    assert bench.committed(first.consumer, topic)[0] == 1


def test_commits_of_a_member_that_has_left_are_refused(bench: Bench) -> None:
    topic, group = bench.side.topic(2), bench.side.name()
    producer = bench.transactional()
    first, second = bench.member(topic, group), bench.member(topic, group)
    bench.wait_until_owned(first, second, sizes=(1, 1))
    before = second.metadata()
    second.consumer.close()
    with pytest.raises(RuntimeError):
        second.metadata()
    producer.begin_transaction()
    send = producer.send_offsets_to_transaction
    unknown = KafkaError.UNKNOWN_MEMBER_ID
    assert failure(send, at(topic, 1), before, SECONDS) == (unknown, ABORTABLE)


def test_a_consumer_without_group_may_commit_in_transactions_only(bench: Bench) -> None:
    topic, group = bench.side.topic(), bench.side.name()
    member, producer = bench.member(topic, group), bench.transactional()
    bench.wait_until_owned(member, sizes=(1,))
    stranger = bench.side.consumer({"group.id": group})
    refused = failure(lambda: stranger.commit(offsets=at(topic, 1), asynchronous=False))
    assert refused == (KafkaError.UNKNOWN_MEMBER_ID, "")
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        at(topic, 1, "by a stranger"), stranger.consumer_group_metadata(), SECONDS
    )
    producer.commit_transaction(SECONDS)
    assert bench.committed(member.consumer, topic) == (1, "by a stranger")


def test_a_new_member_gets_what_another_gives_back_and_the_rest_stays(bench: Bench) -> None:
    topic, group = bench.side.topic(4), bench.side.name()
    first = bench.member(topic, group)
    bench.wait_until_owned(first, sizes=(4,))
    second = bench.member(topic, group)
    bench.wait_until_owned(first, second, sizes=(2, 2))
    assert first.owned | second.owned == {0, 1, 2, 3}
    given = sorted(second.owned)
    assert [one for one in first.callbacks if one[1]] == [
        ("assign", [0, 1, 2, 3]),
        ("revoke", given),
    ]
    # An empty assignment comes first, unless the next generation overtakes it on a real Kafka.
    assert second.callbacks[:-1] in ([("assign", [])], [])
    assert second.callbacks[-1] == ("assign", given)

    second.consumer.close()
    assert second.callbacks[-1] == ("revoke", given)
    bench.wait_until_owned(first, sizes=(4,))
    assert first.callbacks[-1] == ("assign", given)


def test_a_new_owner_goes_on_at_the_committed_offset(bench: Bench) -> None:
    topic, group, producer = bench.side.topic(), bench.side.name(), bench.transactional()
    bench.write(topic, b"0", b"1", b"2")
    first = bench.reader(topic, auto_offset_reset="earliest", group_id=group)
    first.unassign()
    first.subscribe([f"^{topic}"])
    assert bench.read(first, 4) == [(b"0", 0), (b"1", 1), (b"2", 2), (END, 3)]
    producer.begin_transaction()
    metadata = first.consumer_group_metadata()
    producer.send_offsets_to_transaction(at(topic, 2), metadata, SECONDS)
    producer.commit_transaction(SECONDS)
    first.close()

    second = bench.reader(topic, group_id=group)
    second.unassign()
    second.subscribe([topic])
    assert bench.read(second, 2) == [(b"2", 2), (END, 3)]


def test_a_member_can_commit_what_it_is_about_to_give_back(bench: Bench) -> None:
    topic, group = bench.side.topic(1), bench.side.name()
    member, producer = bench.member(topic, group), bench.transactional()
    bench.wait_until_owned(member, sizes=(1,))

    def commit(what: str) -> None:
        producer.begin_transaction()
        send = producer.send_offsets_to_transaction
        send(at(topic, 5, what), member.metadata(), SECONDS)
        producer.commit_transaction(SECONDS)

    member.then = commit
    member.consumer.close()
    after = bench.side.consumer({"group.id": group})
    assert bench.committed(after, topic) == (5, "revoke")


def test_a_member_that_does_not_poll_loses_everything_and_joins_again(bench: Bench) -> None:
    topic, group = bench.side.topic(2), bench.side.name()
    producer = bench.transactional()
    first, second = bench.member(topic, group), bench.member(topic, group)
    bench.wait_until_owned(first, second, sizes=(1, 1))
    [lost], before = first.owned, first.metadata()
    for _ in range(8):
        second.poll()
        bench.side.wait(SESSION_S / 4)
    bench.wait_until_owned(second, sizes=(2,))

    metadata, callbacks = [before, first.metadata()], len(first.callbacks)

    def look(what: str) -> None:
        if what == "lost":
            metadata.append(first.metadata())

    first.then = look
    bench.until(lambda: not first.poll().owned)
    assert len(metadata) == 3
    unknown, send = KafkaError.UNKNOWN_MEMBER_ID, producer.send_offsets_to_transaction
    for one in metadata:
        producer.begin_transaction()
        assert failure(send, at(topic, 1), one, SECONDS) == (unknown, ABORTABLE)
        producer.abort_transaction(SECONDS)
    assert [one for one in first.callbacks[callbacks:] if one[1]] == [("lost", [lost])]
    bench.wait_until_owned(first, second, sizes=(1, 1))
    assert first.callbacks[-1][0] == "assign"


def test_of_two_members_with_one_instance_id_the_older_one_is_fenced(bench: Bench) -> None:
    topic, group, producer = bench.side.topic(2), bench.side.name(), bench.transactional()
    older = bench.member(topic, group, group_instance_id="one")
    bench.wait_until_owned(older, sizes=(2,))
    before = older.metadata()
    newer = bench.member(topic, group, group_instance_id="one")
    bench.wait_until_owned(newer, sizes=(2,))

    producer.begin_transaction()
    send, twin = producer.send_offsets_to_transaction, KafkaError.FENCED_INSTANCE_ID
    assert failure(send, at(topic, 1), before, SECONDS) == (twin, ABORTABLE)
    bench.until(lambda: older.poll().errors)
    assert older.errors == [KafkaError._FATAL]
    older.poll()
    assert older.consumer.assignment() == []
    assert older.callbacks == [("assign", [0, 1])]
    assert newer.callbacks == [("assign", [0, 1])]


def test_a_static_member_may_go_and_come_back_unnoticed(bench: Bench) -> None:
    topic, group = bench.side.topic(2), bench.side.name()
    member = bench.member(topic, group, group_instance_id="one")
    other = bench.member(topic, group, group_instance_id="two")
    bench.wait_until_owned(member, other, sizes=(1, 1))
    [kept], callbacks = member.owned, list(other.callbacks)
    member.consumer.close()
    again = bench.member(topic, group, group_instance_id="one")
    bench.wait_until_owned(again, other, sizes=(1, 1))
    assert again.owned == {kept}
    assert other.callbacks == callbacks


def test_partitions_that_are_added_are_assigned(bench: Bench) -> None:
    topic, group = bench.side.topic(1), bench.side.name()
    member = bench.member(topic, group)
    bench.wait_until_owned(member, sizes=(1,))
    bench.side.add_partitions(topic, 3)
    bench.wait_until_owned(member, sizes=(3,))
    assert [one for one in member.callbacks if one[1]] == [("assign", [0]), ("assign", [1, 2])]
