"""Input topics that change while they are read: new topics, partitions, open transactions."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions

from tests.kafka.harness import (
    SECONDS,
    Bench,
    by_record_id,
    eventually,
    numbered,
    record_ids,
    request_ids,
    whole,
)

pytestmark = pytest.mark.kafka

_OFTEN = {
    "kafka_consumer": "topic.metadata.refresh.interval.ms=1000",
    # The group does not give up a process that stands still for the time of a few requests.
    "kafka_session_timeout_ms": "30000",
}
_SOON_HELD = (
    "import consumer.kafka.partition_monitor; consumer.kafka.partition_monitor._HELD_AFTER_S = 2.0"
)


@contextmanager
def _upstream(bench: Bench) -> Iterator[Producer]:
    """Give a producer of the input with an open transaction."""
    producer = bench.transactional_producer()
    producer.begin_transaction()
    yield producer


def test_a_recreated_topic_that_is_longer_is_noticed_and_published_once(
    make_bench: Callable[..., Bench],
) -> None:
    """Where the next offset exists in the new topic too, the client reports no error."""
    bench = make_bench(partitions=1)
    service = bench.start(**_OFTEN)
    bench.send_whole(*numbered(5, "old"))
    bench.read_up()
    bench.wait_until_committed()
    # Else it may see that the topic is missing, or that its end lies below the next offset.
    service.process.send_signal(signal.SIGSTOP)
    bench.kafka.delete_topic(bench.input)
    bench.kafka.create_topic(bench.input, bench.partitions)
    bench.send_whole(*numbered(50, "new"))
    service.process.send_signal(signal.SIGCONT)
    noticed = service.wait_for("topic_recreated", topic=bench.input)
    assert (noticed["partition"], noticed["start_offset"]) == (0, 0)
    bench.read_up()
    bench.wait_until_committed()
    assert service.stop() == 0
    got = [one for one in bench.records() if one.json["request_id"].startswith("new")]
    assert set(request_ids(got)) == {*numbered(50, "new")}
    by_id = by_record_id(got)
    assert len(by_id) == 50


def test_an_added_partition_is_read_from_its_beginning(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=1)
    bench.send_whole("before the group")
    service = bench.start(start="latest", **_OFTEN)
    service.wait_for("partitions_assigned", partitions=[f"{bench.input}:0"])
    bench.read_up()
    service.process.send_signal(signal.SIGSTOP)  # So that it notices nothing before all is there.
    [added] = bench.admin.create_partitions([NewPartitions(bench.input, 3)]).values()
    added.result(SECONDS)
    eventually(
        lambda: len(bench.producer.list_topics(bench.input).topics[bench.input].partitions) == 3,
        "more partitions",
    )
    for number in range(20):
        bench.send(whole(f"r{number}"), f"r{number}", partition=1 + number % 2)
    bench.flush()
    service.process.send_signal(signal.SIGCONT)
    bench.partitions = 3
    bench.read_up()
    assert service.stop() == 0
    got = bench.records()
    assert sorted(request_ids(got)) == sorted(f"r{number}" for number in range(20))
    assert {one.json["source_partition"] for one in got} == {0, 1, 2}


def test_a_pattern_reads_later_topics_from_their_beginning(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=1)
    service = bench.start(topics=f"^{bench.input}", start="latest", **_OFTEN)
    service.wait_for("partitions_assigned", partitions=[f"{bench.input}:0"])
    later = f"{bench.input}-later"
    bench.kafka.create_topic(later, 1)
    bench.send_whole(*numbered(5), topic=later)
    service.wait_for("partitions_assigned", partitions=[f"{later}:0"])
    got = bench.records(lambda got: len(got) == 5)
    assert request_ids(got) == numbered(5)
    assert {one.json["source_topic"] for one in got} == {later}
    bench.read_up()
    assert service.stop() == 0
    assert len(bench.records()) == 6


def test_records_and_dead_letters_of_several_topics_name_theirs(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=1)
    topics = [bench.input, f"second-{bench.name}", f"third-{bench.name}"]
    for topic in topics[1:]:
        bench.kafka.create_topic(topic, 2)
    service = bench.start(topics=",".join(topics))
    for topic in topics:
        # The same ids and offsets everywhere: only the topic tells them apart.
        bench.send_whole("r", partition=0, topic=topic)
        bench.send(b"{broken", "r", partition=0, topic=topic)
    bench.flush()
    got = bench.records(lambda got: len(got) == len(topics))
    bench.read_up()
    assert service.stop() == 0
    assert sorted(one.json["source_topic"] for one in got) == sorted(topics)
    assert len(set(record_ids(got))) == len(topics)
    letters = bench.letters()
    assert sorted(one.json["source_topic"] for one in letters) == sorted(topics)
    assert {one.json["source_first_offset"] for one in letters} == {1}
    assert len(bench.records()) == len(topics) + 1


def test_an_open_transaction_upstream_is_logged_and_its_messages_follow_its_end(
    bench: Bench,
) -> None:
    bench.meddle(_SOON_HELD)
    bench.send_sentinels()
    with _upstream(bench) as upstream:
        for number in range(3):
            upstream.produce(bench.input, whole(f"inside{number}"), "inside", 0)
        assert upstream.flush(SECONDS) == 0
        bench.send_whole("behind", partition=0)
        service = bench.start()  # Now, or it might speak of the first of them alone.
        held = service.wait_for("last_stable_offset_blocked")
        assert held == held | {
            "topic": bench.input,
            "partition": 0,
            "offset": 1,
            "hidden_messages": 4,
        }
        bench.send_whole("elsewhere", partition=1)
        bench.record_of("elsewhere")
        assert sorted(request_ids(bench.records())) == ["elsewhere"]
        upstream.commit_transaction(SECONDS)
    bench.record_of("behind")
    with _upstream(bench) as upstream:
        upstream.produce(bench.input, whole("aborted"), "aborted", 0)
        assert upstream.flush(SECONDS) == 0
        upstream.abort_transaction(SECONDS)
    bench.read_up()
    bench.wait_until_committed()
    assert service.stop() == 0
    ids = request_ids(bench.records())
    assert sorted(ids) == ["behind", "elsewhere", "inside0", "inside1", "inside2"]
    # On a slow machine the second one may be open for as long, and be logged too.
    assert len(service.lines("last_stable_offset_blocked", offset=held["offset"])) == 1
