"""The core alone, on messages in memory, against decoding three members of the same values.

`python -m tests.bench.core` prints microseconds per message and their ratio to a plain
`msgspec.json.decode` of three members, both of the same run, repetitions interleaved. Bodies that
are not JSON are compared with decoding one JSON string of the same size. `python -m
tests.bench.core metrics` prints what metrics add.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from confluent_kafka import Message as KafkaMessage
from msgspec import Struct

from consumer.core.output_messages import OutputMessage
from consumer.core.partition import Partition
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import OutcomeCounts
from consumer.telemetry.outcome_reporter import OutcomeReporter
from tests.bench.traffic import (
    BEGIN_MS,
    STREAM_LENGTH,
    STREAMS,
    interleaved,
    json_body,
    stream_body,
)
from tests.unit.core.made import pipeline
from tests.unit.kafka.fakes import Log

_ROUNDS: Final = 9
_BATCH: Final = 2000
_LIMIT: Final = 1_000_000
_BAD: Final = b'{"a":"%b"}' % (b"x" * 600)
TOPIC: Final = "events"


class EventHead(Struct, gc=False):
    """The members that a bare reader of native events decodes."""

    request_id: str | None = None
    sequence: int | None = None
    final: bool | None = None


class _BodyHead(Struct, gc=False):
    """The members that a bare reader of bodies decodes."""

    id: str | None = None
    object: str | None = None
    usage: dict[str, int] | None = None


def messages(
    values: Iterable[bytes], first: int = 0, *, per_second: int = 100_000
) -> Iterator[KafkaMessage]:
    """Return the messages of one partition, at a steady rate by their timestamps."""
    for offset, value in enumerate(values, first):
        yield KafkaMessage(
            topic=TOPIC,
            partition=0,
            offset=offset,
            key=None,
            value=value,
            timestamp=(1, BEGIN_MS + offset * 1000 // per_second),
        )


def varied_chunks(streams: int, length: int, rounds: int = 1) -> list[bytes]:
    """Return interleaved streams whose chunks differ in their texts."""
    return [value for _, value in interleaved(streams, length, rounds, varied=True)]


def read(partition: Partition, log: list[Any], metrics: Metrics | None = None) -> int:
    """Feed a log as the service does, make its outputs, and return the number of records."""
    records = 0
    reporter = OutcomeReporter(
        dead_letters="full",
        record_limit=_LIMIT,
        letter_limit=_LIMIT,
        log_payloads=False,
        clock=SystemClock(),
        log=Log(),
    )
    for first in range(0, len(log), _BATCH):
        counts, outputs = OutcomeCounts(), list[OutputMessage]()
        for message, result in partition.feed_all(log[first : first + _BATCH]).not_accepted:
            outputs += reporter.report_message(message, result, partition.origin)
        for outcome in partition.drain():
            if metrics is not None:
                counts.add_request(outcome, metrics.labels_of(outcome))
            records += len(made := reporter.report_request(outcome, partition.origin))
            outputs += made
        if metrics is not None:
            metrics.count_committed_batch(
                [(counts, outputs)], duration_s=0.0, committed_at_ms=BEGIN_MS
            )
    return records


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def best_us(log: list[KafkaMessage], rounds: int) -> float:
    """Return the CPU microseconds per message of a log, as the best of some rounds."""
    core = pipeline()
    passes = (_seconds(lambda: read(core.partition(TOPIC, 0, 0), log)) for _ in range(rounds))
    return min(passes) / len(log) * 1e6


def _case(name: str, values: list[bytes], of: type[Struct], rounds: int = _ROUNDS) -> None:
    """Print one case: the best of all rounds, and the ratio to decoding the same values."""
    log = list(messages(values))
    decode = msgspec.json.Decoder(of).decode
    bare = [value if value.startswith(b"{") else b'"%s"' % (b"x" * len(value)) for value in values]
    text = msgspec.json.Decoder(str).decode

    def decode_all() -> None:
        for value in bare:
            (decode if value.startswith(b"{") else text)(value)

    gc.collect()
    gc.freeze()  # A service has no log in memory, so the collector must not visit this one.
    us, decode_us = float("inf"), float("inf")
    for _ in range(rounds):
        decode_us = min(decode_us, _seconds(decode_all) / len(values) * 1e6)
        us = min(us, best_us(log, 1))
    gc.unfreeze()
    rate = sum(map(len, values)) / len(values) / us
    print(
        f"{name:24} {us:>9.2f} us   decode {decode_us:>8.2f} us   ratio {us / decode_us:>6.2f}"
        f"   {rate:>6.0f} MB/s"
    )


def cases() -> None:
    log = varied_chunks(STREAMS, STREAM_LENGTH, 2)
    _case("chunk events", log, EventHead)
    _case("  long streams", varied_chunks(50, 1200), EventHead)
    # No more at a time than a partition keeps open.
    _case("  first and last only", varied_chunks(1000, 2, 5), EventHead)
    bad = list(log)
    for at in range(len(log), 0, -100):  # Inserted: replacing an event would make a gap.
        bad.insert(at, _BAD)
    _case("  1 % bad", bad, EventHead)
    _case("bad payloads", [_BAD] * 5000, EventHead)
    _case("JSON 1 KiB", [json_body(1 << 10) for _ in range(2000)], _BodyHead)
    _case("JSON 64 KiB", [json_body(1 << 16) for _ in range(100)], _BodyHead)
    _case("SSE 64 KiB", [stream_body(1 << 16) for _ in range(100)], _BodyHead, 5)
    _case("SSE 1 MiB", [stream_body(1 << 20) for _ in range(8)], _BodyHead, 5)


def telemetry() -> None:
    """Print the cost with metrics as a ratio to the cost without."""
    _telemetry("chunk events", varied_chunks(STREAMS, STREAM_LENGTH, 2))
    _telemetry("  first and last only", varied_chunks(1000, 2, 10))


def _telemetry(name: str, values: list[bytes]) -> None:
    core, metrics, log = pipeline(), Metrics(), list(messages(values))
    without, with_metrics = [], []
    for _ in range(2 * _ROUNDS):
        without.append(_seconds(lambda: read(core.partition(TOPIC, 0, 0), log)))
        with_metrics.append(_seconds(lambda: read(core.partition(TOPIC, 0, 0), log, metrics)))
    ratio = min(with_metrics) / min(without)
    print(f"{name:24} with metrics {ratio:>6.3f} of the time without")


def traced_bytes(streams: int) -> float:
    """Return the bytes of an open request by Python's own count, after its third chunk."""
    log = list(messages(varied_chunks(streams, 4)[: 3 * streams]))
    core = pipeline()
    gc.collect()
    tracemalloc.start()
    partition = core.partition(TOPIC, 0, 0)
    read(partition, log)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / partition.open_requests


if __name__ == "__main__":
    telemetry() if sys.argv[1:] == ["metrics"] else cases()
