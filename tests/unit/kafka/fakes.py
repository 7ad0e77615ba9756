"""Stand-ins for Kafka clients, for what a real broker cannot be made to do when a test wants it."""

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.core.output_messages import OutputMessage
from consumer.telemetry.log_events import LogEvent
from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.kafka_in_memory.consumer import read_committed
from tests.support.kafka_in_memory.producer import MemoryProducer
from tests.support.manual_clock import ManualClock

Json = dict[str, Any]
Rejects = Callable[[Json, list[Json]], int | None]


TIMED_OUT = KafkaError._TIMED_OUT
WAIT_COORD = KafkaError._WAIT_COORD
FENCED = KafkaError._FENCED
STATE = KafkaError._STATE


def failure(
    code: int, *, fatal: bool = False, retriable: bool = False, abortable: bool = False
) -> KafkaException:
    return KafkaException(KafkaError(code, "as the test says", fatal, retriable, abortable))


def group_metadata(generation: int) -> bytes:
    """Return what the client says of its membership; a generation of -1 is that of no member."""
    number = generation.to_bytes(4, "little", signed=True)
    return b"CGMDv2:" + number + b"group\0member\0\x01"


def output(request_id: str = "r", *, timestamp: int = 5, to: Any = "record") -> OutputMessage:
    key, source = request_id.encode(), ("input", 3, 7)
    value = b'{"request_id":"%b"}' % key
    return OutputMessage(to, key, value, [], timestamp, source, request_id, "request", "published")


def at(offset: int, partition: int = 0, metadata: str = "", topic: str = "input") -> TopicPartition:
    return TopicPartition(topic, partition, offset, metadata)


class Log:
    """A logger that remembers, and lets events say only what they declare."""

    def __init__(self) -> None:
        self.lines: list[Json] = []

    def of(self, event: LogEvent) -> list[Json]:
        return [line for line in self.lines if line["event"] == event]

    def debug(self, event: LogEvent, /, **fields: object) -> None:
        self._say("debug", event, fields)

    def info(self, event: LogEvent, /, **fields: object) -> None:
        self._say("info", event, fields)

    def warning(self, event: LogEvent, /, **fields: object) -> None:
        self._say("warning", event, fields)

    def error(self, event: LogEvent, /, **fields: object) -> None:
        self._say("error", event, fields)

    def exception(self, event: LogEvent, /, **fields: object) -> None:
        self._say("error", event, fields)

    def bind(self, **_fields: object) -> "Log":
        return self

    def _say(self, level: str, event: LogEvent, fields: Json) -> None:
        undeclared = fields.keys() - set(event.fields)
        assert not undeclared, f"{event} does not declare {undeclared}"
        self.lines.append({"level": level, "event": event, **fields})


class FakeProducer(MemoryProducer):
    """A producer of the broker in memory that notes its calls, and fails as the test says.

    It is transactional once `init_transactions` is called. As in real brokers, a flush is one
    batch: messages wait for `poll`, and the broker may reject one because of another.

    Args:
        rejects: returns with which error the broker rejects a message of a batch, if it does.
        room: messages that fit the queue.

    Attributes:
        calls: names of the calls, with the keys of messages.
        commits: positions of each commit.
        groups: the group metadata of each call that sends offsets.
        chunks: positions of each such call.
        stored: by partition, the position committed last.
        failures: by name of a method, what its next calls raise; the call has no effect.
        polls: number of polls.
        refused_at_once: by key, with which error the client itself rejects a message.

    """

    def __init__(
        self,
        rejects: Rejects = lambda _message, _batch: None,
        *,
        room: int = 1_000,
    ) -> None:
        self.broker = MemoryBroker(ManualClock())
        config = {
            "transaction.timeout.ms": 1_000_000_000,
            "queue.buffering.max.messages": room,
            "delivery.report.only.error": True,
        }
        super().__init__(self.broker, config)
        self.calls: list[str] = []
        self.commits: list[list[TopicPartition]] = []
        self.groups: list[bytes] = []
        self.chunks: list[list[TopicPartition]] = []
        self.stored: dict[int, TopicPartition] = {}
        self.failures: dict[str, list[KafkaException]] = {}
        self.polls = 0
        self.refused_at_once: dict[bytes, int] = {}
        self.rejects = rejects
        self._free = threading.Event()
        self._free.set()
        self._producing = False
        self._batch: list[Json] = []
        self._positions: list[TopicPartition] = []

    @property
    def stuck(self) -> bool:
        """Whether no broker answers."""
        return self.broker.away

    @stuck.setter
    def stuck(self, stuck: bool) -> None:
        self.broker.away = stuck
        (self._free.clear if stuck else self._free.set)()

    @property
    def delivered(self) -> list[Json]:
        """The messages that a reader of committed ones sees."""
        topics = {topic: None for topic, _ in self.broker.partitions}
        found = [one for topic in topics for one in read_committed(self.broker, topic)]
        return [
            {
                "topic": one.topic(),
                "key": one.key(),
                "value": one.value(),
                "headers": one.headers() or [],
                "timestamp": one.timestamp()[1],
            }
            for one in found
        ]

    def produce(self, topic: str, *, key: Any = None, **message: Any) -> None:  # type: ignore[override]
        if (code := self.refused_at_once.get(key)) is not None:
            raise failure(code)
        if not self.broker.size_of(topic):
            self.broker.create_topic(topic)
        self._producing = True
        try:
            super().produce(topic, key=key, **message)
        finally:
            self._producing = False
        self.calls.append(f"produce {key.decode()}")

    def poll(self, timeout: float = -1) -> int:
        self.polls += 1
        self._free.wait(timeout)
        return super().poll(timeout)

    def init_transactions(self, timeout: float = -1) -> None:
        self._id = "mine"
        super().init_transactions(timeout)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: bytes, timeout: float = -1
    ) -> None:
        super().send_offsets_to_transaction([], group_metadata, timeout)
        self._need_broker("Failed to add offsets to transaction")
        self.chunks.append(positions)
        self.groups.append(group_metadata)
        self._positions += positions

    def commit_transaction(self, timeout: float = -1) -> None:
        super().commit_transaction(timeout)
        positions, self._positions = self._positions, []
        if positions:
            self.commits.append(positions)
            self.stored.update({one.partition: one for one in positions})

    def abort_transaction(self, timeout: float = -1) -> None:
        super().abort_transaction(timeout)
        self._positions = []

    def _call(self, operation: str) -> None:
        name = operation.removeprefix("producer.")
        if name.split("_")[-1] in ("transaction", "transactions"):
            self.calls.append(name)
        if errors := self.failures.get(name):
            self.broker.fail_next[operation] = [errors.pop(0)]
        super()._call(operation)

    def _send(self) -> None:
        if not self._producing:
            self._batch = [_json(queued) for queued in self._queue]
            super()._send()

    def _write(self, queued: Any) -> None:
        code = self.rejects(_json(queued), self._batch)
        if code is None:
            super()._write(queued)
        else:
            if self._id is not None:  # The rejected request begins the transaction too.
                self.broker._transaction(self._id, self._epoch or 0)
            self._report(queued, KafkaError(self._refused((queued.topic, 0), code)))

    def _need_broker(self, what: str) -> None:
        self._free.wait(0.01)
        super()._need_broker(what)


def _json(queued: Any) -> Json:
    return {"key": queued.content[0], "timestamp": queued.timestamp}
