"""Stand-ins for Kafka clients, for what a real broker cannot be made to do when a test wants it."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.logs import Event
from consumer.records import Output

Delivered = Callable[[KafkaError | None, object], None]
Json = dict[str, Any]

TIMED_OUT = KafkaError._TIMED_OUT
WAIT_COORD = KafkaError._WAIT_COORD


def failure(code: int, *, fatal: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "as the test says", fatal))


def output(request_id: str = "r", *, timestamp: int = 5, kind: Any = "record") -> Output:
    content = {
        "source_topic": "input",
        "source_partition": 3,
        "source_first_offset": 7,
        "request_id": request_id,
    }
    return Output(kind, request_id.encode(), msgspec.json.encode(content), [], timestamp)


def at(offset: int, partition: int = 0, metadata: str = "", topic: str = "input") -> TopicPartition:
    return TopicPartition(topic, partition, offset, metadata)


class Log:
    """A logger that remembers."""

    def __init__(self) -> None:
        self.lines: list[Json] = []

    def of(self, event: Event) -> list[Json]:
        return [line for line in self.lines if line["event"] == event]

    def debug(self, event: Event, /, **fields: object) -> None:
        self._say("debug", event, fields)

    def info(self, event: Event, /, **fields: object) -> None:
        self._say("info", event, fields)

    def warning(self, event: Event, /, **fields: object) -> None:
        self._say("warning", event, fields)

    def error(self, event: Event, /, **fields: object) -> None:
        self._say("error", event, fields)

    def exception(self, event: Event, /, **fields: object) -> None:
        self._say("error", event, fields)

    def bind(self, **_fields: object) -> "Log":
        return self

    def _say(self, level: str, event: Event, fields: Json) -> None:
        self.lines.append({"level": level, "event": event, **fields})


class FakeProducer:
    """Takes messages, and refuses them as told.

    Args:
        refuses: says with which error the broker refuses a message among others of its flush.
        room: messages that fit the queue; a poll makes room again.

    """

    def __init__(
        self,
        refuses: Callable[[Json, list[Json]], int | None] = lambda _message, _batch: None,
        *,
        room: int = 1_000,
    ) -> None:
        self.delivered: list[Json] = []
        self.waited_for = threading.Event()
        self.polls = 0
        self.refused_at_once: dict[bytes, int] = {}
        self.stuck = False
        self._refuses = refuses
        self._room = room
        self._queue: list[tuple[Json, Delivered]] = []

    def produce(self, topic: str, *, on_delivery: Delivered, **message: Any) -> None:
        if len(self._queue) >= self._room:
            raise BufferError("Local: Queue full")
        if (code := self.refused_at_once.get(message["key"])) is not None:
            raise failure(code)
        self._queue.append(({"topic": topic, **message}, on_delivery))

    def poll(self, _timeout: float) -> int:
        self.polls += 1
        self.waited_for.set()
        if not self.stuck:
            self._settle()
        return 0

    def flush(self, _timeout: float) -> int:
        self.waited_for.set()
        if not self.stuck:
            self._settle()
        return len(self._queue)

    def _settle(self) -> None:
        queue, self._queue = self._queue, []
        batch = [message for message, _ in queue]
        for message, on_delivery in queue:
            code = self._refuses(message, batch)
            if code is None:
                self.delivered.append(message)
            else:
                on_delivery(KafkaError(code), None)


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
    ) -> None:
        self._value = value
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

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp


def end(offset: int, partition: int = 0) -> FakeMessage:
    """Return the event that says where a partition ends."""
    return FakeMessage(None, offset, partition, error=KafkaError(KafkaError._PARTITION_EOF))


class FakeConsumer:
    """Answers what it is told to.

    Attributes:
        incoming: what `poll` and `consume` return next.
        failures: by name of a method, what its next calls raise.

    """

    def __init__(self) -> None:
        self.incoming: list[FakeMessage] = []
        self.on_commit: Callable[[KafkaError | None, list[TopicPartition]], None] | None = None
        self.commits: list[list[TopicPartition]] = []
        self.unanswered: list[list[TopicPartition]] = []
        self.answers_commits = True
        self.closed = False
        self.paused: list[bool] = []
        self.assigned: dict[int, int] = {}
        self.watermarks: dict[int, tuple[int, int]] = {}
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
        return [self.stored.get(one.partition, at(-1001, one.partition)) for one in given]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, *, cached: bool = False
    ) -> tuple[int, int]:
        assert cached or timeout > 0
        self._fail("cached" if cached else "watermarks")
        return self.watermarks.get(partition.partition, (0, 0))

    def offsets_for_times(
        self, wanted: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        assert timeout > 0
        self._fail("offsets_for_times")
        return [at(-1, one.partition) for one in wanted]

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
