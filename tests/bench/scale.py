"""How the service scales: `python -m tests.bench.scale`.

It measures one to four instances on one topic of eight partitions; the core alone, in one process
and in two; and the cost of an event against open requests, length of streams, and partitions. One
transaction writes the topic, which becomes readable when all instances have their partitions.
Broker, instances and subscriber share the machine; its busy share shows whether it is the limit.

Settings: `BENCH_SCALE=0.1` (smaller counts), `BENCH_PARTS=instances,processes,curves`,
`BENCH_OUT=scale.json` (a file for the figures), `BENCH_SVG=scale.svg` (a drawing).
"""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final

from tests.bench.core import TOPIC, best_us, messages, read, varied_chunks
from tests.bench.memory import open_many
from tests.bench.plot import Curve, Point, write_svg
from tests.bench.recovery import max_open
from tests.bench.runs import (
    CLOCK,
    Json,
    Machine,
    RecordReader,
    Running,
    chosen,
    create_outputs,
    described,
    input_topic,
    save,
    service,
    setting,
    write,
)
from tests.bench.traffic import BEGIN_MS, CASES, MIDDLE, STREAM_LENGTH, STREAMS
from tests.kafka.server.cluster import KafkaCluster
from tests.unit.core.made import pipeline

_PARTITIONS: Final = 8
_INSTANCES: Final = (1, 2, 3, 4)
_PROCESSES: Final = (1, 2)
_SHARE_S: Final = 60.0
_BUSY: Final = 0.85
_ROUNDS: Final = 3
_OPEN: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_LENGTHS: Final = (10, 100, 1_000, 10_000, 100_000)
_PARTITION_COUNTS: Final = (1, 10, 100, 500)
_OPEN_EACH: Final = 100  # In each partition, where partitions are counted.
_MIN_MESSAGES: Final = 2_000  # For the resolution of the clock.
_PER_SECOND: Final = 2_000  # By the timestamps.
_START_S: Final = 120.0


def main() -> None:
    parts = chosen("PARTS", ("instances", "processes", "curves"))
    result: Json = {}
    curves: list[Curve] = []
    print(described())
    if "instances" in parts:
        result["instances"] = instances()
        points = [(one["instances"], one["events_per_second"]) for one in result["instances"]]
        curves.append(Curve("service instances", "instances", "events/s", points, False))
    if "processes" in parts:
        result["processes"] = processes()
        points = [(one["processes"], one["events_per_second"]) for one in result["processes"]]
        curves.append(Curve("core alone", "processes", "events/s", points, False))
    if "curves" in parts:
        for curve in cost_curves():
            result[curve.title] = curve.points
            curves.append(curve)
    save(result)
    if path := os.environ.get("BENCH_SVG"):
        write_svg(Path(path), curves)


# Instances


def instances() -> list[Json]:
    """Print the rate of several instances together."""
    with KafkaCluster() as kafka:
        create_outputs(kafka)
        return [_instances(kafka, count) for count in _INSTANCES]


def _instances(kafka: KafkaCluster, count: int) -> Json:
    case = CASES["chunks"]
    events, group = case.count(setting("SCALE", 1)), f"bench-scale-{count}-{CLOCK.wall()}"
    reader = RecordReader(kafka)
    with input_topic(kafka, _PARTITIONS) as topic, ExitStack() as stack:
        running = [stack.enter_context(service(kafka, topic, group)) for _ in range(count)]
        write(
            kafka,
            topic,
            case.make(events),
            before_commit=lambda: _wait_until_shared(running),
        )
        began, machine, before = time.perf_counter(), Machine(), _cpu(running)
        reader.wait_for(case.records(events), lambda: _check(running))
        seconds, busy, cpu = time.perf_counter() - began, machine.busy(), _cpu(running) - before
    reader.expect_no_more()
    reader.close()
    limit = "limited by the machine" if busy > _BUSY else "not by the machine"
    print(
        f"{count} instances: {events / seconds:>10,.0f} events/s; CPU of the instances "
        f"{cpu / seconds:.2f} of {os.cpu_count()} cores; machine {busy:.0%} busy: {limit}",
        flush=True,
    )
    return {
        "instances": count,
        "events_per_second": events / seconds,
        "instances_cores": cpu / seconds,
        "machine_busy": busy,
    }


