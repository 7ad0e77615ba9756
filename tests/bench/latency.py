"""The time from an event to its record: `python -m tests.bench.latency`.

First, at steady rates and for each `commit_interval`: the time from the producer's timestamp on the
last event of a request until a `read_committed` subscriber has the record. It includes the
producer's linger of 5 ms and the subscriber's fetch. Then the cost of each interval: throughput on
a full topic, and bytes per second into the offsets topic, at about 4,000 events per second over
eight partitions with 500 open requests each.

Settings: `BENCH_RATES=1000,10000`, `BENCH_INTERVALS=100ms,1s`, `BENCH_SECONDS=20`,
`BENCH_SCALE=0.1` (for the throughput), `BENCH_OUT=latency.json` (a file for the figures).
"""

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Final

from tests.bench.generator import Generated, generator
from tests.bench.recovery import offsets_topic_rate
from tests.bench.runs import (
    CLOCK,
    Json,
    Machine,
    RecordReader,
    Spread,
    chosen,
    create_outputs,
    described,
    filled_topic,
    input_topic,
    run_service,
    save,
    service,
    setting,
)
from tests.bench.traffic import CASES
from tests.kafka.server.cluster import KafkaCluster

_PARTITIONS: Final = 4
_WARM_S: Final = 3.0
_LAST_S: Final = 30.0  # For records that arrive after the end of the generator.
_QUARTERS: Final = 4  # The first and the last quarter are compared.
_MIN_RECORDS: Final = 8


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the last event of a request to its record.

    Attributes:
        records: number of records measured.
        missing: number of records that did not arrive.
        grew: whether the times grew, because the rate is above saturation.
        busy: busy share of all cores, with broker, generator and subscriber.

    """

    p50: float
    p99: float
    max: float
    records: int
    missing: int
    grew: bool
    busy: float

    @property
    def verdict(self) -> str:
        if self.missing:
            return f"SATURATED: {self.missing:,} records did not arrive"
        return "SATURATED: the times grew" if self.grew else ""


def main() -> None:
    rates = [int(rate) for rate in chosen("RATES", ("1000", "10000", "50000"))]
    intervals = chosen("INTERVALS", ("100ms", "1s"))
    seconds = setting("SECONDS", 20)
    result: Json = {"latency": [], "trade": []}
    print(described())
    with KafkaCluster() as kafka:
        create_outputs(kafka)
        print(
            f"\n{'events/s':>9} {'interval':>9} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}  records"
        )
        for rate in rates:
            for interval in intervals:
                result["latency"].append(_print_latency(kafka, rate, interval, seconds))
        print(f"\n{'interval':>9} {'events/s, full topic':>28} {'offsets topic':>14}")
        result["trade"] = _print_trade(kafka, intervals)
    save(result)


def _print_latency(kafka: KafkaCluster, rate: int, interval: str, seconds: float) -> Json:
    found, written = latency(kafka, rate, interval, seconds)
    print(
        f"{rate:>9,} {interval:>9} {found.p50:>8,.0f} {found.p99:>8,.0f} {found.max:>8,.0f}"
        f"  {found.records:,}; machine {found.busy:.0%} busy"
        f"{''.join(f'; {verdict}' for verdict in (found.verdict, written.verdict) if verdict)}",
        flush=True,
    )
    return {"rate": rate, "interval": interval, **asdict(found), "generator": asdict(written)}


def latency(
    kafka: KafkaCluster, rate: float, interval: str, seconds: float
) -> tuple[Latency, Generated]:
    """Measure at a rate, after a warm-up."""
    arrived: list[tuple[int, int]] = []  # Timestamps and latencies.
    reader = RecordReader(kafka)
    with (
        input_topic(kafka, _PARTITIONS) as topic,
        service(kafka, topic, commit_interval=interval) as running,
    ):
        running.begun()
        machine, from_ms = Machine(), CLOCK.wall() + round(_WARM_S * 1000)
        with generator(kafka.bootstrap_servers, topic, rate, _WARM_S + seconds) as generating:
            while not generating.done():
                _collect(reader, arrived)
                running.check()
            written, busy = generating.result(), machine.busy()
        deadline = time.monotonic() + _LAST_S
        while len(arrived) < written.ended and time.monotonic() < deadline:
            _collect(reader, arrived)
    reader.close()
    counted = [delay for stamp, delay in arrived if stamp >= from_ms]
    return _summary(counted, written.ended - len(arrived), busy), written


def _collect(reader: RecordReader, arrived: list[tuple[int, int]]) -> None:
    stamps = reader.read()
    now = CLOCK.wall()
    arrived += [(stamp, now - stamp) for stamp in stamps]


def _summary(latencies: list[int], missing: int, busy: float) -> Latency:
    if len(latencies) < _MIN_RECORDS:
        raise RuntimeError(f"only {len(latencies)} records arrived: set a larger BENCH_SECONDS")
    percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
    part = len(latencies) // _QUARTERS
    first, last = statistics.median(latencies[:part]), statistics.median(latencies[-part:])
    grew = last > 2 * first + 200
    return Latency(
        percentiles[49], percentiles[98], max(latencies), len(latencies), missing, grew, busy
    )


def _print_trade(kafka: KafkaCluster, intervals: list[str]) -> list[Json]:
    rows: list[Json] = []
    with filled_topic(kafka, _PARTITIONS, CASES["chunks"], setting("SCALE", 1)) as topic:
        runs: dict[str, list[float]] = {interval: [] for interval in intervals}
        for _ in range(int(setting("REPETITIONS", 3))):
            for interval in intervals:
                seconds = run_service(topic, commit_interval=interval).seconds
                runs[interval].append(topic.written.events / seconds)
    for interval in intervals:
        rates, offsets = Spread.of(runs[interval]), offsets_topic_rate(kafka, interval)
        print(f"{interval:>9} {rates.text():>28} {offsets:>10,.0f} B/s", flush=True)
        rows.append(
            {
                "interval": interval,
                "events_per_second": rates.json(),
                "offsets_topic_bytes_per_second": offsets,
            }
        )
    return rows


if __name__ == "__main__":
    main()
