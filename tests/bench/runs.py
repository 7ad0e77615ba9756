"""Shared by the benchmarks on a real Kafka: topics, traffic, the service, and measurements."""

import json
import os
import platform
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from consumer.telemetry.clock import SystemClock
from tests.bench.traffic import BEGIN_MS, Case
from tests.kafka.harness import ServiceProcess
from tests.kafka.server.cluster import KafkaCluster

RECORDS: Final = "bench-records"
LETTERS: Final = "bench-dead-letters"
PASSED_ON: Final = "bench-passed-on"  # Written by the loop that only copies.
OUTPUT_PARTITIONS: Final = 4
DEADLINE_S: Final = 600.0
CLOCK: Final = SystemClock()
_TICKS: Final = os.sysconf("SC_CLK_TCK")
STEP_S: Final = 0.02
_MAX_MESSAGE_BYTES: Final = 4 << 20
_BATCH: Final = 5000
_QUIET_S: Final = 0.3  # After the last expected record.

Json = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """The median of some repetitions, and how far they lie apart."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self, form: str = ",.0f") -> str:
        """Return the median with minimum and maximum: `10 (9-12)`."""
        low, high = min(self.values), max(self.values)
        return f"{self.median:{form}} ({low:{form}}-{high:{form}})"

    def json(self) -> Json:
        return {
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": self.values,
        }


@dataclass(frozen=True)
class Usage:
    """CPU and memory of a process so far, with the threads of its clients.

    Attributes:
        cpu_seconds: user and system, with those of children that have ended.
        peak_mib: maximum resident memory (VmHWM).
        rss_mib: resident memory now.

    """

    cpu_seconds: float
    peak_mib: float
    rss_mib: float


def usage(pid: int | str = "self") -> Usage:
    """Read the usage of a process; one that has ended has no memory."""
    process = Path("/proc", str(pid))
    # After the name, which may hold anything: utime, stime, cutime and cstime are 14 to 17.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    peak, rss = (int(status.get(name, "0 kB").split()[0]) / 1024 for name in ("VmHWM", "VmRSS"))
    return Usage(sum(map(int, fields[11:15])) / _TICKS, peak, rss)


class Machine:
    """How busy all cores are, with everything that runs on them."""

    def __init__(self) -> None:
        self._before = self._read()

    def busy(self) -> float:
        """Return the busy share since this was made."""
        idle, total = (now - then for now, then in zip(self._read(), self._before, strict=True))
        return 1 - idle / total if total else 0.0

    @staticmethod
    def _read() -> tuple[int, int]:
        fields = [
            int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        ]
        return fields[3] + fields[4], sum(fields)


def environment() -> Json:
    """Return the conditions that the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "load": os.getloadavg()[0],
    }


def described() -> str:
    """Return these conditions as a string, for the head of a table."""
    seen = environment()
    return (
        f"{seen['cores']} cores, load {seen['load']:.1f}, Python {seen['python']}, "
        f"librdkafka {seen['librdkafka']}"
    )


def setting(name: str, default: float) -> float:
    """Return a number from the environment: `BENCH_SCALE`."""
    return float(os.environ.get(f"BENCH_{name}", default))


def chosen(name: str, default: Sequence[str]) -> list[str]:
    """Return words from the environment, separated by commas: `BENCH_CASES`."""
    return os.environ.get(f"BENCH_{name}", ",".join(default)).split(",")


def save(result: Json) -> None:
    """Write the result to the file `BENCH_OUT`, if the variable is set."""
    if path := os.environ.get("BENCH_OUT"):
        text = json.dumps({"environment": environment(), **result}, indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")


def create_outputs(kafka: KafkaCluster) -> None:
    """Create the topics that the service writes to."""
    for topic in (RECORDS, LETTERS, PASSED_ON):
        kafka.create_topic(topic, OUTPUT_PARTITIONS)


@contextmanager
def input_topic(kafka: KafkaCluster, partitions: int) -> Iterator[str]:
    """Create a topic, and delete it in the end."""
    topic = f"events-{uuid.uuid4()}"
    kafka.create_topic(topic, partitions, config={"max.message.bytes": str(_MAX_MESSAGE_BYTES)})
    yield topic
    kafka.delete_topic(topic)


@dataclass(frozen=True)
class Written:
    """The events of a topic: their number and their bytes."""

    events: int
    size: int


def write(
    kafka: KafkaCluster,
    topic: str,
    pairs: Iterable[tuple[bytes, bytes]],
    *,
    per_second: float = 0.0,
    before_commit: Callable[[], object] | None = None,
) -> Written:
    """Write events to a topic.

    Args:
        kafka: the cluster.
        topic: the topic.
        pairs: keys and values.
        per_second: rate of their Kafka timestamps; with 0, these are the time of writing.
        before_commit: if given, all events become readable at once, in one transaction; this is
            called before its end.

    """
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "linger.ms": 20,
        "log_level": 3,
        "compression.type": "lz4",
        "message.max.bytes": _MAX_MESSAGE_BYTES,
    }
    if before_commit is not None:
        config |= {"transactional.id": f"bench-{uuid.uuid4()}", "transaction.timeout.ms": 900_000}
    producer = Producer(config)
    if before_commit is not None:
        producer.init_transactions()
        producer.begin_transaction()
    count = size = 0
    for key, value in pairs:
        stamp = BEGIN_MS + int(count / per_second * 1000) if per_second else 0
        while True:
            try:
                producer.produce(topic, value, key, timestamp=stamp)
                break
            except BufferError:
                producer.poll(0.1)
        if count % 1000 == 0:
            producer.poll(0)
        count, size = count + 1, size + len(value)
    producer.flush()
    if before_commit is not None:
        before_commit()
        producer.commit_transaction()
    return Written(count, size)


