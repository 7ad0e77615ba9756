"""The cost of exact restarts: `python -m tests.bench.recovery`.

It prints the sizes of checkpoints, the bytes per second into the offsets topic, and what a restart
reads again, and for how long, by the rate of a partition (`BENCH_RATES=1000,10000`).
"""

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
from tests.bench.runs import (
    CLOCK,
    chosen,
    create_outputs,
    input_topic,
    service,
    wait_for_commits,
    write,
)
from tests.bench.traffic import BEGIN_MS, chunks, steady
from tests.kafka.server.cluster import KafkaCluster

_MAX_REREAD: Final = 2_000_000
_LARGE: Final = {"log.segment.bytes": str(256 << 20)}
_KNOWN_S: Final = 180  # idle_timeout and duplicate_window, by default.
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
        for events_per_second in chosen("RATES", ("1000", "10000", "20000")):
            print_reread(kafka, int(events_per_second))


def print_sizes() -> None:
    """Print the length of checkpoints by open requests, which are spread at random."""
    limit = max_open()
    for span in (100_000, _MAX_REREAD):
        sizes = ", ".join(
            f"{count:,} open: {checkpoint_size(count, span):,}"
            for count in (0, 100, 500, 1_000, limit)
        )
        print(f"checkpoint, characters, open requests over {span:,} messages: {sizes}")


def max_open() -> int:
    """Return how many open requests always fit into a checkpoint, one per message."""
    room, bits = open_budget(_MAX_REREAD)
    return room // (bits + 1)


def checkpoint_size(count: int, span: int) -> int:
    """Return the number of characters of a checkpoint."""
    position = 5_000_000_000
    offsets = sorted(Random(count).sample(range(position - span, position), count))
    start = BlockState(position - span, BEGIN_MS, None)
    places = tuple((offset, 0) for offset in offsets)
    return len(encode(Checkpoint(position, 1, 2, start, places)))


def offsets_topic_rate(kafka: KafkaCluster, interval: str) -> float:
    """Return the bytes per second by which the offsets topic grows under steady traffic."""
    with input_topic(kafka, _PARTITIONS) as topic:
        stopped = threading.Event()
        load = threading.Thread(target=_load, args=(kafka.bootstrap_servers, topic, stopped))
        load.start()
        try:
            with service(kafka, topic, commit_interval=interval) as running:
                running.begun()
                time.sleep(5)  # Until all streams are open.
                before, began = _offsets_bytes(kafka), time.monotonic()
                time.sleep(_OFFSETS_S)
                return (_offsets_bytes(kafka) - before) / (time.monotonic() - began)
        finally:
            stopped.set()
            load.join()


def print_reread(kafka: KafkaCluster, rate: int) -> None:
    """Print the events that a restart reads again in a partition of so many events per second."""
    group = str(uuid.uuid4())
    with input_topic(kafka, 1) as topic:
        events = int(rate * _KNOWN_S * 1.25)
        size = write(kafka, topic, chunks(events), per_second=rate).size / events
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


def _load(bootstrap: str, topic: str, stopped: threading.Event) -> None:
    """Keep so many streams open in each partition, at about 4,000 events per second."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number, (_, value, _, _) in enumerate(steady(_OPEN * _PARTITIONS, CLOCK.wall)):
        producer.produce(topic, value, partition=number % _PARTITIONS)
        if number % 200 == 0:
            if stopped.wait(0.05):
                break
            producer.poll(0)
    producer.flush()


def _offsets_bytes(kafka: KafkaCluster) -> int:
    directory = Path(kafka._brokers[0].directory) / "data"
    return sum(path.stat().st_size for path in directory.glob("__consumer_offsets-*/*.log"))


if __name__ == "__main__":
    main()
