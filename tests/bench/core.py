"""The core alone, on messages in memory, against decoding three members of the same values.

`python -m tests.bench.core` prints microseconds per message and their ratio to a plain
`msgspec.json.decode` of three members, both of the same run, repetitions interleaved. Bodies that
are no JSON are compared with decoding one JSON string of the same size. `python -m tests.bench.core
curves` prints how the cost depends on open requests and on the length of streams, and the memory
that an open request takes; `... metrics` what metrics add.
"""

import gc
import json
import sys
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
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
from tests.unit.core.made import BEGIN_MS, pipeline, vllm_stats
from tests.unit.kafka.fakes import Log

_STREAMS: Final = 500
_STREAM_LENGTH: Final = 60
_ROUNDS: Final = 9
_BATCH: Final = 2000
_TEXTS: Final = (
    "four or five words here ",
    "three words more",
    ' say "so" \n',
    " für Äpfel und Birnen",
    "",
)
_LIMIT: Final = 1_000_000
_BAD: Final = b'{"a":"%b"}' % (b"x" * 600)


class _Three(Struct, gc=False):
    """The members that a bare reader of native events would look at."""

    request_id: str | None = None
    sequence: int | None = None
    final: bool | None = None


class _Id(Struct, gc=False):
    """The member that a bare reader of bodies would look at."""

    id: str | None = None
    object: str | None = None
    usage: dict[str, int] | None = None


def chunk_value(name: str, sequence: int, *, last: bool) -> bytes:
    """Return a chunk as the bench of the whole service sends it."""
    body: dict[str, Any] = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "Qwen3-32B",
        "system_fingerprint": "fp_0123456789abcdef",
    }
    if last:
        body["choices"] = []
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 24, "total_tokens": 35}
        body["metrics"] = vllm_stats()
    else:
        body["choices"] = [_choice(_TEXTS[sequence % len(_TEXTS)])]
        body["usage"] = None
    event = {
        "request_id": name,
        "sequence": sequence,
        "timestamp": BEGIN_MS + sequence * 20,
        "body": body,
        "final": last,
    }
    return json.dumps(event, separators=(",", ":")).encode()


def _choice(text: str) -> dict[str, Any]:
    return {
        "index": 0,
        "delta": {"content": text},
        "logprobs": None,
        "finish_reason": None,
        "stop_reason": None,
    }


def chunks(streams: int, length: int, rounds: int = 1) -> Iterator[bytes]:
    """Interleave streams; the last chunk of each has statistics."""
    for _ in range(rounds):
        names = [f"req-{uuid.uuid4()}" for _ in range(streams)]
        for sequence in range(length):
            for name in names:
                yield chunk_value(name, sequence, last=sequence == length - 1)


def stream_body(size: int) -> bytes:
    """Return a whole stream of server-sent events of about a size."""
    name = f"req-{uuid.uuid4()}"
    parts: list[bytes] = []
    held, sequence = 0, 0
    while held < size:
        parts.append(b"data: " + _body_of(chunk_value(name, sequence, last=False)) + b"\n\n")
        held += len(parts[-1])
        sequence += 1
    parts.append(b"data: " + _body_of(chunk_value(name, sequence, last=True)) + b"\n\n")
    parts.append(b"data: [DONE]\n\n")
    return b"".join(parts)


def _body_of(value: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(value)["body"])