def _wait_until_shared(running: list[Running]) -> None:
    """Wait until each instance has its share of the partitions."""
    min_share = _PARTITIONS // len(running)
    deadline = time.monotonic() + _SHARE_S
    while True:
        shares = [one.assigned() for one in running]
        if sum(shares) == _PARTITIONS and min(shares) >= min_share:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the instances did not share the partitions evenly: {shares}")
        time.sleep(0.1)


def _check(running: list[Running]) -> None:
    for one in running:
        one.check()


def _cpu(running: list[Running]) -> float:
    return sum(one.usage().cpu_seconds for one in running)


# The core alone


def processes() -> list[Json]:
    """Print the rate of the core in several processes at the same time."""
    found = []
    context = get_context("spawn")
    for count in _PROCESSES:
        start, rates = context.Barrier(count + 1), context.SimpleQueue()
        workers = [context.Process(target=_work, args=(start, rates)) for _ in range(count)]
        for worker in workers:
            worker.start()
        start.wait(_START_S)
        machine = Machine()
        rate = sum(rates.get() for _ in workers)
        busy = machine.busy()
        for worker in workers:
            worker.join()
        print(f"core in {count} processes: {rate:,.0f} events/s; machine {busy:.0%} busy")
        found.append({"processes": count, "events_per_second": rate, "machine_busy": busy})
    return found


def _work(start: Barrier, rates: "SimpleQueue[float]") -> None:
    """Feed the core in a process, beginning at the same time as the others."""
    log = list(messages(varied_chunks(STREAMS, STREAM_LENGTH)))
    core, rounds = pipeline(), max(1, round(20 * setting("SCALE", 1)))
    read(core.partition(TOPIC, 0, 0), log)
    start.wait(_START_S)
    began = time.perf_counter()
    for _ in range(rounds):
        read(core.partition(TOPIC, 0, 0), log)
    rates.put(rounds * len(log) / (time.perf_counter() - began))


# The cost of an event


def cost_curves() -> list[Curve]:
    """Print the cost of an event, in microseconds of CPU, against everything that may grow."""
    sizes, lengths, counts = map(_scaled, (_OPEN, _LENGTHS, _PARTITION_COUNTS))
    by_open = [(size, further_us(size, min(max_open(), size))) for size in sizes]
    by_length = [(length, length_us(length)) for length in lengths]
    by_partitions = [(count, further_us(count * _OPEN_EACH, _OPEN_EACH)) for count in counts]
    curves = [
        _cost("cost against open requests", "open requests", by_open),
        _cost("cost against the length of streams", "chunks of a stream", by_length),
        _cost(f"cost against partitions, {_OPEN_EACH} open each", "partitions", by_partitions),
    ]
    for curve in curves:
        points = ", ".join(f"{x:,.0f}: {y:.2f}" for x, y in curve.points)
        print(f"{curve.title}, us per event: {points}", flush=True)
    return curves


def _scaled(counts: Sequence[int]) -> list[int]:
    """Return the counts up to a share of the last one."""
    limit = counts[-1] * setting("SCALE", 1)
    return [count for count in counts if count <= limit] or [counts[0]]


def _cost(title: str, x: str, points: Sequence[Point]) -> Curve:
    return Curve(title, x, "us per event", points)


def further_us(count: int, per_partition: int) -> float:
    """Return the cost of a further chunk while so many requests are open."""
    partitions, names = open_many(count, per_partition)
    rounds = max(1, _MIN_MESSAGES // count)
    best = float("inf")
    for _ in range(_ROUNDS):
        spent = 0.0
        for partition, ids in zip(partitions, names, strict=True):
            done = partition.position // len(ids)
            values = (
                MIDDLE.value(name, done + at, BEGIN_MS) for at in range(rounds) for name in ids
            )
            log = list(messages(values, partition.position, per_second=_PER_SECOND))
            began = time.process_time()
            read(partition, log)
            spent += time.process_time() - began
        best = min(best, spent / (rounds * count) * 1e6)
    return best


def length_us(length: int) -> float:
    """Return the cost of an event of a stream of so many chunks."""
    streams = max(_LENGTHS) // length
    together = min(streams, STREAMS)  # A partition would evict further open requests.
    return best_us(list(messages(varied_chunks(together, length, streams // together))), _ROUNDS)


if __name__ == "__main__":
    main()
