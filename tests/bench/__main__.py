"""The service against a bare consumer, on the same topic and broker, in one run.

`make bench` prints events per second of both and their ratio, best of three, repetitions
interleaved. The bare loop is `consume(5000)` with the service's own fetch settings, counting
values; the service is the real process, from its assignment until the last record is written.
"""

import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from consumer.clients import consumer_config
from consumer.settings import Settings
from tests.kafka_server.cluster import KafkaCluster

_EVENTS = int(os.environ.get("BENCH_EVENTS", "600000"))
_STREAMS = 500
_STREAM_LENGTH = 60
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
        size = _fill(kafka.bootstrap_servers)
        print(f"{_EVENTS:,} chunk events of {size:.0f} bytes, {_PARTITIONS} partitions")
        bare, service = [], []
        for _ in range(_REPETITIONS):
            bare.append(_bare(kafka.bootstrap_servers))
            service.append(_service(kafka.bootstrap_servers))
        _print("bare consume(5000)", bare)
        _print("service, at least once", service)
        ratio = max(m.rate for m in service) / max(m.rate for m in bare)
        print(f"{'service / bare':28} {ratio:.2f}")


def _fill(bootstrap: str) -> float:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"}
    )
    total = 0
    for number, (request_id, value) in enumerate(_chunks()):
        while True:
            try:
                producer.produce("events", value, request_id)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        total += len(value)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return total / _EVENTS


def _chunks() -> Iterator[tuple[str, bytes]]:
    """Interleave streams whose last chunk carries the statistics."""
    made = 0
    while made < _EVENTS:
        names = [f"req-{uuid.uuid4()}" for _ in range(_STREAMS)]
        for sequence in range(_STREAM_LENGTH):
            for name in names:
                if made == _EVENTS:
                    return
                yield name, _chunk(name, sequence)
                made += 1


def _chunk(name: str, sequence: int) -> bytes:
    last = sequence == _STREAM_LENGTH - 1
    body: dict[str, object] = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "Qwen3-32B",
        "system_fingerprint": "fp_0123456789abcdef",
    }
    if last:
        body["choices"] = []
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 24, "total_tokens": 35}
        body["metrics"] = {
            "speculative_decoding": {
                "mean_acceptance_length": 2.875,
                "draft_acceptance_rate": 0.625,
                "acceptance_histogram": [2, 1, 1, 4],
                "num_spec_steps": 8,
                "num_accepted_draft_tokens": 15,
                "num_draft_tokens": 24,
                "num_spec_tokens": 3,
            }
        }
    else:
        delta = {"content": "four or five words here "}
        body["choices"] = [
            {
                "index": 0,
                "delta": delta,
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
            }
        ]
        body["usage"] = None
    event = {
        "request_id": name,
        "sequence": sequence,
        "timestamp": 1767225600000 + sequence * 20,
        "body": body,
        "final": last,
    }
    return json.dumps(event, separators=(",", ":")).encode()


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


def _service(bootstrap: str) -> Measured:
    group = str(uuid.uuid4())
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "ACCEPTANCE_TOPICS": "events",
        "ACCEPTANCE_GROUP": group,
        "ACCEPTANCE_LOG_FORMAT": "json",
    }
    before, before_records = _cpu(resource.RUSAGE_CHILDREN), _records(bootstrap)
    process = subprocess.Popen(
        [sys.executable, "-m", "consumer", "run"], env=environment, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b"partitions_assigned" in line:
            break
    start = time.perf_counter()
    _wait_for_records(
        bootstrap, before_records + _STREAMS * (_EVENTS // (_STREAMS * _STREAM_LENGTH))
    )
    seconds = time.perf_counter() - start
    process.terminate()
    process.communicate(timeout=30)
    return Measured(seconds, _cpu(resource.RUSAGE_CHILDREN) - before)


def _wait_for_records(bootstrap: str, wanted: int) -> None:
    deadline = time.perf_counter() + _DEADLINE_S
    while _records(bootstrap) < wanted:
        if time.perf_counter() > deadline:
            raise TimeoutError("the service did not reach the end of the topic")
        time.sleep(0.02)


def _records(bootstrap: str) -> int:
    """Return how many records the output topic holds."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    ends = (
        reader.get_watermark_offsets(TopicPartition("acceptance-records", number), timeout=10)[1]
        for number in range(_PARTITIONS)
    )
    total = sum(ends)
    reader.close()
    return total


def _cpu(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _print(name: str, measured: list[Measured]) -> None:
    best = max(m.rate for m in measured)
    rates = ", ".join(f"{m.rate:,.0f}" for m in measured)
    cpu = min(m.cpu_seconds for m in measured) / _EVENTS * 1e6
    print(f"{name:28} {best:>10,.0f} events/s  ({rates})  {cpu:.1f} CPU us/event")


main()
