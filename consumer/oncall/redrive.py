"""Dead letters back into use after a fix, each exactly once.

A letter of a message has its message produced to the input topic again, a letter of a request its
record published. Beside either, in the same transaction, goes a notice on the dead-letter topic
that the letter was redriven: whoever redrives next finds it there.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer
from msgspec import Struct

from consumer.adapters.registry import Adapters
from consumer.clients import Cluster, make_producer, transactional_id
from consumer.clock import SystemClock
from consumer.failures import KafkaFailureError, cause_of
from consumer.logs import get_logger
from consumer.message import TIMESTAMP_NOT_AVAILABLE, CapturedMessage, Headers, headers_of
from consumer.oncall.dead_letters import (
    REDRIVEN,
    Letter,
    Refused,
    Restored,
    is_of,
    opened,
    parts_of,
    refusal,
    restored,
    retold,
)
from consumer.oncall.explain import named
from consumer.oncall.reading import MissingMessageError, MissingTopicError, TopicReader
from consumer.pipeline import Pipeline
from consumer.records import Origin, RequestResult
from consumer.reporting import Reporter
from consumer.service import pipeline_options
from consumer.settings import Settings
from schemas import DeadLetter

REDRIVE_HEADER: Final = "acceptance-redrive"
"""Header of a message that was produced to its topic again: the id of its letter."""

_MOST_BEFORE: Final = 2_000  # Messages: an attempt before lies further behind only by chance.
_MOST_AFTER: Final = 100_000
_ANSWER_S: Final = 60.0


class Ready(Struct, frozen=True):
    """What is to be sent for a letter.

    Attributes:
        topic: where it goes.
        partition: the partition, or -1 for that of the key.
        what: what it is, for people.
        lacks: what could not be restored; None if nothing lacks.

    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int  # Milliseconds since 1970, or 0: the producer's clock.
    what: str
    lacks: str | None = None


class Sources:
    """What letters are about, read again where it came from.

    Args:
        settings: the settings of today.
        adapters: the adapters of today.
        reader: reads topics.

    """

    def __init__(self, settings: Settings, adapters: Adapters, reader: TopicReader) -> None:
        self._settings = settings
        self._adapters = adapters
        self._reader = reader
        self._pipelines: dict[str, Pipeline] = {}

    def prepare(self, letter: Letter, reporter: Reporter) -> Ready | Refused:
        """Return what to send for a letter, or why nothing.

        Raises:
            ClusterError: nobody answers.
            KafkaFailureError: the cluster refuses to.

        """
        try:
            return self._prepared(letter, reporter)
        except MissingTopicError as error:
            return Refused(str(error))

    def _prepared(self, letter: Letter, reporter: Reporter) -> Ready | Refused:
        content = letter.content
        if content.kind == "request":
            return self._prepare_record(content, reporter)
        found = self.message_of(letter)
        if isinstance(found, Refused):
            return found
        message = found.message
        # A producer would wait for a topic that is gone, or have the broker make an empty one.
        self._reader.bounds(message.at_topic, message.at_partition)
        reason = refusal(self._pipeline(content), message)
        if reason is not None:
            return Refused(reason)
        return Ready(
            message.at_topic,
            message.at_partition,
            message.the_key,
            message.the_value,
            [
                *(one for one in message.the_headers or [] if one[0] != REDRIVE_HEADER),
                (REDRIVE_HEADER, content.record_id.encode()),
            ],
            0 if message.timestamp_type == TIMESTAMP_NOT_AVAILABLE else message.timestamp_ms,
            "to its partition again",
            found.lacks,
        )

    def message_of(self, letter: Letter) -> Restored | Refused:
        """Return the message of a letter, from its source if it is there, and what it lacks."""
        content = letter.content
        try:
            source = self._reader.message(*letter.source)
        except (MissingMessageError, MissingTopicError):
            pass
        else:
            if is_of(content, source) and headers_of(source.headers) is not None:
                return Restored(source)
        return restored(opened(self._reader.message(*letter.place)))

    def parts_of(self, letter: Letter) -> list[CapturedMessage]:
        """Return the messages of a request that are still there."""
        content = letter.content
        topic, partition, first = letter.source
        try:
            low, high = self._reader.bounds(topic, partition)
        except MissingTopicError:
            return []
        stop = min(content.source_last_offset + 1, high)
        messages = self._reader.read(topic, partition, max(first, low), stop)
        return parts_of(self._pipeline(content), content, messages)

    def _prepare_record(self, letter: DeadLetter, reporter: Reporter) -> Ready | Refused:
        pipeline = self._pipeline(letter)
        result = retold(pipeline, letter, self._around(letter))
        if result is None:
            return Refused("the source is gone")
        if result.record is None:
            return Refused(f"still {named(result.outcome, result.reason)}")
        if result.record.record_id != letter.record_id:
            return Refused(f"its place holds another request now: {result.record.record_id}")
        return self._ready(result, letter, reporter)

    def _ready(self, result: RequestResult, letter: DeadLetter, reporter: Reporter) -> Ready:
        origin = Origin(
            letter.fleet, letter.source_topic, letter.source_partition, self._settings.labels
        )
        [output] = reporter.request(result, origin)
        assert result.record is not None  # noqa: S101 - the caller has looked.
        return Ready(
            self._settings.output_topic,
            -1,
            output.key,
            output.value,
            output.headers,
            output.timestamp,
            f"record of {result.record.engine}",
        )

    def _around(self, letter: DeadLetter) -> Iterable[CapturedMessage]:
        """Return the messages of a request, with some before it, among which attempts count."""
        topic, partition = letter.source_topic, letter.source_partition
        low, high = self._reader.bounds(topic, partition)
        first = letter.source_first_offset
        if first < low:
            return ()
        start = max(low, first - _MOST_BEFORE)
        stop = min(high, letter.source_last_offset + 1 + _MOST_AFTER)
        return self._reader.read(topic, partition, start, stop)

    def _pipeline(self, letter: DeadLetter) -> Pipeline:
        fleet = letter.fleet
        if fleet not in self._pipelines:
            # Ids hold the name of the fleet as it was then.
            settings = msgspec.structs.replace(self._settings, fleet=fleet)
            options = pipeline_options(settings, fleet)
            self._pipelines[fleet] = Pipeline(options, self._adapters)
        return self._pipelines[fleet]


