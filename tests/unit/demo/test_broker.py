import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from consumer.demo.embedded_broker import PARTITIONS, EmbeddedBroker


def test_what_is_produced_is_consumed_with_key_headers_and_timestamp() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topics(["round-trip"])
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(20):
            producer.produce(
                "round-trip",
                key=f"key-{number}",
                value=b"" if number == 0 else b"value",
                headers=[("authorization", b"secret"), ("empty", None)],
                timestamp=1_767_225_600_000 + number,
            )
        assert producer.flush(10) == 0
        producer.close()

        messages = _read(broker.bootstrap_servers, "round-trip", 20)

    assert {message.key() for message in messages} == {f"key-{n}".encode() for n in range(20)}
    first = next(message for message in messages if message.key() == b"key-0")
    assert first.value() == b""
    assert first.headers() == [("authorization", b"secret"), ("empty", None)]
    assert first.timestamp()[1] == 1_767_225_600_000


def test_topics_exist_before_anything_is_produced() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topics(["one", "two"])
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
        topics = consumer.list_topics(timeout=10).topics
        consumer.close()

    assert {name: len(topic.partitions) for name, topic in topics.items()} == {
        "one": PARTITIONS,
        "two": PARTITIONS,
    }


def test_committed_offsets_keep_their_metadata() -> None:
    """The service's checkpoints live there; without it a demo could not restart the service."""
    with EmbeddedBroker() as broker:
        broker.create_topics(["committed"])
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test"})
        consumer.commit(
            offsets=[TopicPartition("committed", 2, 7, metadata="checkpoint")], asynchronous=False
        )
        (committed,) = consumer.committed([TopicPartition("committed", 2)], timeout=10)
        consumer.close()

    assert (committed.offset, committed.metadata) == (7, "checkpoint")


def test_several_clusters_live_side_by_side() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers


def test_the_client_library_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topics(["quiet"])

    assert capfd.readouterr() == ("", "")


def _masks_of_client_threads() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        try:
            status = (task / "status").read_text(encoding="utf-8")
        except FileNotFoundError:
            continue  # The thread has ended meanwhile.
        if "rdk:" in status and (found := re.search(r"SigBlk:\s*(\w+)", status)):
            yield found.group(1)


def test_no_signal_can_end_the_cluster() -> None:
    """One that reaches its thread does: Ctrl-C in a demo would, now and then."""
    with EmbeddedBroker():
        masks = list(_masks_of_client_threads())

    assert masks
    for mask in masks:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            assert int(mask, 16) >> (number - 1) & 1
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_it_has_no_address_outside_its_block() -> None:
    broker = EmbeddedBroker()

    with pytest.raises(RuntimeError, match="with block"):
        _ = broker.bootstrap_servers


def _read(bootstrap: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    messages: list[Message] = []
    for _ in range(100):
        messages += consumer.consume(count, timeout=0.1)
        if len(messages) >= count:
            break
    consumer.close()
    return messages
