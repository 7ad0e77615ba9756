"""What it costs that a restart changes nothing: `python -m tests.bench.recovery`.

Sizes of checkpoints; bytes per second into the offsets topic; and how long and how much is read
again after a restart, by the rate of a partition.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from consumer.checkpoint import Checkpoint, encode, open_budget
from consumer.stream_time import BlockState
from tests.bench.traffic import BEGIN_MS, STREAM_LENGTH, chunk, fill
from tests.kafka_server.cluster import KafkaCluster

_MAX_REREAD: Final = 2_000_000
_KNOWN_S: Final = 180  # idle_timeout and duplicate_window, by default.
_RATES: Final = tuple(map(int, os.environ.get("BENCH_RATES", "1000,10000,20000").split(",")))
_OFFSETS_S: Final = 20.0
_PARTITIONS: Final = 8
_OPEN: Final = 500  # In each partition.
_DEADLINE_S: Final = 900

Json = dict[str, Any]


def main() -> None:
    print_sizes()
    with KafkaCluster(config=_LARGE) as kafka:
        for interval in ("1s", "100ms"):
            rate = offsets_topic_rate(kafka, interval)
            print(
                f"commit_interval {interval}: {rate:,.0f} bytes/s into the offsets topic, "
                f"{_PARTITIONS} partitions with {_OPEN} open requests each"
            )
        for rate in _RATES:
            print_reread(kafka, rate)


_LARGE: Final = {"log.segment.bytes": str(256 << 20)}


def print_sizes() -> None:
    """Print how long the metadata is for so many open requests, spread at random."""
    most = most_open()
    for span in (100_000, _MAX_REREAD):
        sizes = ", ".join(
            f"{count:,} open: {checkpoint_size(count, span):,}"
            for count in (0, 100, 500, 1_000, most)
        )
        print(f"checkpoint, characters, open requests over {span:,} messages: {sizes}")


def most_open() -> int:
    """Return how many open requests fit for certain, one per message."""
    room, bits = open_budget(_MAX_REREAD)
    return room // (bits + 1)


def checkpoint_size(count: int, span: int) -> int:
    """Return how many characters a checkpoint has."""
    position = 5_000_000_000
    offsets = sorted(Random(count).sample(range(position - span, position), count))
    start = BlockState(position - span, BEGIN_MS, None)
    places = tuple((offset, 0) for offset in offsets)
    return len(encode(Checkpoint(position, 1, 2, start, places)))


def offsets_topic_rate(kafka: KafkaCluster, interval: str) -> float:
    """Return the bytes per second by which the offsets topic grows under steady traffic."""
    topic = _topics(kafka, _PARTITIONS)
    stopped = threading.Event()
    load = threading.Thread(target=_steady, args=(kafka.bootstrap_servers, topic, stopped))
    load.start()
    try:
        with _service(kafka, topic, ACCEPTANCE_COMMIT_INTERVAL=interval) as lines:
            _wait_for(lines, "partitions_assigned")
            time.sleep(5)  # Until so many are open.
            before, began = _offsets_bytes(kafka), time.monotonic()
            time.sleep(_OFFSETS_S)
            return (_offsets_bytes(kafka) - before) / (time.monotonic() - began)
    finally:
        stopped.set()
        load.join()


def print_reread(kafka: KafkaCluster, rate: int) -> None:
    """Print what a restart reads again in a partition of so many events per second."""
    topic = _topics(kafka, 1)
    events = int(rate * _KNOWN_S * 1.25)
    size = fill(kafka.bootstrap_servers, topic, events, per_second=rate) / events
    group = str(uuid.uuid4())
    with _service(kafka, topic, ACCEPTANCE_GROUP=group) as lines:
        _wait_for_end(kafka, group, topic, events)
    with _service(kafka, topic, ACCEPTANCE_GROUP=group) as lines:
        started = _wait_for(lines, "reread_started")
        began = time.perf_counter()
        _wait_for(lines, "reread_finished")
        seconds = time.perf_counter() - began
    messages = started["position"] - started["offset"]
    print(
        f"{rate:,} events/s per partition: {messages:,} messages, {messages * size / 1e6:,.0f} MB "
        f"read again in {seconds:.1f} s ({messages / seconds:,.0f}/s)"
    )


def _topics(kafka: KafkaCluster, partitions: int) -> str:
    name = f"events-{uuid.uuid4()}"
    kafka.create_topic(name, partitions)
    for topic in ("acceptance-records", "acceptance-dead-letters"):
        if topic not in _created:
            kafka.create_topic(topic, 4)
            _created.add(topic)
    return name


_created: Final[set[str]] = set()


def _steady(bootstrap: str, topic: str, stopped: threading.Event) -> None:
    """Keep so many streams open in each partition, and end some all the time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    names = [f"req-{uuid.uuid4()}" for _ in range(_OPEN * _PARTITIONS)]
    sequences = [0] * len(names)
    random = Random(1)
    while not stopped.is_set():
        for number in random.sample(range(len(names)), 200):
            value = chunk(names[number], sequences[number])
            producer.produce(topic, value, partition=number % _PARTITIONS)
            sequences[number] += 1
            if sequences[number] == STREAM_LENGTH:
                names[number], sequences[number] = f"req-{uuid.uuid4()}", 0
        producer.poll(0.05)
    producer.flush()


def _offsets_bytes(kafka: KafkaCluster) -> int:
    directory = Path(kafka._brokers[0].directory) / "data"
    return sum(path.stat().st_size for path in directory.glob("__consumer_offsets-*/*.log"))


@contextmanager
def _service(kafka: KafkaCluster, topic: str, **variables: str) -> Iterator[Iterator[Json]]:
    """Run the service; yield its log lines as they come."""
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "ACCEPTANCE_TOPICS": topic,
        "ACCEPTANCE_GROUP": str(uuid.uuid4()),
        "ACCEPTANCE_LOG_FORMAT": "json",
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "consumer", "run"], env=environment, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        yield (json.loads(line) for line in process.stderr)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _wait_for(lines: Iterator[Json], event: str) -> Json:
    return next(line for line in lines if line["event"] == event)


def _wait_for_end(kafka: KafkaCluster, group: str, topic: str, position: int) -> None:
    """Wait until the group has committed the end of the topic's only partition."""
    reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    deadline = time.monotonic() + _DEADLINE_S
    while reader.committed([TopicPartition(topic, 0)], timeout=10)[0].offset < position:
        if time.monotonic() > deadline:
            raise TimeoutError("the service did not reach the end of the topic")
        time.sleep(0.2)
    reader.close()


if __name__ == "__main__":
    main()
