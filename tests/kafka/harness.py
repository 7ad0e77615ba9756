"""What the tests on a real Kafka share: topics, the service as a process, and readers.

Tests wait for a log line, a record or a commit, with a limit, and never for a time to pass.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from jsonschema import Draft202012Validator

from consumer.demo.fleet import REQUESTS_PER_ROUND, Fleet, FleetMessage
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.log_events import LogEvent
from schemas import published
from tests.kafka.server.cluster import KafkaCluster
from tests.paths import ROOT
from tests.unit.core import made

T = TypeVar("T")
Json = dict[str, Any]
Headers = list[tuple[str, str | bytes | None]]

SECONDS: Final = 40.0
"""The limit of every wait."""

SHORT_SESSION: Final = {"kafka_session_timeout_ms": "1500"}
"""Settings of a service that is killed: the group gives its partitions to the next one soon."""

SLOW_REREAD: Final = """
import time
import consumer.core.partition

class Slow(consumer.core.partition.Partition):
    def feed_all(self, messages, is_over):
        if not self.live:
            time.sleep({seconds})
        return super().feed_all(messages, is_over)

consumer.core.partition.Partition = Slow
"""
"""Code for `Bench.meddle`: reading again takes so long for each block of 64 messages."""

_STEP_S: Final = 0.05
_VALIDATORS: Final = {
    name: Draft202012Validator(
        published.schema(name), format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    for name in ("acceptance-record", "dead-letter")
}


def eventually(look: Callable[[], T | None], what: str, seconds: float = SECONDS) -> T:
    """Return what there is to see as soon as there is something."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(_STEP_S)
    return seen


@dataclass(frozen=True)
class Received:
    """A message as a subscriber sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes | None]
    timestamp: int
    json: Json

    @classmethod
    def of(cls, message: Message, schema: str) -> "Received":
        """Take a message apart, and hold it against the published schema."""
        value = message.value() or b""
        content = json.loads(value)
        _VALIDATORS[schema].validate(content)
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        assert len(dict(headers)) == len(headers)
        return cls(
            message.partition() or 0,
            message.offset() or 0,
            message.key(),
            value,
            dict(headers),
            message.timestamp()[1],
            content,
        )

    def place(self) -> tuple[int, int, int]:
        """Return where in the input it comes from."""
        place = self.json
        return (
            int(place["source_partition"]),
            int(place["source_first_offset"]),
            int(place["source_index"] or 0),
        )


class Reader:
    """An independent consumer that reads a topic from its beginning, without a group's help."""

    def __init__(
        self, bootstrap: str, topic: str, schema: str, isolation: str = "read_committed"
    ) -> None:
        self.received: list[Received] = []
        self._topic = topic
        self._schema = schema
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-{uuid4()}",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,  # Transaction markers are not messages.
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        self._ends = dict.fromkeys(partitions, 0)
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        )

    def until(self, reached: Callable[[list[Received]], object], what: str) -> list[Received]:
        """Read until the condition holds of everything read so far."""
        deadline = time.monotonic() + SECONDS
        while not reached(self.received):
            self._read()
            seen = [one.json.get("request_id") for one in self.received]
            assert time.monotonic() < deadline, f"{what}: not within {SECONDS} s; seen {seen}"
        return self.received

    def to_the_end(self) -> list[Received]:
        """Read everything that is written by now, and wait for transactions that are not decided.

        A commit returns, and a process ends, before brokers have marked it in every partition.
        """
        end = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        # Without regard to transactions, by default.
        answers = self._admin.list_offsets(
            {TopicPartition(self._topic, number): end for number in self._ends}
        )
        return self._up_to({one.partition: f.result(SECONDS).offset for one, f in answers.items()})

    def visible(self) -> list[Received]:
        """Read what may be read by now, which is nothing of a transaction that is not decided."""
        return self._up_to(
            {
                number: self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, number), timeout=SECONDS
                )[1]
                for number in self._ends
            }
        )

    def _up_to(self, ends: dict[int, int]) -> list[Received]:
        return self.until(lambda _: all(self._ends[n] >= end for n, end in ends.items()), "the end")

    def close(self) -> None:
        self._consumer.close()

    def _read(self) -> None:
        for message in self._consumer.consume(500, timeout=_STEP_S):
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ends[message.partition() or 0] = message.offset() or 0
                continue
            self._ends[message.partition() or 0] = (message.offset() or 0) + 1
            self.received.append(Received.of(message, self._schema))