class Redriver:
    """Sends what is ready, each with its notice, in a transaction of its own.

    The transactional id is of the group's family, so that the service's rights suffice, and the
    same for everybody: of two people who redrive at once, the first is stopped.

    Args:
        settings: the settings.
        cluster: what the cluster takes.

    Raises:
        ClusterError: a property is refused.
        KafkaFailureError: transactions are not allowed, or no coordinator answers.

    """

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        mine = msgspec.structs.replace(settings, transactional_id=f"{settings.group}-redrive")
        limit = min(cluster.record_limit, cluster.letter_limit)
        self._producer: Producer = make_producer(mine, limit)
        self._transactional = settings.transactional
        self._errors: list[str] = []
        if self._transactional:
            try:
                self._producer.init_transactions(_ANSWER_S)
            except KafkaException as error:
                name = transactional_id(mine)
                raise KafkaFailureError(
                    f"transactional id {name!r}: {cause_of(error).str()}"
                ) from error

    def send(self, letter: Letter, ready: Ready) -> str | None:
        """Send what is ready for a letter; return why it did not get there, or None.

        Raises:
            KafkaFailureError: the producer is of no use any more; of this letter nothing is known
                to have been sent.

        """
        self._errors.clear()
        try:
            return self._send(letter, ready)
        except KafkaException as error:
            cause = cause_of(error)
            if cause.fatal() or not self._transactional:
                raise KafkaFailureError(f"redriving stopped: {cause.str()}") from error
            self._abort()
            return self._errors[0] if self._errors else str(cause.str())

    def _send(self, letter: Letter, ready: Ready) -> str | None:
        if self._transactional:
            self._producer.begin_transaction()
        self._produce(
            ready.topic, ready.partition, ready.key, ready.value, ready.headers, ready.timestamp
        )
        if not self._transactional and (error := self._flush()) is not None:
            return error
        topic, partition, _ = letter.place
        content = letter.content
        key = (content.request_id or content.record_id).encode()
        notice: Headers = [(REDRIVEN, content.record_id.encode())]
        self._produce(topic, partition, key, None, notice, 0)
        if not self._transactional:
            return self._flush()
        self._producer.commit_transaction(_ANSWER_S)
        return None

    def _produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
    ) -> None:
        self._producer.produce(
            topic,
            value,
            key,
            partition,
            headers=headers,
            timestamp=timestamp,
            on_delivery=self._on_delivery,
        )

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._errors.append(str(error.str()))

    def _flush(self) -> str | None:
        if self._producer.flush(_ANSWER_S):
            raise KafkaFailureError(f"redriving stopped: no answer for {_ANSWER_S:.0f} s")
        return self._errors[0] if self._errors else None

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(_ANSWER_S)
        except KafkaException as error:
            raise KafkaFailureError(f"redriving stopped: {cause_of(error).str()}") from error


def reporter_of(settings: Settings, cluster: Cluster) -> Reporter:
    """Return what makes records into messages, as the service does."""
    return Reporter(
        dead_letters="off",  # No letter is written anew.
        record_limit=cluster.record_limit,
        letter_limit=cluster.letter_limit,
        preview=settings.log_preview,
        clock=SystemClock(),
        log=get_logger(),
    )