def json_body(size: int) -> bytes:
    """Return a whole response of about a size."""
    text = 'Some text of an answer, with "quotes", lines\nand Äpfel. '
    return msgspec.json.encode(
        {
            "id": f"chatcmpl-{uuid.uuid4()}",
            "object": "chat.completion",
            "model": "Qwen3-32B",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text * (size // len(text))},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 11, "completion_tokens": 24},
            "metrics": vllm_stats(),
        }
    )


def messages(values: list[bytes]) -> list[KafkaMessage]:
    return [
        KafkaMessage(
            topic="events",
            partition=0,
            offset=offset,
            key=None,
            value=value,
            timestamp=(1, BEGIN_MS + offset // 100),
        )
        for offset, value in enumerate(values)
    ]


def read(partition: Partition, log: list[Any], metrics: Metrics | None = None) -> int:
    """Take a log as the service does, and make records and letters; return how many records."""
    records = 0
    reporter = OutcomeReporter(
        dead_letters="full",
        record_limit=_LIMIT,
        letter_limit=_LIMIT,
        preview=0,
        clock=SystemClock(),
        log=Log(),
    )
    for first in range(0, len(log), _BATCH):
        counts, outputs = OutcomeCounts(), list[OutputMessage]()
        for message, result in partition.feed_all(log[first : first + _BATCH]).not_accepted:
            outputs += reporter.message(message, result, partition.origin)
        for outcome in partition.drain():
            if metrics is not None:
                counts.add_request(outcome, metrics.labels_of(outcome))
            records += len(made := reporter.request(outcome, partition.origin))
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


def _case(name: str, values: list[bytes], of: type[Struct], rounds: int = _ROUNDS) -> None:
    """Print one case: the best of all rounds, and the ratio to decoding the same values."""
    core, log = pipeline(), messages(values)
    decode = msgspec.json.Decoder(of).decode
    bare = [value if value.startswith(b"{") else b'"%s"' % (b"x" * len(value)) for value in values]
    text = msgspec.json.Decoder(str).decode

    def decoding() -> None:
        for value in bare:
            (decode if value.startswith(b"{") else text)(value)

    gc.collect()
    gc.freeze()  # The log is ours, and no service has one in memory for the collector to visit.
    ours, floor = [], []
    for _ in range(rounds):
        floor.append(_seconds(decoding))
        ours.append(_seconds(lambda: read(core.partition("events", 0, 0), log)))
    us, base = min(ours) / len(values) * 1e6, min(floor) / len(values) * 1e6
    gc.unfreeze()
    rate = sum(map(len, values)) / min(ours) / 1e6
    print(
        f"{name:24} {us:>9.2f} us   decode {base:>8.2f} us   ratio {us / base:>6.2f}"
        f"   {rate:>6.0f} MB/s"
    )


def cases() -> None:
    log = list(chunks(_STREAMS, _STREAM_LENGTH, 2))
    _case("chunk events", log, _Three)
    _case("  long streams", list(chunks(50, 1200)), _Three)
    # Not more at once than a partition keeps open.
    _case("  first and last only", list(chunks(1000, 2, 5)), _Three)
    bad = list(log)
    for at in range(len(log), 0, -100):  # Between the others: in place of one, it would be a gap.
        bad.insert(at, _BAD)
    _case("  1 % bad", bad, _Three)
    _case("bad payloads", [_BAD] * 5000, _Three)
    _case("JSON 1 KiB", [json_body(1 << 10) for _ in range(2000)], _Id)
    _case("JSON 64 KiB", [json_body(1 << 16) for _ in range(100)], _Id)
    _case("SSE 64 KiB", [stream_body(1 << 16) for _ in range(100)], _Id, 5)
    _case("SSE 1 MiB", [stream_body(1 << 20) for _ in range(8)], _Id, 5)


def curves() -> None:
    """Print how the cost depends on what is open, and what an open request takes."""
    for length in (10, 100, 10_000, 100_000):
        streams = 100_000 // length
        together = min(streams, _STREAMS)  # More than a partition keeps open would be closed.
        values = list(chunks(together, length, streams // together))
        _case(f"streams of {length:,}", values, _Three, 3)
    for partitions in (1, 10, 100):
        _many_open(partitions, 1000)
    print(f"{memory(20, 1000):.0f} bytes for each open request")


def telemetry() -> None:
    """Print the cost with metrics by that without."""
    _telemetry("chunk events", list(chunks(_STREAMS, _STREAM_LENGTH, 2)))
    _telemetry("  first and last only", list(chunks(1000, 2, 10)))


def _telemetry(name: str, values: list[bytes]) -> None:
    core, metrics, log = pipeline(), Metrics(), messages(values)
    without, with_them = [], []
    for _ in range(2 * _ROUNDS):
        without.append(_seconds(lambda: read(core.partition("events", 0, 0), log)))
        with_them.append(_seconds(lambda: read(core.partition("events", 0, 0), log, metrics)))
    print(f"{name:24} with metrics {min(with_them) / min(without):>6.3f} of the time without")


def _many_open(partitions: int, streams: int) -> None:
    """Print the cost of a further chunk of each of so many open requests."""
    core = pipeline()
    logs = [messages(list(chunks(streams, 6))) for _ in range(partitions)]
    ours = []
    for _ in range(3):
        parts = [core.partition("events", 0, 0) for _ in logs]
        for at in range(4):
            began = time.process_time()
            for partition, log in zip(parts, logs, strict=True):
                read(partition, log[at * streams : (at + 1) * streams])
            if at > 1:
                ours.append(time.process_time() - began)
        assert sum(partition.open_requests for partition in parts) == partitions * streams
    print(f"{partitions * streams:>9,} open {min(ours) / partitions / streams * 1e6:>23.2f} us")


def memory(partitions: int, streams: int) -> float:
    """Return the bytes that an open request takes, after its third chunk."""
    core = pipeline()
    logs = [messages(list(chunks(streams, 4))[: 3 * streams]) for _ in range(partitions)]
    gc.collect()
    tracemalloc.start()
    parts = [core.partition("events", 0, 0) for _ in logs]
    for partition, log in zip(parts, logs, strict=True):
        read(partition, log)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / sum(partition.open_requests for partition in parts)


if __name__ == "__main__":
    {"curves": curves, "metrics": telemetry}.get("".join(sys.argv[1:]), cases)()
