"""The messages of a topic in a time range, for commands that look back."""

from collections.abc import Generator, Iterator
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from msgspec.structs import replace

from consumer.clients import make_consumer
from consumer.clock import Clock, SystemClock
from consumer.failures import ClusterError, NoBrokerError, cause_of, may_pass
from consumer.message import Message
from consumer.settings import Settings

_ANSWER_S: Final = 10.0
_PATIENCE_S: Final = 60.0  # Longer than a transaction of this service may hide what comes after it.
_MOST_MESSAGES: Final = 1_000
_WAIT_S: Final = 0.5
_UNKNOWN_TOPIC: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the client's public constants are named so.
)


def read_range(
    settings: Settings,
    topic: str,
    since_ms: int | None = None,
    until_ms: int | None = None,
    *,
    clock: Clock | None = None,
) -> Generator[Message, None, None]:
    """Read what is committed in all partitions of a topic, up to their ends at the start.

    Joins no group and commits nothing. Timestamps need not be in order: a partition is read from
    its first message that is not too old, and always to its end.

    Args:
        settings: where the cluster is, and how to talk to it.
        topic: its name.
        since_ms: least timestamp, milliseconds since 1970; None to begin with the topic.
        until_ms: first timestamp that is too late; None for no bound.
        clock: for how long nothing has come.

    Raises:
        ClusterError: the topic is missing or may not be read, or a partition's end is not reached.
        NoBrokerError: no broker answers.

    """
    # Where messages are deleted meanwhile, the range begins with those that are left.
    consumer = make_consumer(
        replace(
            settings, kafka_consumer={**settings.kafka_consumer, "auto.offset.reset": "earliest"}
        )
    )
    try:
        for message in _read(consumer, topic, since_ms, clock or SystemClock()):
            at = message.timestamp()[1]
            if (since_ms is None or since_ms <= at) and (until_ms is None or at < until_ms):
                yield message
    except KafkaException as error:
        cause = cause_of(error)
        failure = NoBrokerError if may_pass(cause) else ClusterError
        raise failure(f"topic {topic!r} cannot be read: {cause.str()}") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, since_ms: int | None, clock: Clock) -> Iterator[Message]:
    starts, ends = _bounds(consumer, topic, since_ms)
    consumer.assign(starts)
    deadline = clock.monotonic() + _PATIENCE_S
    while ends:
        if clock.monotonic() >= deadline:
            left = ", ".join(map(str, ends))
            raise ClusterError(
                f"topic {topic!r}: nothing has come for a minute, before the end of partition "
                f"{left}: no broker answers, or somebody's open transaction hides what comes next"
            )
        for message in consumer.consume(_MOST_MESSAGES, _WAIT_S):
            number, error = message.partition(), message.error()
            if error is None:
                offset, end = message.offset() or 0, ends.get(number, 0)
                at_end = offset + 1 >= end
                if offset < end:
                    yield cast("Message", message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                at_end = True  # After the last message there may be marks of transactions.
            elif may_pass(error) or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # The client asks for the coordinator of a group that is not joined.
            else:
                raise KafkaException(error)
            deadline = clock.monotonic() + _PATIENCE_S
            if at_end:
                ends.pop(number, None)


def _bounds(
    consumer: Consumer, topic: str, since_ms: int | None
) -> tuple[list[TopicPartition], dict[int | None, int]]:
    """Return where to begin and end in each partition that holds anything in between."""
    found = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if found.error is not None:
        if found.error.code() in _UNKNOWN_TOPIC:
            raise ClusterError(f"topic {topic!r} does not exist, or may not be described")
        raise KafkaException(found.error)
    ends: dict[int, int] = {}
    starts = []
    for number in found.partitions:
        partition = TopicPartition(topic, number)
        low, high = consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)
        ends[number] = high
        starts.append(TopicPartition(topic, number, low if since_ms is None else since_ms))
    if since_ms is not None:
        starts = consumer.offsets_for_times(starts, timeout=_ANSWER_S)
    for one in starts:
        if one.error is not None:
            raise KafkaException(one.error)
    starts = [one for one in starts if 0 <= one.offset < ends[one.partition]]
    begun = {one.partition for one in starts}
    return starts, {number: end for number, end in ends.items() if number in begun}
