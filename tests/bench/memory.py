"""What the core holds in memory: `python -m tests.bench.memory`. No Kafka.

A million open requests over as many partitions as their checkpoints need: peak memory of the
process, and bytes for each; and whether memory stays flat over a long steady stream of requests,
and over one stream of a million chunks. `BENCH_SCALE=0.1` makes all three smaller,
`BENCH_OUT=memory.json` keeps the figures.
"""

import gc
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from confluent_kafka import Message as KafkaMessage

from consumer.core.partition import Partition
from tests.bench.core import memory, read
from tests.bench.recovery import most_open
from tests.bench.runs import Json, described, save, setting, usage
from tests.bench.traffic import BEGIN_MS, MIDDLE, STREAMS, long_stream, steady
from tests.unit.core.made import pipeline

_OPEN: Final = 1_000_000
_CHUNKS: Final = 3  # Of each open request.
_STEADY: Final = 2_000_000
_LONG: Final = 1_000_000
_PER_SECOND: Final = 2_000  # By the messages' timestamps: requests are known for three minutes.
_LOOKS: Final = 10
_BATCH: Final = 2_000
_KIB: Final = 1024


def messages(values: Iterable[bytes], first: int = 0) -> Iterator[KafkaMessage]:
    """Return messages of one partition, at a steady rate by their timestamps."""
    for offset, value in enumerate(values, first):
        yield KafkaMessage(
            topic="events",
            partition=0,
            offset=offset,
            key=None,
            value=value,
            timestamp=(1, BEGIN_MS + offset * 1000 // _PER_SECOND),
        )


def open_many(count: int, most: int) -> tuple[list[Partition], list[list[bytes]]]:
    """Open so many requests, of a few chunks each, with no more than a limit per partition.

    Returns:
        The partitions, and the names of the requests in each.

    """
    core = pipeline()
    partitions, names = [], []
    for first in range(0, count, most):
        ids = [b"req-%032d" % number for number in range(first, min(first + most, count))]
        values = (MIDDLE.value(name, at, BEGIN_MS) for at in range(_CHUNKS) for name in ids)
        partition = core.partition("events", 0, 0)
        read(partition, list(messages(values)))
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
    partition, log = pipeline().partition("events", 0, 0), messages(values)
    looks: list[tuple[int, float]] = []
    records = done = 0
    while batch := list(islice(log, _BATCH)):
        records += read(partition, batch)
        done += len(batch)
        looks.append((done, usage().rss_mib))
    looks = looks[:: max(1, len(looks) // _LOOKS)]
    half = len(looks) // 2
    growth = (looks[-1][1] - looks[half][1]) * _KIB**2 / max(1, looks[-1][0] - looks[half][0])
    print(f"{name}: {done:,} events, {records:,} records; MiB after each part: ", end="")
    print(", ".join(f"{rss:.1f}" for _, rss in looks), end="")
    print(f"; in the second half {growth:+.2f} bytes per event", flush=True)
    return {"events": done, "records": records, "mib": looks, "growth_bytes_per_event": growth}


def _open(count: int) -> Json:
    """Print what so many open requests take."""
    gc.collect()
    before, most = usage().rss_mib, most_open()
    partitions, _ = open_many(count, most)
    after = usage()
    each = (after.rss_mib - before) * _KIB**2 / count
    traced = memory(1, most)
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