class ServiceProcess:
    """The real service as a child process."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], log: Path, slot: int = 0
    ) -> None:
        self.log = log
        self.slot = slot
        self._file = log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "consumer", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )

    def lines(self, event: str | None = None, **fields: object) -> list[Json]:
        """Return the log lines so far, perhaps of one event and with certain fields only."""
        text = self.log.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        return [
            line
            for line in map(json.loads, whole.splitlines())
            if (event is None or line["event"] == event)
            and all(line.get(name) == value for name, value in fields.items())
        ]

    def wait_for(self, event: str, **fields: object) -> Json:
        """Wait for a log line."""

        def look() -> list[Json]:
            ended = self.process.poll() is not None  # First: its last line may be the one.
            found = self.lines(event, **fields)
            assert found or not ended, f"ended with\n{self.log.read_text()}"
            return found

        return eventually(look, f"{event} {fields}")[0]

    def moves(self) -> list[Json]:
        """Return the lines about partitions that were assigned, revoked or lost."""
        moves = [line for line in self.lines() if line["event"].startswith("partitions_")]
        return [line for line in moves if line["partitions"]]

    def held(self) -> set[str]:
        """Return the partitions that it holds by its own log."""
        held: set[str] = set()
        for line in self.moves():
            update = (
                held.update if line["event"] == "partitions_assigned" else held.difference_update
            )
            update(line["partitions"])
        return held

    def totals(self) -> dict[str, int]:
        """Return the totals of its last line."""
        return cast("dict[str, int]", self.lines("service_stopped")[0]["totals"])

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait(seconds)

    def stop(self) -> int:
        """End it as Kubernetes would, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def dispose(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self._file.close()


@dataclass
class Bench:
    """One test's topics and group, and what it has started on them."""

    kafka: KafkaCluster
    directory: Path
    partitions: int = 3
    name: str = field(default_factory=lambda: uuid4().hex[:12])
    services: list[ServiceProcess] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.input = f"input-{self.name}"
        self.output = f"records-{self.name}"
        self.dead = f"dead-{self.name}"
        self.group = f"group-{self.name}"
        self._sentinels = 0
        self._reader: Reader | None = None
        self._asking: Consumer | None = None
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap_servers

    def create(
        self, *, inputs: dict[str, str] | None = None, outputs: dict[str, str] | None = None
    ) -> "Bench":
        """Create the topics; `outputs` is the configuration of both output topics."""
        self.kafka.create_topic(self.input, self.partitions, config=inputs)
        self.kafka.create_topic(self.output, min(self.partitions, 3), config=outputs)
        self.kafka.create_topic(self.dead, min(self.partitions, 3), config=outputs)
        return self

    def environment(self, **settings: str) -> dict[str, str]:
        """Return the environment of a service with short intervals, and other settings on top."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ACCEPTANCE_", "KAFKA_"))
        }
        defaults = {
            "topics": self.input,
            "output_topic": self.output,
            "dead_letter_topic": self.dead,
            "group": self.group,
            "fleet": "test",
            "commit_interval": "100ms",
            "http_address": "off",
            "kafka_session_timeout_ms": "6000",
            "kafka_heartbeat_interval_ms": "300",
        }
        return inherited | {
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap,
            **{
                f"ACCEPTANCE_{name.upper()}": value for name, value in (defaults | settings).items()
            },
        }

    def start(self, *options: str, **settings: str) -> ServiceProcess:
        """Start the service, instead of one that has ended, without waiting."""
        log = self.directory / f"{self.name}-{len(self.services)}.log"
        living = {service.slot for service in self.services if service.process.poll() is None}
        slot = min(set(range(len(living) + 1)) - living)
        settings = {"transactional_id": f"{self.group}-{slot}"} | settings
        environment = self.environment(**settings) | self.variables
        service = ServiceProcess(["run", *options], environment, log, slot)
        self.services.append(service)
        return service

    def meddle(self, code: str) -> None:
        """Run code in every service process from now on, before the service; "" ends that."""
        self.variables.pop("PYTHONPATH", None)
        if code:
            directory = self.directory / f"meddling-{uuid4()}"
            directory.mkdir()
            (directory / "sitecustomize.py").write_text(code, encoding="utf-8")
            self.variables["PYTHONPATH"] = str(directory)

    def send(
        self,
        value: bytes | None,
        key: bytes | str | None = None,
        *,
        partition: int = -1,
        headers: Headers | None = None,
        timestamp: int = 0,
        topic: str | None = None,
    ) -> None:
        """Send a message to the input topic; `flush` makes sure that it is there."""
        self.producer.produce(
            topic or self.input,
            value,
            key,
            partition,
            headers=headers or [],
            timestamp=timestamp,
            on_delivery=_delivered,
        )
        self.producer.poll(0)

    def send_whole(self, *request_ids: str, **options: Any) -> None:
        """Send a whole response of each request, and wait until the broker has them."""
        for request_id in request_ids:
            self.send(whole(request_id), request_id, **options)
        self.flush()

    def send_events(self, request_id: str, values: Iterable[bytes], **options: Any) -> None:
        """Send events of one request, and wait until the broker has them."""
        for value in values:
            self.send(value, request_id, **options)
        self.flush()

    def send_traffic(self, seed: int, rounds: int) -> list[FleetMessage]:
        """Send the messages of a made-up fleet for so many rounds of its requests."""
        start, rate = SystemClock().wall(), 200
        fleet, messages = Fleet(seed=seed, rate=rate, start=start), []
        for message in fleet:
            if message.timestamp > start + 1000 * rounds * REQUESTS_PER_ROUND / rate:
                fleet.close()
            messages.append(message)
            headers: Headers = list(message.headers)
            self.send(message.value, message.key, headers=headers, timestamp=message.timestamp)
        self.flush()
        return messages

    def flush(self) -> None:
        assert self.producer.flush(SECONDS) == 0

    def transactional_producer(self, name: str = "other") -> Producer:
        """Return a producer of another application that is ready for transactions."""
        config = {"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.name}-{name}"}
        producer = Producer(config)
        producer.init_transactions(SECONDS)
        return producer

    def run_command(self, *args: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the settings of the service, and return what it printed."""
        return subprocess.run(
            [sys.executable, "-m", "consumer", *args],
            env=self.environment(**settings) | self.variables,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def send_sentinels(self) -> set[str]:
        """Send a response to every partition, whose record says that all before it was read."""
        self._sentinels += 1
        ids = set()
        for number in range(self.partitions):
            request_id = f"sentinel-{self._sentinels}-{number}"
            self.send(whole(request_id), request_id, partition=number)
            ids.add(request_id)
        self.flush()
        return ids

    def read_up(self) -> list[Received]:
        """Wait until the service has read everything, and return the records by then."""
        ids = self.send_sentinels()
        self.records(lambda got: ids <= {one.json["request_id"] for one in got})
        return self.records()  # Those of other partitions may become visible later.

    def records(
        self, reached: Callable[[list[Received]], object] | None = None, what: str = "records"
    ) -> list[Received]:
        """Return the records in the order of the input, up to the end or to a condition."""
        if self._reader is None:
            self._reader = self.reader(self.output, "acceptance-record")
        reader = self._reader
        try:
            got = reader.to_the_end() if reached is None else reader.until(reached, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._last_words()}") from None
        return sorted(got, key=Received.place)

    def record_of(self, request_id: str) -> Received:
        """Wait for the record of a request."""
        return next(
            one
            for one in self.records(
                lambda got: any(one.json["request_id"] == request_id for one in got),
                f"record of {request_id}",
            )
            if one.json["request_id"] == request_id
        )

    def letters(self) -> list[Received]:
        """Return all dead letters in the order of the input."""
        return sorted(self.reader(self.dead, "dead-letter").to_the_end(), key=Received.place)

    def reader(self, topic: str, schema: str, isolation: str = "read_committed") -> Reader:
        reader = Reader(self.bootstrap, topic, schema, isolation)
        self.readers.append(reader)
        return reader

    def committed(self) -> dict[int, TopicPartition]:
        """Return what the group has committed."""
        if self._asking is None:
            # The admin client crashes while the group has no coordinator (librdkafka 2.16.1).
            self._asking = Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": self.group,
                    "isolation.level": "read_uncommitted",  # Does not wait for transactions.
                    "log_level": 0,
                }
            )
        partitions = [TopicPartition(self.input, number) for number in range(self.partitions)]
        consumer = self._asking

        def ask() -> list[TopicPartition] | None:
            with suppress(KafkaException):
                return consumer.committed(partitions, timeout=SECONDS)
            return None

        return {one.partition: one for one in eventually(ask, "an answer of the coordinator")}

    def ends(self) -> dict[int, int]:
        """Return where the partitions of the input end."""
        with_consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        try:
            return {
                number: with_consumer.get_watermark_offsets(
                    TopicPartition(self.input, number), timeout=SECONDS
                )[1]
                for number in range(self.partitions)
            }
        finally:
            with_consumer.close()

    def wait_until_committed(self) -> None:
        """Wait until the group's lag is zero on every partition."""
        ends = self.ends()
        eventually(
            lambda: {n: one.offset for n, one in self.committed().items()} == ends,
            f"committed offsets {ends}",
        )

    def commit(self, partition: int, offset: int, metadata: str) -> None:
        """Commit for the group, which must have no members."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        try:
            position = TopicPartition(self.input, partition, offset, metadata)
            [done] = consumer.commit(offsets=[position], asynchronous=False) or []
            assert done.error is None
        finally:
            consumer.close()

    def delete_below(self, partition: int, offset: int) -> None:
        """Delete messages of the input, as retention would."""
        place = TopicPartition(self.input, partition, offset)
        self.admin.delete_records([place])[place].result(SECONDS)

    def everything_logged(self) -> str:
        """Return all that the services have written."""
        return "".join(service.log.read_text(encoding="utf-8") for service in self.services)

    def _last_words(self) -> str:
        """Stop the services, and return their logs: the last lines hold totals."""
        for service in self.services:
            if service.process.poll() is None:
                service.process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    service.wait(5)
        return self.everything_logged()

    def dispose(self) -> None:
        """Leave nothing behind but the topics."""
        for service in self.services:
            service.dispose()
        for reader in self.readers:
            reader.close()
        if self._asking is not None:
            self._asking.close()


def _delivered(error: object, _message: Message) -> None:
    assert error is None, error


# What is sent


def whole(request_id: str, steps: int = 10) -> bytes:
    """Return a native event with a whole response of so many verify steps."""
    metrics = made.vllm_stats(steps // 2 * 3, steps)
    return made.native(request_id, body=made.whole(f"chatcmpl-{request_id}") | {"metrics": metrics})


def stream(request_id: str, chunks: int = 4) -> list[bytes]:
    """Return the native events of a streamed response, the statistics in the last but one."""
    body_id = f"chatcmpl-{request_id}"
    bodies = [*[made.chunk(body_id)] * chunks, made.last_chunk(body_id), "[DONE]"]
    return [
        made.native(request_id, sequence=number, body=body) for number, body in enumerate(bodies)
    ]


def request_ids(received: Iterable[Received], *, sentinels: bool = False) -> list[str]:
    """Return the request ids of records in order, without those of sentinels."""
    ids = [str(one.json["request_id"]) for one in received]
    return [one for one in ids if sentinels or not one.startswith("sentinel-")]


def record_ids(received: Iterable[Received]) -> list[str]:
    """Return the record ids in order."""
    return [one.json["record_id"] for one in received]


def by_record_id(received: Iterable[Received]) -> dict[str, Json]:
    """Return records by their ids; the repeats of a record must equal it."""
    by_id: dict[str, Json] = {}
    for one in received:
        assert one.json == by_id.setdefault(one.json["record_id"], one.json), "repeats differ"
    return by_id


def numbered(count: int, prefix: str = "r") -> list[str]:
    """Return request ids."""
    return [f"{prefix}{number}" for number in range(count)]


def benches(kafka: KafkaCluster, directory: Path) -> Iterator[Callable[..., Bench]]:
    """Yield a maker of benches, and clear them away."""
    made: list[Bench] = []

    def make(partitions: int = 3, **configurations: dict[str, str]) -> Bench:
        bench = Bench(kafka, directory, partitions)
        made.append(bench)
        return bench.create(**configurations)

    yield make
    for bench in made:
        bench.dispose()
    declared = {event.value: {"timestamp", "level", "event", *event.fields} for event in LogEvent}
    services = (service for bench in made for service in bench.services)
    for service in services:
        if "--check" not in cast("list[str]", service.process.args):  # Its output is plain text.
            for line in service.lines():
                assert line.keys() <= declared[line["event"]], line
