"""Reading of topics for commands: ranges of committed messages, outside of every consumer group.

A reader joins no group and commits nothing, so that the service does not notice it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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

from consumer.commands.exit_codes import CommandError
from consumer.commands.places import MessagePlace, place_text
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
from consumer.settings.settings import Settings
from consumer.settings.values import Moment
from consumer.telemetry import logging_setup
from consumer.telemetry.clock import SystemClock

T = TypeVar("T")
OffsetRange = tuple[str, int, int, int]
"""Topic, partition, first offset and last offset."""

_ANSWER_S: Final = 10.0
_MAX_SILENCE_S: Final = 30.0
_POLL_S: Final = 0.2  # The client does not react to Ctrl-C while it waits.
_BATCH: Final = 1000
_NEAR: Final = 2_000  # Messages: reading this many takes no longer than a new assignment.
_PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's public constants.


class MissingMessageError(CommandError):
    """An offset has no message to read; the message says why."""


class MissingTopicError(ClusterError):
    """A topic or partition does not exist, or the cluster does not allow to describe it."""


class UnreadableHeaders(CapturedMessage, frozen=True):
    """A message whose headers the client cannot read."""

    def headers(self) -> Headers | None:
        """Raise, as the client does."""
        raise UnicodeError


@contextmanager
def quiet_clients() -> Iterator[None]:
    """Silence the log of the Kafka clients: the command reports their errors itself."""
    logging_setup.configure(level="error")
    client = logging_setup.librdkafka_logger()
    client.disabled = True
    try:
        yield
    finally:
        client.disabled = False


class TopicReader:
    """Reads ranges of topics.

    Args:
        settings: the settings; the consumer has the properties of the service's consumer.
        following: whether the reader is for `follow`, and waits for new messages.

    Attributes:
        cluster_id: the id of the cluster.

    Raises:
        ClusterError: a property is refused.
        NoBrokerError: no broker answers.

    """

    def __init__(self, settings: Settings, *, following: bool = False) -> None:
        self.cluster_id = str(Administrator(settings).metadata(_ANSWER_S).cluster_id)
        # Brokers delay their answer this long at the end of a log, where most ranges end.
        short_wait = {} if following else {"fetch.wait.max.ms": "10"}
        self._consumer = _consumer(settings, short_wait | settings.kafka_consumer)
        # A consumer of committed messages gets the last stable offset instead of the watermark.
        uncommitted = {"isolation.level": "read_uncommitted"}
        self._watermarks = _consumer(settings, settings.kafka_consumer | uncommitted)
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
        self._watermarks.close()

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            ClusterError: no broker answers.
            MissingTopicError: the topic does not exist.

        """
        try:
            with _naming_topic(topic):
                found = self._consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        except ValueError as error:  # A null character: a damaged letter may hold any string.
            raise MissingTopicError(f"{topic!r} is not a valid topic name") from error
        if found.error is not None:
            raise MissingTopicError(f"topic {topic!r}: {found.error.str()}")
        return sorted(found.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last one.

        Raises:
            ClusterError: no broker answers.
            MissingTopicError: the partition does not exist.

        """
        numbers = self.partitions(topic)
        if partition not in numbers:
            raise MissingTopicError(
                f"topic {topic!r} has partitions 0 to {len(numbers) - 1}, not {partition}"
            )
        place = TopicPartition(topic, partition)
        with _naming_topic(topic):
            low, high = self._watermarks.get_watermark_offsets(place, timeout=_ANSWER_S)
            return low, high

    def message(self, topic: str, partition: int, offset: int) -> CapturedMessage:
        """Return one message.

        Raises:
            ClusterError: no broker answers.
            KafkaFailureError: the cluster refuses to read.
            MissingTopicError: the partition does not exist.
            MissingMessageError: the message does not exist.

        """
        low, high = self.bounds(topic, partition)
        where = place_text((topic, partition, offset))
        if offset < low:
            raise MissingMessageError(f"{where} was deleted: the partition begins at offset {low}")
        if offset >= high:
            raise MissingMessageError(f"{where} does not exist: the partition ends at {high}")
        message = next(self.read(topic, partition, offset, high), None)
        if message is None or message.offset() != offset:
            raise MissingMessageError(
                f"{where} is not a readable message: it is a transaction marker, belongs to an "
                "aborted or open transaction, or was removed by compaction"
            )
        return message

    def messages(self, places: Iterable[MessagePlace]) -> Iterator[CapturedMessage]:
        """Yield the messages that exist at these places, in order.

        Raises:
            ClusterError: no broker answers.
            KafkaFailureError: the cluster refuses to read.

        """
        for nearby in group_nearby(set(places), lambda place: (*place, place[2])):
            (topic, partition, first), (_, _, last) = nearby[0], nearby[-1]
            try:
                low, high = self.bounds(topic, partition)
            except MissingTopicError:
                continue
            wanted = {offset for _, _, offset in nearby}
            for message in self.read(topic, partition, max(first, low), min(last + 1, high)):
                if message.at_offset in wanted:
                    yield message

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        stop: int,
        *,
        wait_for_transactions: bool = False,
    ) -> Iterator[CapturedMessage]:
        """Yield the messages from an offset up to another one, or to the end of the log.

        Args:
            topic: the topic.
            partition: the partition.
            start: offset of the first message.
            stop: offset after the last one.
            wait_for_transactions: whether to wait for open transactions, which hide all messages
                after their beginning. Else the log ends there.

        Raises:
            KafkaFailureError: the cluster refuses to read, or does not answer for half a minute.

        """
        if start >= stop:
            return
        self._consumer.assign([TopicPartition(topic, partition, start)])
        received_at = self._clock.monotonic()
        while True:
            for message in self._next():
                received_at = self._clock.monotonic()
                offset, error = message.offset() or 0, message.error()
                if error is None:
                    if offset < stop:
                        yield _copied(message)
                    ended = offset + 1 >= stop
                elif error.code() == _PARTITION_EOF:
                    ended = offset >= stop or not wait_for_transactions
                else:
                    _check(error)
                    ended = False
                if ended:
                    return
            if self._clock.monotonic() - received_at > _MAX_SILENCE_S:
                raise KafkaFailureError(
                    f"topic {topic!r}, partition {partition}: received nothing for "
                    f"{_MAX_SILENCE_S:.0f} s: the broker does not answer, or a transaction is "
                    "still open; try again later"
                )

    def read_all(
        self, topic: str, since: int | None = None, *, wait_for_transactions: bool = False
    ) -> Iterator[CapturedMessage]:
        """Yield the messages of all partitions, one after another, up to where they end now.

        Args:
            topic: the topic.
            since: milliseconds since 1970; each partition is read from its first message of that
                time or later. None to read everything.
            wait_for_transactions: whether to wait for open transactions, see `read`.

        Raises:
            ClusterError: the topic does not exist, or no broker answers.
            KafkaFailureError: the cluster refuses to read, or stops answering.

        """
        for number in self.partitions(topic):
            low, high = self.bounds(topic, number)
            found = low if since is None else self.offset_at(topic, number, since)
            start = high if found is None else max(found, low)
            yield from self.read(
                topic, number, start, high, wait_for_transactions=wait_for_transactions
            )

    def follow(self, starts: Mapping[str, Moment]) -> Iterator[CapturedMessage | None]:
        """Yield the messages of topics as they arrive, without an end; None while none arrives.

        Args:
            starts: where to begin, by topic.

        Raises:
            ClusterError: a topic does not exist, or no broker answers.
            KafkaFailureError: the cluster refuses to read.

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
                    yield _copied(message)
                elif error.code() != _PARTITION_EOF:
                    _check(error)
            yield None

    def offset_at(self, topic: str, partition: int, time: int) -> int | None:
        """Return the offset of the first message of a time or later; None if there is none.

        Raises:
            ClusterError: no broker answers.

        """
        asked = [TopicPartition(topic, partition, time)]
        with _naming_topic(topic):
            [found] = self._consumer.offsets_for_times(asked, timeout=_ANSWER_S)
        if found.error is not None:
            raise ClusterError(f"topic {topic!r}: {found.error.str()}")
        return found.offset if found.offset >= 0 else None

    def _next(self) -> list[KafkaMessage]:
        """Return messages as soon as one arrives; the client waits when asked for many."""
        first = self._consumer.consume(1, timeout=_POLL_S)
        return [*first, *self._consumer.consume(_BATCH, timeout=0)] if first else []

    def _begin(self, topic: str, partition: int, start: Moment) -> int:
        if isinstance(start, int):
            found = self.offset_at(topic, partition, start)
            return OFFSET_END if found is None else found
        return OFFSET_BEGINNING if start == "earliest" else OFFSET_END


@contextmanager
def _naming_topic(topic: str) -> Iterator[None]:
    """Raise an error that names the topic."""
    try:
        yield
    except KafkaException as error:
        cause = cause_of(error)
        error_type = NoBrokerError if is_transient(cause) else ClusterError
        raise error_type(f"topic {topic!r}: {cause.str()}") from error


def _consumer(settings: Settings, properties: Mapping[str, str]) -> Consumer:
    return make_consumer(msgspec.structs.replace(settings, kafka_consumer=dict(properties)))


def _copied(message: KafkaMessage) -> CapturedMessage:
    """Copy a message: headers of the client's own message can be read only once."""
    headers = headers_of(cast("Callable[[], Headers | None]", message.headers))
    kind, stamp = message.timestamp()
    message_type = CapturedMessage if headers is not None else UnreadableHeaders
    return message_type(
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
    """Raise an error that does not pass by itself, unless it is about the group."""
    if not is_transient(error) and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise KafkaFailureError(str(error.str()))


def group_nearby(items: Iterable[T], range_of: Callable[[T], OffsetRange]) -> Iterator[list[T]]:
    """Sort items by their ranges of offsets, and yield in one list those to read at once."""
    nearby: list[T] = []
    key, end = ("", 0), 0
    for topic, partition, first, last, item in sorted(
        ((*range_of(item), item) for item in items), key=lambda found: found[:4]
    ):
        if nearby and ((topic, partition) != key or first > end + _NEAR):
            yield nearby
            nearby, end = [], 0
        key, end = (topic, partition), max(end, last)
        nearby.append(item)
    if nearby:
        yield nearby
