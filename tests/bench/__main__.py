"""The service against a bare consumer, on the same topic and broker, in one run.

`make bench` prints events per second and their ratio, best of three, repetitions interleaved. The
bare loop is `consume(5000)` with the service's own fetch settings, counting values; the service is
the real process, with either delivery, from its assignment until the last record is written.
"""

import os
import resource
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from consumer.clients import consumer_config
from consumer.settings import Settings
from tests.bench.traffic import STREAM_LENGTH, STREAMS, fill
from tests.kafka_server.cluster import KafkaCluster

_EVENTS = int(os.environ.get("BENCH_EVENTS", "600000"))
_PARTITIONS = 4
_REPETITIONS = 3
_DEADLINE_S = 300


@dataclass(frozen=True)
class Measured:
    """One repetition."""

    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return _EVENTS / self.seconds


def main() -> None:
    with KafkaCluster() as kafka:
        for topic in ("events", "acceptance-records", "acceptance-dead-letters"):
            kafka.create_topic(topic, partitions=_PARTITIONS)
        size = fill(kafka.bootstrap_servers, "events", _EVENTS) / _EVENTS
        print(f"{_EVENTS:,} chunk events of {size:.0f} bytes, {_PARTITIONS} partitions")
        bare: list[Measured] = []
        services: dict[str, list[Measured]] = {"at_least_once": [], "exactly_once": []}
        for _ in range(_REPETITIONS):
            bare.append(_bare(kafka.bootstrap_servers))
            for delivery, measured in services.items():
                measured.append(_service(kafka.bootstrap_servers, delivery))
        _print("bare consume(5000)", bare)
        for delivery, measured in services.items():
            _print(f"service, {delivery}", measured)
            ratio = max(m.rate for m in measured) / max(m.rate for m in bare)
            print(f"{'  of the bare loop':28} {ratio:>10.2f}")


def _bare(bootstrap: str) -> Measured:
    settings = Settings(bootstrap_servers=bootstrap, topics=("events",), group=str(uuid.uuid4()))
    config = {**consumer_config(settings), "auto.offset.reset": "earliest"}
    config.pop("logger")
    consumer = Consumer(config)
    consumer.assign([TopicPartition("events", number, 0) for number in range(_PARTITIONS)])
    first = consumer.poll(10)
    assert first is not None
    start, before, seen = time.perf_counter(), _cpu(resource.RUSAGE_SELF), 1
    while seen < _EVENTS:
        seen += sum(1 for message in consumer.consume(5000, 1) if message.value() is not None)
    measured = Measured(time.perf_counter() - start, _cpu(resource.RUSAGE_SELF) - before)
    consumer.close()
    return measured


def _service(bootstrap: str, delivery: str) -> Measured:
    group = str(uuid.uuid4())
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "ACCEPTANCE_TOPICS": "events",
        "ACCEPTANCE_GROUP": group,
        "ACCEPTANCE_DELIVERY": delivery,
        "ACCEPTANCE_LOG_FORMAT": "json",
    }
    before = _cpu(resource.RUSAGE_CHILDREN)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    reader.assign([TopicPartition("acceptance-records", n, OFFSET_END) for n in range(_PARTITIONS)])
    reader.poll(1)  # Until it knows where the ends are.
    process = subprocess.Popen(
        [sys.executable, "-m", "consumer", "run"], env=environment, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b"partitions_assigned" in line:
            break
    start = time.perf_counter()
    _wait_for_records(reader, STREAMS * (_EVENTS // (STREAMS * STREAM_LENGTH)))
    seconds = time.perf_counter() - start
    process.terminate()
    process.communicate(timeout=30)
    reader.close()
    return Measured(seconds, _cpu(resource.RUSAGE_CHILDREN) - before)


def _wait_for_records(reader: Consumer, wanted: int) -> None:
    deadline = time.perf_counter() + _DEADLINE_S
    while wanted > 0:
        wanted -= len(reader.consume(500, 0.02))
        if time.perf_counter() > deadline:
            raise TimeoutError("the service did not reach the end of the topic")


def _cpu(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _print(name: str, measured: list[Measured]) -> None:
    best = max(m.rate for m in measured)
    rates = ", ".join(f"{m.rate:,.0f}" for m in measured)
    cpu = min(m.cpu_seconds for m in measured) / _EVENTS * 1e6
    print(f"{name:28} {best:>10,.0f} events/s  ({rates})  {cpu:.1f} CPU us/event")


if __name__ == "__main__":
    main()
