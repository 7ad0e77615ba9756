"""The service against a bare consumer, on the same topic and broker, in one run: `make bench`.

For each kind of traffic it measures: the bare loop, which counts values from `consume(5000)` with
the service's fetch settings; the same loop decoding three members of each event; the same loop
passing on, in transactions, a message as large as a record for each output of the service; and the
service as a process, with either delivery. Repetitions are interleaved; the table shows
medians with minimum and maximum. The time of a loop starts with its first message. The time of the
service starts with its partitions, so its first fetch counts, and ends when a `read_committed`
subscriber has the last record (without records: when the last offset is committed).

Settings: `BENCH_CASES=chunks,sse64k`, `BENCH_SCALE=0.1` (smaller counts), `BENCH_REPETITIONS=5`,
`BENCH_OUT=bench.json` (a file for the figures).
"""

import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from consumer.core.message import Headers
from consumer.kafka.client_config import consumer_config, producer_config
from consumer.settings.settings import Settings
from tests.bench.core import EventHead
from tests.bench.runs import (
    PASSED_ON,
    STEP_S,
    Filled,
    Json,
    Run,
    Spread,
    Written,
    chosen,
    create_outputs,
    described,
    filled_topic,
    run_service,
    save,
    setting,
    usage,
)
from tests.bench.traffic import CASES, Case
from tests.kafka.server.cluster import KafkaCluster

_PARTITIONS: Final = 4
_BATCH: Final = 5000
_MAX_BYTES: Final = 64 << 20  # Of a batch of a bare loop.
_DELIVERIES: Final = ("at_least_once", "exactly_once")
# As large as a record with its key and headers.
_VALUE: Final = b"v" * 900
_KEY: Final = b"k" * 40
_HEADERS: Final[Headers] = [(f"header-{number}", b"h" * 20) for number in range(7)]
_HEAD: Final = (
    f"{'':26} {'events/s':>28} {'MB/s':>7} {'of the bare loop':>22} {'CPU s/M':>8} {'MiB':>6}"
)

Handle = Callable[[list[Message]], None]


def main() -> None:
    scale, repetitions = setting("SCALE", 1), int(setting("REPETITIONS", 3))
    cases = [CASES[name] for name in chosen("CASES", tuple(CASES))]
    result: Json = {"scale": scale, "repetitions": repetitions, "cases": {}}
    print(f"{described()}; {repetitions} repetitions, median (min-max)\n\n{_HEAD}")
    with KafkaCluster() as kafka:
        create_outputs(kafka)
        for case in cases:
            with filled_topic(kafka, _PARTITIONS, case, scale) as topic:
                result["cases"][case.name] = _measure(case, topic, repetitions)
    save(result)


def _measure(case: Case, topic: Filled, repetitions: int) -> Json:
    """Measure one case, and print it."""
    written = topic.written
    print(f"{case.title}: {written.events:,} of {written.size / written.events:,.0f} bytes")
    ways: dict[str, Callable[[], Run]] = {"bare": lambda: _read(topic, _count)}
    if case.native:
        ways["decode"] = lambda: _read(topic, _each(_try_to_decode if case.bad else _decode))
    ways["pass on"] = lambda: _pass_on(topic)
    for delivery in _DELIVERIES:
        ways[delivery] = lambda delivery=delivery: run_service(topic, delivery=delivery)  # type: ignore[misc]
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    for _ in range(repetitions):
        for way, run in ways.items():
            runs[way].append(run())
    return {
        "events": written.events,
        "bytes": written.size,
        "ways": {way: _summary(way, runs, written) for way in ways},
    }


def _summary(way: str, runs: dict[str, list[Run]], written: Written) -> Json:
    """Print a line of the table, and return its figures."""
    rates = Spread.of(written.events / run.seconds for run in runs[way])
    # By the loop just before it, because the machine may change by the minute.
    pairs = zip(runs["bare"], runs[way], strict=True)
    ratios = Spread.of(bare.seconds / run.seconds for bare, run in pairs)
    mb = rates.median * written.size / written.events / 1e6
    cpu = Spread.of(run.cpu_seconds / written.events * 1e6 for run in runs[way])
    peaks = [run.peak_mib for run in runs[way] if run.peak_mib is not None]
    print(
        f"  {way:24} {rates.text():>28} {mb:>7,.0f} {ratios.text('.3f'):>22} {cpu.median:>8.1f}"
        f" {f'{max(peaks):.0f}' if peaks else '-':>6}"
    )
    sys.stdout.flush()
    return {
        "events_per_second": rates.json(),
        "mb_per_second": mb,
        "of_the_bare_loop": ratios.json(),
        "cpu_seconds_per_million": cpu.json(),
        "peak_mib": max(peaks) if peaks else None,
    }


_decode: Final = msgspec.json.Decoder(EventHead).decode


def _try_to_decode(value: bytes) -> None:
    """Decode a value that may be bad."""
    with suppress(msgspec.MsgspecError):
        _decode(value)


def _count(messages: list[Message]) -> None:
    if sum(1 for message in messages if message.value() is not None) < len(messages):
        raise ValueError("an event without a value")


def _each(function: Callable[[bytes], object]) -> Handle:
    def handle(messages: list[Message]) -> None:
        for message in messages:
            function(message.value())  # type: ignore[arg-type]

    return handle


def _pass_on(topic: Filled) -> Run:
    """Read the topic, and write as many messages as the service does."""
    settings = _settings(topic)
    every = topic.written.events // (topic.records or topic.written.events)
    config = producer_config(settings)
    config.pop("logger")
    producer = Producer(config)
    producer.init_transactions()
    producer.begin_transaction()
    commit_at = time.monotonic() + settings.commit_interval

    def handle(messages: list[Message]) -> None:
        nonlocal commit_at
        for _ in range(0, len(messages), every):
            while True:
                try:
                    producer.produce(PASSED_ON, _VALUE, _KEY, headers=_HEADERS)
                except BufferError:
                    producer.poll(STEP_S)
                else:
                    break
        producer.poll(0)
        if time.monotonic() >= commit_at:
            producer.commit_transaction()
            producer.begin_transaction()
            commit_at = time.monotonic() + settings.commit_interval

    return _read(topic, handle, producer.commit_transaction)


def _settings(topic: Filled) -> Settings:
    return Settings(
        bootstrap_servers=topic.kafka.bootstrap_servers,
        topics=(topic.name,),
        group=f"bench-{uuid.uuid4()}",
        transactional_id=f"bench-{uuid.uuid4()}",
    )


def _read(
    topic: Filled,
    handle: Handle,
    finish: Callable[[], object] = lambda: None,
) -> Run:
    """Read the topic in this process."""
    config = {**consumer_config(_settings(topic)), "enable.partition.eof": False}
    config.pop("logger")
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic.name, number, 0) for number in range(topic.partitions)])
    first = consumer.poll(30)
    if first is None:
        raise TimeoutError("the topic cannot be read")
    written = topic.written
    batch = max(1, min(_BATCH, _MAX_BYTES * written.events // written.size))
    began, before, seen = time.perf_counter(), usage(), 1
    while seen < written.events:
        messages = consumer.consume(min(batch, written.events - seen), 1)
        handle(messages)
        seen += len(messages)
    finish()
    run = Run(time.perf_counter() - began, usage().cpu_seconds - before.cpu_seconds)
    consumer.close()
    return run


if __name__ == "__main__":
    main()
