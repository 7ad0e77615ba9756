"""How long a record takes, and what a shorter way costs: `python -m tests.bench.latency`.

First: from the time at which the last event of a request is written, as its producer stamps it, to
the time at which a `read_committed` subscriber has the record, at steady rates, by
`commit_interval`. It holds the producer's linger of 5 ms and the subscriber's fetch. Then: what an
interval costs in throughput, where the topic is full, and in bytes per second into the offsets
topic, at about 4,000 events per second over eight partitions with 500 open requests each.

`BENCH_RATES=1000,10000`, `BENCH_INTERVALS=100ms,1s`, `BENCH_SECONDS=20` and `BENCH_SCALE=0.1` (of
what is read for the throughput) choose; `BENCH_OUT=latency.json` keeps the figures.
"""

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Final

from tests.bench.generator import Generator, Written
from tests.bench.recovery import offsets_topic_rate
from tests.bench.runs import (
    CLOCK,
    Filled,
    Json,
    Machine,
    RecordReader,
    Spread,
    chosen,
    create_outputs,
    described,
    input_topic,
    run_service,
    save,
    service,
    setting,
)
from tests.bench.traffic import CASES, write
from tests.kafka.server.cluster import KafkaCluster

_PARTITIONS: Final = 4
_WARM_S: Final = 3.0
_LAST_S: Final = 30.0  # For what is still on its way when the generator ends.
_PART: Final = 4  # Of the run: the first and the last are compared.
_FEWEST: Final = 8


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the last event of a request to its record.

    Attributes:
        records: how many records were looked at.
        missing: how many have not come.
        grew: whether they came later and later, so that the rate is above saturation.
        busy: share of all cores that was busy, with broker, generator and subscriber.

    """

    p50: float
    p99: float
    most: float
    records: int
    missing: int
    grew: bool
    busy: float

    @property
    def verdict(self) -> str:
        if self.missing:
            return f"SATURATED: {self.missing:,} records have not come"
        return "SATURATED: grew" if self.grew else ""


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
        f"{rate:>9,} {interval:>9} {found.p50:>8,.0f} {found.p99:>8,.0f} {found.most:>8,.0f}"
        f"  {found.records:,}; machine {found.busy:.0%} busy"
        f"{''.join(f'; {verdict}' for verdict in (found.verdict, written.verdict) if verdict)}",
        flush=True,
    )
    return {"rate": rate, "interval": interval, **asdict(found), "generator": asdict(written)}


def latency(
    kafka: KafkaCluster, rate: float, interval: str, seconds: float
) -> tuple[Latency, Written]:
    """Measure at a rate, after a while that does not count."""
    came: list[tuple[int, int]] = []  # When the events were written, and how long they took.
    reader = RecordReader(kafka)
    with (
        input_topic(kafka, _PARTITIONS) as topic,
        service(kafka, topic, commit_interval=interval) as running,
    ):
        running.begun()
        machine, from_ms = Machine(), CLOCK.wall() + round(_WARM_S * 1000)
        generator = Generator(kafka.bootstrap_servers, topic, rate, _WARM_S + seconds)
        try:
            while generator.is_running():
                _collect(reader, came)
                running.check()
            written, busy = generator.written(), machine.busy()
        finally:
            generator.stop()
        deadline = time.monotonic() + _LAST_S
        while len(came) < written.ended and time.monotonic() < deadline:
            _collect(reader, came)
    reader.close()
    counted = [took for stamp, took in came if stamp >= from_ms]
    return _judged(counted, written.ended - len(came), busy), written


def _collect(reader: RecordReader, came: list[tuple[int, int]]) -> None:
    stamps = reader.read()
    now = CLOCK.wall()
    came += [(stamp, now - stamp) for stamp in stamps]


def _judged(took: list[int], missing: int, busy: float) -> Latency:
    if len(took) < _FEWEST:
        raise RuntimeError(f"only {len(took)} records have come in time: measure for longer")
    percentiles = statistics.quantiles(took, n=100, method="inclusive")
    part = len(took) // _PART
    first, last = statistics.median(took[:part]), statistics.median(took[-part:])
    grew = last > 2 * first + 200
    return Latency(percentiles[49], percentiles[98], max(took), len(took), missing, grew, busy)


def _print_trade(kafka: KafkaCluster, intervals: list[str]) -> list[Json]:
    case, rows = CASES["chunks"], []
    count = case.count(setting("SCALE", 1))
    repetitions = int(setting("REPETITIONS", 3))
    with input_topic(kafka, _PARTITIONS) as name:
        written = write(kafka.bootstrap_servers, name, case.make(count))
        topic = Filled(kafka, name, _PARTITIONS, written, case.records(count))
        runs: dict[str, list[float]] = {interval: [] for interval in intervals}
        for _ in range(repetitions):
            for interval in intervals:
                seconds = run_service(topic, commit_interval=interval).seconds
                runs[interval].append(written.events / seconds)
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
