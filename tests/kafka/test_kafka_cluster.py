"""The rules of a real Kafka that the consumer is built on, and the cluster that shows them."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.kafka.server.cluster import (
    KafkaCluster,
    KafkaStartError,
    KafkaUnavailable,
    fetch_jars,
)
from tests.paths import ROOT

pytestmark = pytest.mark.kafka

_SECONDS = 30


@pytest.fixture
def topic(kafka: KafkaCluster) -> Iterator[str]:
    name = f"topic-{uuid4()}"
    kafka.create_topic(name)
    yield name
    kafka.delete_topic(name)


def test_what_is_produced_is_consumed(kafka: KafkaCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b"one", b"two"):
        producer.produce(topic, value)
    assert producer.flush(_SECONDS) == 0

    assert _values(kafka, topic, count=2) == [b"one", b"two"]


def test_only_committed_records_are_visible(kafka: KafkaCluster, topic: str) -> None:
    producer = _transactional(kafka)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(_SECONDS)
    producer.abort_transaction(_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(_SECONDS)

    assert _values(kafka, topic, count=1) == [b"committed"]
    assert _values(kafka, topic, count=2, isolation="read_uncommitted") == [
        b"aborted",
        b"committed",
    ]


def test_offsets_of_a_transaction_come_back_with_their_metadata(
    kafka: KafkaCluster, topic: str
) -> None:
    with closing(_consumer(kafka)) as consumer:
        producer = _transactional(kafka)
        _send_offset(producer, consumer, TopicPartition(topic, 0, 7, "état: 7"))
        producer.commit_transaction(_SECONDS)
        _send_offset(producer, consumer, TopicPartition(topic, 0, 8, "aborted"))
        producer.abort_transaction(_SECONDS)

        [committed] = consumer.committed([TopicPartition(topic, 0)], timeout=_SECONDS)
    assert (committed.offset, committed.metadata) == (7, "état: 7")


def test_a_second_producer_fences_the_first(kafka: KafkaCluster, topic: str) -> None:
    name = str(uuid4())
    first = _transactional(kafka, name)
    first.begin_transaction()
    first.produce(topic, b"zombie")
    first.flush(_SECONDS)
    second = _transactional(kafka, name)

    error = _error_of(lambda: first.commit_transaction(_SECONDS))
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    second.begin_transaction()
    second.produce(topic, b"successor")
    second.commit_transaction(_SECONDS)
    assert _values(kafka, topic, count=1) == [b"successor"]


@pytest.mark.parametrize("character", ["a", "€"])
def test_metadata_of_4095_characters_is_kept(
    kafka: KafkaCluster, topic: str, character: str
) -> None:
    metadata = character * 4095
    with closing(_consumer(kafka)) as consumer:
        producer = _transactional(kafka)
        _send_offset(producer, consumer, TopicPartition(topic, 0, 1, metadata))
        producer.commit_transaction(_SECONDS)

        [committed] = consumer.committed([TopicPartition(topic, 0)], timeout=_SECONDS)
    assert committed.metadata == metadata


@pytest.mark.parametrize("metadata", ["a" * 4096, "\N{SNOWFLAKE}" * 4096, "\N{SNAKE}" * 2048])
def test_longer_metadata_is_refused(kafka: KafkaCluster, topic: str, metadata: str) -> None:
    """Kafka allows 4096 UTF-16 units, and confluent_kafka sends a NUL behind the text."""
    with closing(_consumer(kafka)) as consumer:
        position = TopicPartition(topic, 0, 1, metadata)
        refused = KafkaError.OFFSET_METADATA_TOO_LARGE
        error = _error_of(lambda: consumer.commit(offsets=[position], asynchronous=False))
        assert error.code() == refused

        producer = _transactional(kafka)
        error = _error_of(lambda: _send_offset(producer, consumer, position))
        assert (error.code(), error.txn_requires_abort()) == (refused, True)
        producer.abort_transaction(_SECONDS)


def test_a_console_tool_reads_its_input(kafka: KafkaCluster, topic: str) -> None:
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    tool = "org.apache.kafka.tools.ConsoleProducer"
    produced = kafka.console(tool, *servers, "--topic", topic, input=b"typed\n")

    assert produced.returncode == 0, produced.stderr
    assert _values(kafka, topic, count=1) == [b"typed"]


def test_a_console_tool_shows_committed_offsets(kafka: KafkaCluster, topic: str) -> None:
    group = str(uuid4())
    with closing(_consumer(kafka, group=group)) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 42)], asynchronous=False)
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    described = kafka.console(tool, *servers, "--describe", "--group", group)

    assert described.returncode == 0, described.stderr
    assert [group, topic, "0", "42"] in [
        line.split()[:4] for line in described.stdout.decode().splitlines()
    ]


def test_three_brokers_survive_the_loss_of_one() -> None:
    with KafkaCluster(3) as cluster:
        cluster.create_topic("survivor", partitions=3)
        producer = _transactional(cluster)
        for end in (cluster.kill_broker, cluster.stop_broker):
            end(0)
            producer.begin_transaction()
            producer.produce("survivor", end.__name__.encode(), partition=0)
            producer.commit_transaction(_SECONDS)
            cluster.start_broker(0)

        assert _values(cluster, "survivor", count=2) == [b"kill_broker", b"stop_broker"]


def test_the_log_explains_a_failed_start() -> None:
    cluster = KafkaCluster(config={"offsets.topic.num.partitions": "many"})
    with pytest.raises(KafkaStartError, match=r"many for configuration offsets\.topic"):
        cluster.start()


@pytest.mark.parametrize("program", ["java", "mvn"])
def test_a_missing_program_is_named(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"java": "mvn", "mvn": "java"}[program]
    (tmp_path / other).symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tests.kafka.server.cluster._CACHE", tmp_path / "empty")
    with pytest.raises(KafkaUnavailable, match=f"`{program}`"):
        fetch_jars()


_CRASH = """
import os, signal
from tests.kafka.server.cluster import KafkaCluster
cluster = KafkaCluster()
cluster.start()
print(cluster._sandbox.directory, cluster.bootstrap_servers, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_when_the_tests_are_killed() -> None:
    root = ROOT
    command = [sys.executable, "-c", _CRASH]
    killed = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    directory, address = killed.stdout.decode().split()
    host, port = address.split(":")

    _wait_until(lambda: not Path(directory).exists())
    _wait_until(lambda: not _listens(host, int(port)))


def _error_of(action: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        action()
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def _transactional(kafka: KafkaCluster, name: str | None = None) -> Producer:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name or str(uuid4())}
    )
    producer.init_transactions(_SECONDS)
    return producer


def _send_offset(producer: Producer, consumer: Consumer, position: TopicPartition) -> None:
    producer.begin_transaction()
    group = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([position], group, _SECONDS)


def _consumer(
    kafka: KafkaCluster, *, group: str | None = None, isolation: str = "read_committed"
) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group or str(uuid4()),
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )


def _values(
    kafka: KafkaCluster, topic: str, *, count: int, isolation: str = "read_committed"
) -> list[bytes | None]:
    """Read `count` records and a moment longer, lest one too many goes unnoticed."""
    values: list[bytes | None] = []
    with closing(_consumer(kafka, isolation=isolation)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + _SECONDS
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(100, timeout=0.5)]
        values += [message.value() for message in consumer.consume(100, timeout=0.5)]
    return values


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def _wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
