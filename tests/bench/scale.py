"""How it scales: `python -m tests.bench.scale`.

One to four instances on one topic of eight partitions; the core alone, in one process and in two;
and what an event costs against open requests, the length of streams, and partitions. The topic
becomes readable at once, when all instances have their partitions, since it is written in one
transaction. Broker, instances and subscriber share this machine: how busy it is says what limits.

`BENCH_SCALE=0.1` makes everything smaller, `BENCH_PARTS=instances,processes,curves` chooses,
`BENCH_OUT=scale.json` keeps the figures and `BENCH_SVG=scale.svg` draws them.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench.core import chunks as core_chunks
from tests.bench.core import messages, read
from tests.bench.memory import messages as later_messages
from tests.bench.memory import open_many
from tests.bench.plot import Curve, Point, write_svg
from tests.bench.recovery import most_open
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
)
from tests.bench.traffic import BEGIN_MS, CASES, MIDDLE, write
from tests.kafka.server.cluster import KafkaCluster
from tests.unit.core.made import pipeline

_PARTITIONS: Final = 8
_INSTANCES: Final = (1, 2, 3, 4)
_PROCESSES: Final = (1, 2)
_SETTLE_S: Final = 60.0
_BUSY: Final = 0.85
_CORE_STREAMS: Final = 500
_CORE_LENGTH: Final = 60
_ROUNDS: Final = 3
_OPEN: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_LENGTHS: Final = (10, 100, 1_000, 10_000, 100_000)
_PARTITION_COUNTS: Final = (1, 10, 100, 500)
_OPEN_EACH: Final = 100  # In each partition, where partitions are counted.
_FEWEST_MESSAGES: Final = 2_000  # Or the clock would be too coarse.
_WORKER: Final = "worker"


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
    """Print how fast some instances are together."""
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
            kafka.bootstrap_servers,
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
    fewest = _PARTITIONS // len(running)
    deadline = time.monotonic() + _SETTLE_S
    while True:
        shares = [one.assigned() for one in running]
        if sum(shares) == _PARTITIONS and min(shares) >= fewest:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the instances share the partitions like this: {shares}")
        time.sleep(0.1)


def _check(running: list[Running]) -> None:
    for one in running:
        one.check()


def _cpu(running: list[Running]) -> float:
    return sum(one.usage().cpu_seconds for one in running)


# The core alone


def processes() -> list[Json]:
    """Print how fast the core is in some processes at the same time."""
    found = []
    for count in _PROCESSES:
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()  # It is ready.
        machine = Machine()
        said = [_begin(worker) for worker in workers]
        rate = sum(float(worker.communicate()[0]) for worker in said)
        busy = machine.busy()
        print(f"core in {count} processes: {rate:,.0f} events/s; machine {busy:.0%} busy")
        found.append({"processes": count, "events_per_second": rate, "machine_busy": busy})
    return found


def _begin(worker: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    return worker


def _work() -> None:
    """Be one of the processes: say when ready, wait for a line, and say the rate."""
    log = messages(list(core_chunks(_CORE_STREAMS, _CORE_LENGTH)))
    core, rounds = pipeline(), max(1, round(20 * setting("SCALE", 1)))
    read(core.partition("events", 0, 0), log)
    print(flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    for _ in range(rounds):
        read(core.partition("events", 0, 0), log)
    print(rounds * len(log) / (time.perf_counter() - began))


# What an event costs


def cost_curves() -> list[Curve]:
    """Print what an event costs, in microseconds of CPU, against what may grow."""
    most = setting("SCALE", 1)
    sizes = [count for count in _OPEN if count <= max(_OPEN) * most]
    lengths = [length for length in _LENGTHS if length <= max(_LENGTHS) * most]
    counts = [count for count in _PARTITION_COUNTS if count <= max(_PARTITION_COUNTS) * most]
    open_ = [(size, further_us(size, min(most_open(), size))) for size in sizes]
    by_length = [(length, length_us(length)) for length in lengths]
    by_partitions = [(count, further_us(count * _OPEN_EACH, _OPEN_EACH)) for count in counts]
    curves = [
        _cost("cost against open requests", "open requests", open_),
        _cost("cost against the length of streams", "chunks of a stream", by_length),
        _cost(f"cost against partitions, {_OPEN_EACH} open each", "partitions", by_partitions),
    ]
    for curve in curves:
        said = ", ".join(f"{x:,.0f}: {y:.2f}" for x, y in curve.points)
        print(f"{curve.title}, us per event: {said}", flush=True)
    return curves


def _cost(title: str, x: str, points: Sequence[Point]) -> Curve:
    return Curve(title, x, "us per event", points)


def further_us(count: int, most: int) -> float:
    """Return what a further chunk costs while so many requests are open."""
    partitions, names = open_many(count, most)
    rounds = max(1, _FEWEST_MESSAGES // count)
    best = float("inf")
    for _ in range(_ROUNDS):
        spent = 0.0
        for partition, ids in zip(partitions, names, strict=True):
            done = partition.position // len(ids)
            values = (
                MIDDLE.value(name, done + at, BEGIN_MS) for at in range(rounds) for name in ids
            )
            log = list(later_messages(values, partition.position))
            began = time.process_time()
            read(partition, log)
            spent += time.process_time() - began
        best = min(best, spent / (rounds * count) * 1e6)
    return best


def length_us(length: int) -> float:
    """Return what an event of a stream of so many chunks costs."""
    streams = max(_LENGTHS) // length
    together = min(streams, _CORE_STREAMS)  # More than a partition keeps open would be closed.
    log = messages(list(core_chunks(together, length, streams // together)))
    core, best = pipeline(), float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        read(core.partition("events", 0, 0), log)
        best = min(best, time.process_time() - began)
    return best / len(log) * 1e6


if __name__ == "__main__":
    _work() if sys.argv[1:] == [_WORKER] else main()