@dataclass(frozen=True)
class Running:
    """A running service.

    Attributes:
        process: the process.
        group: its consumer group.

    """

    process: ServiceProcess
    group: str

    def usage(self) -> Usage:
        return usage(self.process.process.pid)

    def check(self) -> None:
        """Raise an error if the service has ended."""
        if self.process.process.poll() is not None:
            raise RuntimeError(f"the service has ended:\n{self.process.log.read_text()}")

    def begun(self) -> int:
        """Wait for its first partitions, and return that time in milliseconds since 1970."""
        stamp = self.process.wait_for("partitions_assigned")["timestamp"]
        return round(datetime.fromisoformat(stamp).timestamp() * 1000)

    def assigned(self) -> int:
        """Return the number of its partitions."""
        lines = self.process.lines
        return sum(len(line["partitions"]) for line in lines("partitions_assigned")) - sum(
            len(line["partitions"]) for line in lines("partitions_revoked")
        )


@contextmanager
def service(
    kafka: KafkaCluster, topic: str, group: str | None = None, **settings: str
) -> Iterator[Running]:
    """Run the service with its default settings and the given ones."""
    group = group or f"bench-{uuid.uuid4()}"
    defaults = {
        "topics": topic,
        "output_topic": RECORDS,
        "dead_letter_topic": LETTERS,
        "group": group,
        "transactional_id": f"bench-{uuid.uuid4()}",
        "log_format": "json",
        "http_address": "off",
    }
    variables = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("ACCEPTANCE_", "KAFKA_"))},
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        **{f"ACCEPTANCE_{name.upper()}": value for name, value in (defaults | settings).items()},
    }
    with tempfile.TemporaryDirectory() as directory:
        process = ServiceProcess(["run"], variables, Path(directory, "log"))
        try:
            yield Running(process, group)
            code = process.stop()
            if code:
                raise RuntimeError(f"the service ended with {code}:\n{process.log.read_text()}")
        finally:
            process.dispose()


class RecordReader:
    """Reads the records that become readable from now on, under read_committed."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": f"bench-reader-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign(ends(self._consumer, RECORDS, OUTPUT_PARTITIONS))

    def read(self, seconds: float = STEP_S) -> list[int]:
        """Return the timestamps of the records that arrived."""
        first = self._consumer.poll(seconds)  # `consume` of many would wait for the last of them.
        messages = [] if first is None else [first, *self._consumer.consume(_BATCH, 0)]
        return [message.timestamp()[1] for message in messages if message.error() is None]

    def wait_for(self, wanted: int, check: Callable[[], object] = lambda: None) -> None:
        """Wait for so many records; `check` may raise an error."""
        deadline = time.monotonic() + DEADLINE_S
        while wanted > 0:
            wanted -= len(self.read())
            check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{wanted} records did not arrive")
        self._refuse(-wanted)

    def expect_no_more(self) -> None:
        """Raise an error if further records arrive."""
        self._refuse(len(self.read(_QUIET_S)))

    def close(self) -> None:
        self._consumer.close()

    @staticmethod
    def _refuse(count: int) -> None:
        if count:
            raise RuntimeError(f"{count} unexpected records")


def ends(consumer: Consumer, topic: str, partitions: int) -> list[TopicPartition]:
    """Return where the partitions of a topic end."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    return [
        TopicPartition(topic, one.partition, consumer.get_watermark_offsets(one, timeout=30)[1])
        for one in places
    ]


def wait_for_commits(kafka: KafkaCluster, group: str, topic: str, partitions: int) -> None:
    """Wait until a group has committed the ends of a topic."""
    asking = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    wanted = {one.partition: one.offset for one in ends(asking, topic, partitions)}
    places = [TopicPartition(topic, number) for number in wanted]
    deadline = time.monotonic() + DEADLINE_S
    while {one.partition: one.offset for one in asking.committed(places, timeout=30)} != wanted:
        if time.monotonic() > deadline:
            raise TimeoutError("the service did not reach the end of the topic")
        time.sleep(STEP_S)
    asking.close()


@dataclass(frozen=True)
class Filled:
    """A topic with events, and the number of records that they give."""

    kafka: KafkaCluster
    name: str
    partitions: int
    written: Written
    records: int


@contextmanager
def filled_topic(
    kafka: KafkaCluster, partitions: int, case: Case, scale: float
) -> Iterator[Filled]:
    """Create a topic with the events of a case."""
    events = case.count(scale)
    with input_topic(kafka, partitions) as name:
        written = write(kafka, name, case.make(events))
        yield Filled(kafka, name, partitions, written, case.records(events))


@dataclass(frozen=True)
class Run:
    """One pass over a topic."""

    seconds: float
    cpu_seconds: float
    peak_mib: float | None = None


def run_service(topic: Filled, **settings: str) -> Run:
    """Measure the service, from its assignment until all of its outputs are readable."""
    reader = RecordReader(topic.kafka)
    with service(topic.kafka, topic.name, **settings) as running:
        began, before = running.begun(), running.usage()
        if topic.records:
            reader.wait_for(topic.records, running.check)
        else:
            wait_for_commits(topic.kafka, running.group, topic.name, topic.partitions)
        seconds, after = (CLOCK.wall() - began) / 1000, running.usage()
    reader.expect_no_more()
    reader.close()
    return Run(seconds, after.cpu_seconds - before.cpu_seconds, after.peak_mib)
