"""What it costs that a restart changes nothing: `python -m tests.bench.recovery`.

Sizes of checkpoints; bytes per second into the offsets topic; and how long and how much is read
again after a restart, by the rate of a partition.
"""

import os
import threading
import time
import uuid
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import Producer

from consumer.core.checkpoint import Checkpoint, encode, open_budget
from consumer.core.stream_time import BlockState
from tests.bench.runs import create_outputs, input_topic, service, wait_for_commits
from tests.bench.traffic import BEGIN_MS, STREAM_LENGTH, chunk, fill
from tests.kafka.server.cluster import KafkaCluster

_MAX_REREAD: Final = 2_000_000
_KNOWN_S: Final = 180  # idle_timeout and duplicate_window, by default.
_RATES: Final = tuple(map(int, os.environ.get("BENCH_RATES", "1000,10000,20000").split(",")))
_OFFSETS_S: Final = 20.0
_PARTITIONS: Final = 8
_OPEN: Final = 500  # In each partition.


def main() -> None:
    print_sizes()
    with KafkaCluster(config=_LARGE) as kafka:
        create_outputs(kafka)
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
    with input_topic(kafka, _PARTITIONS) as topic:
        stopped = threading.Event()
        load = threading.Thread(target=_steady, args=(kafka.bootstrap_servers, topic, stopped))
        load.start()
        try:
            with service(kafka, topic, commit_interval=interval) as running:
                running.begun()
                time.sleep(5)  # Until so many are open.
                before, began = _offsets_bytes(kafka), time.monotonic()
                time.sleep(_OFFSETS_S)
                return (_offsets_bytes(kafka) - before) / (time.monotonic() - began)
        finally:
            stopped.set()
            load.join()


def print_reread(kafka: KafkaCluster, rate: int) -> None:
    """Print what a restart reads again in a partition of so many events per second."""
    group = str(uuid.uuid4())
    with input_topic(kafka, 1) as topic:
        events = int(rate * _KNOWN_S * 1.25)
        size = fill(kafka.bootstrap_servers, topic, events, per_second=rate) / events
        with service(kafka, topic, group):
            wait_for_commits(kafka, group, topic, 1)
        with service(kafka, topic, group) as running:
            started = running.process.wait_for("reread_started")
            finished = running.process.wait_for("reread_finished")
    began, ended = (datetime.fromisoformat(line["timestamp"]) for line in (started, finished))
    seconds = (ended - began).total_seconds()
    messages = started["position"] - started["offset"]
    print(
        f"{rate:,} events/s per partition: {messages:,} messages, {messages * size / 1e6:,.0f} MB "
        f"read again in {seconds:.1f} s ({messages / seconds:,.0f}/s)"
    )


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


if __name__ == "__main__":
    main()
