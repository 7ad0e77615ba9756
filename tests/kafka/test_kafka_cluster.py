"""The cluster that the tests start: it survives a broker, explains failures and leaves nothing."""

import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kafka.harness import SECONDS, Bench, eventually
from tests.kafka.server.cluster import (
    KafkaCluster,
    KafkaStartError,
    KafkaUnavailable,
    fetch_jars,
)
from tests.paths import ROOT

pytestmark = pytest.mark.kafka


def test_three_brokers_survive_the_loss_of_one(tmp_path: Path) -> None:
    with KafkaCluster(3) as cluster:
        bench = Bench(cluster, tmp_path, partitions=1).create()
        producer = bench.transactional_producer()
        for end in (cluster.kill_broker, cluster.stop_broker):
            end(0)
            producer.begin_transaction()
            producer.produce(bench.input, end.__name__.encode(), partition=0)
            producer.commit_transaction(SECONDS)
            cluster.start_broker(0)
        config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "survivors"}
        with closing(Consumer(config)) as consumer:
            consumer.assign([TopicPartition(bench.input, 0, 0)])
            messages = consumer.consume(2, timeout=SECONDS) + consumer.consume(1, timeout=0.5)
        bench.dispose()
    assert [message.value() for message in messages] == [b"kill_broker", b"stop_broker"]


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
from tests.kafka.harness import SECONDS, Bench, eventually
from tests.kafka.server.cluster import KafkaCluster
cluster = KafkaCluster()
cluster.start()
print(cluster._sandbox.directory, cluster.bootstrap_servers, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_when_the_tests_are_killed() -> None:
    command = [sys.executable, "-c", _CRASH]
    killed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    directory, address = killed.stdout.decode().split()
    host, port = address.split(":")

    def is_closed() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0

    eventually(lambda: not Path(directory).exists(), "an empty disk")
    eventually(is_closed, "a closed port")
