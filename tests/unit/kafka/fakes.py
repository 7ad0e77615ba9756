"""Stand-ins for Kafka clients, for what a real broker cannot be made to do when a test wants it."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from msgspec import Struct

from consumer.core.checkpoint import topic_hash
from consumer.core.message import Headers
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


def output(request_id: str = "r", *, timestamp: int = 5, kind: Any = "record") -> OutputMessage:
    key, source = request_id.encode(), ("input", 3, 7)
    value = b'{"request_id":"%b"}' % key
    return OutputMessage(
        kind, key, value, [], timestamp, source, request_id, "request", "published"
    )


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


class FakeMessage:
    """A message, or an event of the client, as `poll` returns them."""

    def __init__(
        self,
        value: bytes | None = None,
        offset: int = 0,
        partition: int = 0,
        *,
        error: KafkaError | None = None,
        topic: str = "input",
        timestamp: int = 1_767_225_600_000,
        leader_epoch: int | None = None,
    ) -> None:
        self._value = value
        self._leader_epoch = leader_epoch
        self._place = topic, partition, offset
        self._error = error
        self._timestamp = timestamp

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp

    def leader_epoch(self) -> int | None:
        return self._leader_epoch


def end(offset: int, partition: int = 0) -> FakeMessage:
    """Return the event that says where a partition ends."""
    return FakeMessage(None, offset, partition, error=KafkaError(KafkaError._PARTITION_EOF))


class _Described(Struct, frozen=True):
    topic_id: str


class FakeTopics:
    """Tells the ids of topics.

    Attributes:
        ids: by name, where a topic has not got the usual id.
        asked: what was asked for.
        failures: what the next questions end with, instead of an answer.
        silent: whether questions stay without an answer.

    """

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.asked: list[list[str]] = []
        self.failures: list[KafkaException] = []
        self.silent = False

    def describe_topics(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        names = sorted(topics)
        self.asked.append(names)
        failed = self.failures.pop(0) if self.failures else None
        answers: dict[str, Future[Any]] = {name: Future() for name in names}
        for name, answer in answers.items():
            if self.silent:
                continue
            if failed is not None:
                answer.set_exception(failed)
            else:
                answer.set_result(_Described(self.ids.get(name, f"id of {name}")))
        return answers


HASH = topic_hash("id of input")


class FakeConsumer:
    """Answers what it is told to.

    Attributes:
        incoming: what `poll` and `consume` return next.
        failures: by name of a method, what its next calls raise.
        generation: of the group, or -1 for a consumer that is no member.
        watermarks: by partition, its first offset and the end of what may be read.
        written: by partition, its end with what an open transaction hides, where it hides some.

    """

    def __init__(self) -> None:
        self.generation = 1
        self.incoming: list[FakeMessage] = []
        self.on_commit: Callable[[KafkaError | None, list[TopicPartition]], None] | None = None
        self.commits: list[list[TopicPartition]] = []
        self.unanswered: list[list[TopicPartition]] = []
        self.answers_commits = True
        self.closed = False
        self.paused: list[bool] = []
        self.assigned: dict[int, int] = {}
        self.watermarks: dict[int, tuple[int, int]] = {}
        self.written: dict[int, int] = {}
        self.times: dict[int, int] = {}
        self.asked_for_times: list[int] = []
        self.stored: dict[int, TopicPartition] = {}
        self.failures: dict[str, list[KafkaException]] = {}
        self.callbacks: Json = {}
        self.assign_at_poll: list[TopicPartition] = []

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.topics = topics
        self.callbacks = callbacks

    def poll(self, _timeout: float) -> FakeMessage | None:
        given, self.assign_at_poll = self.assign_at_poll, []
        if given:
            self.callbacks["on_assign"](self, given)
        self._answer_commits()
        return self.incoming.pop(0) if self.incoming else None

    def consumer_group_metadata(self) -> bytes:
        return group_metadata(self.generation)

    def consume(self, _most: int, _timeout: float) -> list[FakeMessage]:
        taken, self.incoming = self.incoming, []
        return taken

    def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool
    ) -> list[TopicPartition] | None:
        self._fail("commit")
        self.commits.append(offsets)
        for one in offsets:
            self.stored[one.partition] = one
        if asynchronous:
            self.unanswered.append(offsets)
            return None
        return offsets

    def committed(self, given: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        self._fail("committed")
        return [self._stored(one) for one in given]

    def _stored(self, wanted: TopicPartition) -> TopicPartition:
        return self.stored.get(wanted.partition, at(-1001, wanted.partition, topic=wanted.topic))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, *, cached: bool = False
    ) -> tuple[int, int]:
        assert cached or timeout > 0
        self._fail("cached" if cached else "watermarks")
        low, high = self.watermarks.get(partition.partition, (0, 0))
        return low, self.written.get(partition.partition, high) if cached else high

    def offsets_for_times(
        self, wanted: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        assert timeout > 0
        self._fail("offsets_for_times")
        self.asked_for_times += [one.offset for one in wanted]
        return [at(self.times.get(one.partition, -1), one.partition) for one in wanted]

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned.update({one.partition: one.offset for one in partitions})

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for one in partitions:
            self.assigned.pop(one.partition, None)

    def assignment(self) -> list[TopicPartition]:
        return [at(-1001, partition) for partition in self.assigned]

    def pause(self, _partitions: list[TopicPartition]) -> None:
        self.paused.append(True)

    def resume(self, _partitions: list[TopicPartition]) -> None:
        self.paused.append(False)

    def close(self) -> None:
        if self.assigned:
            self.callbacks["on_revoke"](self, [at(-1001, one) for one in self.assigned])
        self.closed = True

    def _answer_commits(self) -> None:
        if self.answers_commits and self.on_commit is not None:
            answered, self.unanswered = self.unanswered, []
            for offsets in answered:
                self.on_commit(None, offsets)

    def _fail(self, method: str) -> None:
        if self.failures.get(method):
            raise self.failures[method].pop(0)
