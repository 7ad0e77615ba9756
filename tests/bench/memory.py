"""The memory of the core, without Kafka: `python -m tests.bench.memory`.

It measures the memory of a million open requests, over as many partitions as their checkpoints
need, and whether memory stays flat over a long steady stream of requests, and over one stream of a
million chunks.

Settings: `BENCH_SCALE=0.1` (smaller counts), `BENCH_OUT=memory.json` (a file for the figures).
"""

import gc
from collections.abc import Iterator
from itertools import islice
from typing import Final

from consumer.core.partition import Partition
from tests.bench.core import TOPIC, messages, read, traced_bytes
from tests.bench.recovery import max_open
from tests.bench.runs import Json, described, save, setting, usage
from tests.bench.traffic import BEGIN_MS, MIDDLE, STREAMS, long_stream, steady
from tests.unit.core.made import pipeline

_OPEN: Final = 1_000_000
_CHUNKS: Final = 3  # Of each open request.
_STEADY: Final = 2_000_000
_LONG: Final = 1_000_000
_PER_SECOND: Final = 2_000  # By the messages' timestamps: requests are known for three minutes.
_SAMPLES: Final = 10
_BATCH: Final = 2_000
_KIB: Final = 1024


def open_many(count: int, per_partition: int) -> tuple[list[Partition], list[list[bytes]]]:
    """Open so many requests, of a few chunks each; return the partitions, and the ids in each."""
    core = pipeline()
    partitions, names = [], []
    for first in range(0, count, per_partition):
        ids = [b"req-%032d" % number for number in range(first, min(first + per_partition, count))]
        values = (MIDDLE.value(name, at, BEGIN_MS) for at in range(_CHUNKS) for name in ids)
        partition = core.partition(TOPIC, 0, 0)
        read(partition, list(messages(values, per_second=_PER_SECOND)))
        partitions.append(partition)
        names.append(ids)
    opened = sum(partition.open_requests for partition in partitions)
    if opened != count:
        raise RuntimeError(f"{opened:,} requests are open, not {count:,}")
    return partitions, names


def main() -> None:
    scale = setting("SCALE", 1)
    print(described())
    steady_events = round(_STEADY * scale)
    clock = iter(range(BEGIN_MS, BEGIN_MS + 10 * steady_events + 1))
    values = (value for _, value, _, _ in steady(STREAMS, lambda: next(clock)))
    result = {
        "steady": _flat(f"{STREAMS} streams at a time", islice(values, steady_events)),
        "long": _flat("one stream", long_stream(round(_LONG * scale))),
        "open": _open(round(_OPEN * scale)),
    }
    save(result)


def _flat(name: str, values: Iterator[bytes]) -> Json:
    """Print the memory along a stream of events."""
    partition, log = pipeline().partition(TOPIC, 0, 0), messages(values, per_second=_PER_SECOND)
    samples: list[tuple[int, float]] = []
    records = done = 0
    while batch := list(islice(log, _BATCH)):
        records += read(partition, batch)
        done += len(batch)
        samples.append((done, usage().rss_mib))
    samples = samples[:: max(1, len(samples) // _SAMPLES)]
    half = len(samples) // 2
    growth = (
        (samples[-1][1] - samples[half][1]) * _KIB**2 / max(1, samples[-1][0] - samples[half][0])
    )
    print(f"{name}: {done:,} events, {records:,} records; MiB after each part: ", end="")
    print(", ".join(f"{rss:.1f}" for _, rss in samples), end="")
    print(f"; in the second half {growth:+.2f} bytes per event", flush=True)
    return {"events": done, "records": records, "mib": samples, "growth_bytes_per_event": growth}


def _open(count: int) -> Json:
    """Print the memory of so many open requests."""
    gc.collect()
    before, per_partition = usage().rss_mib, max_open()
    partitions, _ = open_many(count, per_partition)
    after = usage()
    each = (after.rss_mib - before) * _KIB**2 / count
    traced = traced_bytes(per_partition)
    print(
        f"{count:,} open requests over {len(partitions)} partitions: peak {after.peak_mib:,.0f} MiB"
        f", {each:,.0f} bytes for each ({traced:,.0f} by Python's own count)"
    )
    return {
        "open": count,
        "partitions": len(partitions),
        "peak_mib": after.peak_mib,
        "bytes_each": each,
        "traced_bytes_each": traced,
    }


if __name__ == "__main__":
    main()
