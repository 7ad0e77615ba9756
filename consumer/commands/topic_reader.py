"""What the commands for people read from Kafka: stretches of topics, outside of every group.

Only committed messages are read. No group is joined and nothing is committed, so that the service
notices nothing of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage

from consumer.core.message import CapturedMessage, Headers, headers_of
from consumer.kafka.administrator import Administrator
from consumer.kafka.clients import make_consumer
from consumer.kafka.errors import (
    ClusterError,
    KafkaFailureError,
    NoBrokerError,
    cause_of,
    is_transient,
)
from consumer.settings.settings import Moment, Settings
from consumer.telemetry.clock import SystemClock

_ANSWER_S: Final = 10.0
_PATIENCE_S: Final = 30.0
_STEP_S: Final = 0.2  # The client lets no Ctrl-C through while it waits.
_BATCH: Final = 1000
_NEAR: Final = 2_000  # Messages: to read over so many takes no longer than to begin anew.
_PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's public constants.


T = TypeVar("T")
Span = tuple[str, int, int, int]  # Topic, partition, first offset and last offset.


class MissingMessageError(Exception):
    """There is no message to read at an offset; the message says why."""


class MissingTopicError(ClusterError):
    """There is no such topic or partition, or it may not be described."""


class UnreadableHeaders(CapturedMessage, frozen=True):
    """A message of whose headers the client can read none."""

    def headers(self) -> Headers | None:
        """Raise, as the client does."""
        raise UnicodeError


class TopicReader:
    """Reads stretches of topics.

    Args:
        settings: the settings; the consumer's properties are those of the service.
        following: whether it is for `follow`, and waits for what is still to come.

    Attributes:
        cluster_id: the id of the cluster.

    Raises:
        ClusterError: a property is refused.
        NoBrokerError: no broker answers.

    """

    def __init__(self, settings: Settings, *, following: bool = False) -> None:
        self.cluster_id = str(Administrator(settings).metadata(_ANSWER_S).cluster_id)
        # At the end of a log, brokers hold back their answer that long, and every stretch has one.
        hasty = {} if following else {"fetch.wait.max.ms": "10"}
        self._consumer = _consumer(settings, hasty | settings.kafka_consumer)
        # To readers of committed messages, a log ends where the first open transaction begins.
        uncommitted = {"isolation.level": "read_uncommitted"}
        self._asking = _consumer(settings, settings.kafka_consumer | uncommitted)
        self._clock = SystemClock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()
        self._asking.close()

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            ClusterError: no broker answers.
            MissingTopicError: the topic is not there.

        """
        try:
            found = self._consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        except KafkaException as error:
            raise _unanswered(topic, error) from error
        except ValueError as error:  # A null character: a damaged letter may hold any text.
            raise MissingTopicError(f"{topic!r} is no name of a topic") from error
        if found.error is not None:
            raise MissingTopicError(f"topic {topic!r}: {found.error.str()}")
        return sorted(found.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last.

        Raises:
            ClusterError: nobody answers.
            MissingTopicError: there is no such partition.

        """
        numbers = self.partitions(topic)
        if partition not in numbers:
            raise MissingTopicError(f"topic {topic!r} has partitions 0 to {len(numbers) - 1}")
        place = TopicPartition(topic, partition)
        try:
            low, high = self._asking.get_watermark_offsets(place, timeout=_ANSWER_S)
        except KafkaException as error:
            raise _unanswered(topic, error) from error
        return low, high

    def message(self, topic: str, partition: int, offset: int) -> CapturedMessage:
        """Return one message.

        Raises:
            ClusterError: nobody answers.
            KafkaFailureError: the cluster refuses to.
            MissingTopicError: there is no such partition.
            MissingMessageError: there is no such message.

        """
        low, high = self.bounds(topic, partition)
        where = f"{topic}:{partition}:{offset}"
        if offset < low:
            raise MissingMessageError(f"{where} was deleted: the partition begins at {low}")
        if offset >= high:
            raise MissingMessageError(f"{where} is not written yet: the partition ends at {high}")
        for message in self.read(topic, partition, offset, high):
            if message.offset() == offset:
                return message
            break
        raise MissingMessageError(
            f"{where} is no message that can be read: the mark of a transaction, a message of one "
            "that was aborted or is still open, or one that was compacted away"
        )

    def messages(self, places: Iterable[tuple[str, int, int]]) -> Iterator[CapturedMessage]:
        """Yield the messages at places (topic, partition, offset) that there are, in order.

        Raises:
            ClusterError: nobody answers.
            KafkaFailureError: the cluster refuses to.

        """
        for stretch in stretches(set(places), lambda place: (*place, place[2])):
            (topic, partition, first), (_, _, last) = stretch[0], stretch[-1]
            try:
                low, high = self.bounds(topic, partition)
            except MissingTopicError:
                continue
            wanted = {offset for _, _, offset in stretch}
            for message in self.read(topic, partition, max(first, low), min(last + 1, high)):
                if message.at_offset in wanted:
                    yield message

    def read(
        self, topic: str, partition: int, start: int, stop: int, *, settled: bool = False
    ) -> Iterator[CapturedMessage]:
        """Yield the messages from an offset on, up to another one or to the end of the log.

        Args:
            topic: the topic.
            partition: the partition.
            start: offset of the first message.
            stop: offset after the last one.
            settled: whether to wait for open transactions, which hide all that comes after their
                beginning. Else the log ends there.

        Raises:
            KafkaFailureError: the cluster refuses to, or does not answer for half a minute.

        """
        if start >= stop:
            return
        self._consumer.assign([TopicPartition(topic, partition, start)])
        heard = self._clock.monotonic()
        while True:
            for message in self._next():
                heard = self._clock.monotonic()
                offset, error = message.offset() or 0, message.error()
                if error is None:
                    if offset < stop:
                        yield _kept(message)
                    ended = offset + 1 >= stop
                elif error.code() == _PARTITION_EOF:
                    ended = offset >= stop or not settled
                else:
                    _check(error)
                    ended = False
                if ended:
                    return
            if self._clock.monotonic() - heard > _PATIENCE_S:
                raise KafkaFailureError(
                    f"topic {topic!r}, partition {partition}: nothing to read for "
                    f"{_PATIENCE_S:.0f} s: no answer, or a transaction that does not end"
                )

    def read_all(
        self, topic: str, since: int | None = None, *, settled: bool = False
    ) -> Iterator[CapturedMessage]:
        """Yield the messages of all partitions, one after another, up to where they end now.

        Args:
            topic: the topic.
            since: milliseconds since 1970 before which nobody needs a message; a partition is read
                from its first message of that time or later.
            settled: whether to wait for open transactions, see `read`.

        Raises:
            ClusterError: the topic is not there, or nobody answers.
            KafkaFailureError: the cluster refuses to, or does not answer any more.

        """
        for number in self.partitions(topic):
            low, high = self.bounds(topic, number)
            found = low if since is None else self.offset_at(topic, number, since)
            start = high if found is None else max(found, low)
            yield from self.read(topic, number, start, high, settled=settled)

    def follow(self, starts: Mapping[str, Moment]) -> Iterator[CapturedMessage | None]:
        """Yield the messages of topics as they come, without an end; None where there are no more.

        Args:
            starts: where to begin, by topic.

        Raises:
            ClusterError: a topic is not there, or nobody answers.
            KafkaFailureError: the cluster refuses to.

        """
        self._consumer.assign(
            [
                TopicPartition(topic, number, self._begin(topic, number, start))
                for topic, start in starts.items()
                for number in self.partitions(topic)
            ]
        )
        while True:
            for message in self._next():
                error = message.error()
                if error is None:
                    yield _kept(message)
                elif error.code() != _PARTITION_EOF:
                    _check(error)
            yield None

    def offset_at(self, topic: str, partition: int, time: int) -> int | None:
        """Return the offset of the first message of a time or later; None if there is none.

        Raises:
            ClusterError: nobody answers.

        """
        asked = [TopicPartition(topic, partition, time)]
        try:
            [found] = self._consumer.offsets_for_times(asked, timeout=_ANSWER_S)
        except KafkaException as error:
            raise _unanswered(topic, error) from error
        if found.error is not None:
            raise ClusterError(f"topic {topic!r}: {found.error.str()}")
        return found.offset if found.offset >= 0 else None

    def _next(self) -> list[KafkaMessage]:
        """Return what has come, as soon as something has; asked for many, the client waits."""
        first = self._consumer.consume(1, timeout=_STEP_S)
        return [*first, *self._consumer.consume(_BATCH, timeout=0)] if first else []

    def _begin(self, topic: str, partition: int, start: Moment) -> int:
        if isinstance(start, int):
            found = self.offset_at(topic, partition, start)
            return OFFSET_END if found is None else found
        return OFFSET_BEGINNING if start == "earliest" else OFFSET_END


def _unanswered(topic: str, error: KafkaException) -> ClusterError:
    cause = cause_of(error)
    made = NoBrokerError if is_transient(cause) else ClusterError
    return made(f"topic {topic!r}: {cause.str()}")


def _consumer(settings: Settings, properties: Mapping[str, str]) -> Consumer:
    return make_consumer(msgspec.structs.replace(settings, kafka_consumer=dict(properties)))


def _kept(message: KafkaMessage) -> CapturedMessage:
    """Return a message that can be read again and again, which the client's cannot."""
    headers = headers_of(cast("Callable[[], Headers | None]", message.headers))
    kind, stamp = message.timestamp()
    made = CapturedMessage if headers is not None else UnreadableHeaders
    return made(
        at_topic=message.topic() or "",
        at_partition=message.partition() or 0,
        at_offset=message.offset() or 0,
        the_key=message.key(),
        the_value=message.value(),
        the_headers=headers,
        timestamp_type=kind,
        timestamp_ms=stamp,
    )


def _check(error: KafkaError) -> None:
    """Raise what does not pass by itself; that there is no right to the group is of no matter."""
    if not is_transient(error) and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise KafkaFailureError(str(error.str()))


def stretches(items: Iterable[T], span: Callable[[T], Span]) -> Iterator[list[T]]:
    """Sort what is about parts of partitions, and yield in one list what is best read at once."""
    stretch: list[T] = []
    where, end = ("", 0), 0
    for at, number, first, last, item in sorted(
        ((*span(item), item) for item in items), key=lambda found: found[:4]
    ):
        if stretch and ((at, number) != where or first > end + _NEAR):
            yield stretch
            stretch, end = [], 0
        where, end = (at, number), max(end, last)
        stretch.append(item)
    if stretch:
        yield stretch


def one_run(messages: Iterable[CapturedMessage], target: CapturedMessage) -> list[CapturedMessage]:
    """Return the messages of a capture that stand in one row with one of them.

    Those of its partition around it, as long as offsets rise: where they go back, another capture
    begins.
    """
    run: list[CapturedMessage] = []
    found = False
    for message in messages:
        if (message.at_topic, message.at_partition) != (target.at_topic, target.at_partition):
            continue
        if run and message.at_offset <= run[-1].at_offset:
            if found:
                break
            run = []
        run.append(message)
        found = found or message is target
    return run
