"""Dead letters back into use after a fix, each exactly once.

A letter of a message has its message produced to the input topic again, a letter of a request its
record published. Beside either, in the same transaction, goes a notice on the dead-letter topic
that the letter was redriven: whoever redrives next finds it there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer
from msgspec import Struct

from consumer.app import pipeline_options
from consumer.commands.dead_letters.letters import (
    REDRIVEN,
    Letter,
    MessagePlace,
    Refused,
    Restored,
    is_of,
    opened,
    parts_of,
    refusal,
    restored,
    retold,
    retold_together,
)
from consumer.commands.explain.explanation import outcome_text
from consumer.commands.topic_reader import MissingTopicError, Span, TopicReader, stretches
from consumer.core.adapters.registry import Adapters
from consumer.core.message import TIMESTAMP_NOT_AVAILABLE, CapturedMessage, Headers, headers_of
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Pipeline
from consumer.core.records import Origin
from consumer.kafka.administrator import Cluster
from consumer.kafka.client_config import transactional_id
from consumer.kafka.clients import make_producer
from consumer.kafka.errors import ClusterError, FencedError, KafkaFailureError, cause_of
from consumer.settings.settings import Settings
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.logging_setup import get_logger
from consumer.telemetry.outcome_reporter import OutcomeReporter
from schemas import DeadLetter

REDRIVE_HEADER: Final = "acceptance-redrive"
"""Header of a message that was produced to its topic again: the id of its letter."""

_TOGETHER: Final = 100  # Letters, whose messages are in memory at the same time.
_MAX_BYTES: Final = 4 << 20  # Of a transaction, which is to end long before its timeout.
_LEAD: Final = 128  # Messages by which stream time is known.
_MAX_BEFORE: Final = 2_000  # Messages: an attempt before lies further behind only by chance.
_MAX_AFTER: Final = 100_000
_ANSWER_S: Final = 60.0
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)

T = TypeVar("T")


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
        self._gone: dict[tuple[str, int], str | None] = {}

    def prepare(
        self, letters: Sequence[Letter], reporter: OutcomeReporter
    ) -> list[Ready | Refused]:
        """Return for each letter what to send, or why nothing.

        Args:
            letters: some letters, see `batches`; what lies near to each other is read at once.
            reporter: makes records into messages.

        Raises:
            ClusterError: nobody answers.
            KafkaFailureError: the cluster refuses to.

        """
        requests = [letter for letter in letters if letter.content.kind == "request"]
        results = self._results_of(requests)
        messages = self.messages_of(
            [letter for letter in letters if letter.content.kind == "message"]
        )
        return [
            self._prepared_message(letter.content, messages[letter.place])
            if letter.place in messages
            else self._prepared_record(letter.content, results[letter.place], reporter)
            for letter in letters
        ]

    def messages_of(self, letters: Sequence[Letter]) -> dict[MessagePlace, Restored | Refused]:
        """Return by their places the messages of letters, and what they lack.

        They come from their sources where they are there.
        """
        sources = {
            (one.at_topic, one.at_partition, one.at_offset): one
            for one in self._reader.messages(letter.source for letter in letters)
        }
        gone = Refused("the source is gone, and its letter as well")
        found: dict[MessagePlace, Restored | Refused] = {}
        for letter in letters:
            source = sources.get(letter.source)
            whole = source is not None and is_of(letter.content, source)
            if source is not None and whole and headers_of(source.headers) is not None:
                found[letter.place] = Restored(source)
            else:
                found[letter.place] = gone
        left = [place for place, one in found.items() if one is gone]
        for one in self._reader.messages(left):
            found[one.at_topic, one.at_partition, one.at_offset] = restored(opened(one))
        return found

    def parts_of(self, letters: Iterable[Letter]) -> dict[str, list[CapturedMessage]]:
        """Return by their record ids the messages of requests that are still there."""
        found: dict[str, list[CapturedMessage]] = {}
        for stretch in stretches((letter.content for letter in letters), _span):
            topic, partition, first, _ = _span(stretch[0])
            try:
                low, high = self._reader.bounds(topic, partition)
            except MissingTopicError:
                continue
            stop = min(max(one.source_last_offset for one in stretch) + 1, high)
            messages = self._reader.read(topic, partition, max(first, low), stop)
            found |= parts_of(self._pipeline(stretch[0].fleet), stretch, messages)
        return found

    def _prepared_message(self, letter: DeadLetter, found: Restored | Refused) -> Ready | Refused:
        if isinstance(found, Refused):
            return found
        message = found.message
        reason = self._missing(message.at_topic, message.at_partition) or refusal(
            self._pipeline(letter.fleet), message
        )
        if reason is not None:
            return Refused(reason)
        return Ready(
            message.at_topic,
            message.at_partition,
            message.the_key,
            message.the_value,
            [
                *(one for one in message.the_headers or [] if one[0] != REDRIVE_HEADER),
                (REDRIVE_HEADER, letter.record_id.encode()),
            ],
            0 if message.timestamp_type == TIMESTAMP_NOT_AVAILABLE else message.timestamp_ms,
            "to its partition again",
            found.lacks,
        )

    def _missing(self, topic: str, partition: int) -> str | None:
        """Say of a partition that it is gone.

        A producer would wait for its topic, or have the broker make an empty one.
        """
        where = topic, partition
        if where not in self._gone:
            try:
                self._reader.bounds(topic, partition)
            except MissingTopicError as error:
                self._gone[where] = str(error)
            else:
                self._gone[where] = None
        return self._gone[where]

    def _prepared_record(
        self, letter: DeadLetter, result: RequestResult | Refused, reporter: OutcomeReporter
    ) -> Ready | Refused:
        if isinstance(result, Refused):
            return result
        if result.record is None:
            return Refused(f"still {outcome_text(result.outcome, result.reason)}")
        if result.record.record_id != letter.record_id:
            return Refused(f"its place holds another request now: {result.record.record_id}")
        return self._ready(result, letter, reporter)

    def _results_of(self, letters: Iterable[Letter]) -> dict[MessagePlace, RequestResult | Refused]:
        """Return by the places of their letters what becomes of requests."""
        found: dict[MessagePlace, RequestResult | Refused] = {}
        by_fleet = defaultdict[str, list[Letter]](list)
        for letter in letters:
            by_fleet[letter.content.fleet].append(letter)
        for fleet, theirs in by_fleet.items():
            for stretch in stretches(theirs, lambda letter: _span(letter.content)):
                contents = [letter.content for letter in stretch]
                try:
                    results = self._retold_together(self._pipeline(fleet), contents)
                    for letter, content in zip(stretch, contents, strict=True):
                        result = results.get(content.record_id)
                        found[letter.place] = result or self._retold(content)
                except MissingTopicError as error:
                    found |= {letter.place: Refused(str(error)) for letter in stretch}
        return found

    def _retold_together(
        self, pipeline: Pipeline, letters: Sequence[DeadLetter]
    ) -> dict[str, RequestResult]:
        topic, partition, first, _ = _span(letters[0])
        low, high = self._reader.bounds(topic, partition)
        start = max(low, first - _LEAD)
        stop = min(high, max(one.source_last_offset for one in letters) + 1 + _MAX_AFTER)
        return retold_together(pipeline, letters, self._reader.read(topic, partition, start, stop))

    def _retold(self, letter: DeadLetter) -> RequestResult | Refused:
        """Return what becomes of one request, with all that may lie before it."""
        try:
            result = retold(self._pipeline(letter.fleet), letter, self._around(letter))
        except (ClusterError, KafkaFailureError, KafkaException):
            raise
        except Exception as bug:  # noqa: BLE001 - it may be what brought the service down.
            return Refused(f"it brings the service down: {type(bug).__name__}")
        return result or Refused("the source is gone")

    def _ready(self, result: RequestResult, letter: DeadLetter, reporter: OutcomeReporter) -> Ready:
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
        start = max(low, first - _MAX_BEFORE)
        stop = min(high, letter.source_last_offset + 1 + _MAX_AFTER)
        return self._reader.read(topic, partition, start, stop)

    def _pipeline(self, fleet: str) -> Pipeline:
        if fleet not in self._pipelines:
            # Ids hold the name of the fleet as it was then.
            settings = msgspec.structs.replace(self._settings, fleet=fleet)
            options = pipeline_options(settings, fleet)
            self._pipelines[fleet] = Pipeline(options, self._adapters)
        return self._pipelines[fleet]


def batches(items: Iterable[T], letter: Callable[[T], Letter]) -> Iterator[list[T]]:
    """Yield letters, or what belongs to them, by their sources in order, some at a time."""
    ordered = sorted(items, key=lambda item: letter(item).source)
    for at in range(0, len(ordered), _TOGETHER):
        yield ordered[at : at + _TOGETHER]


def _span(letter: DeadLetter) -> Span:
    return (
        letter.source_topic,
        letter.source_partition,
        letter.source_first_offset,
        letter.source_last_offset,
    )


class Redriver:
    """Sends what is ready, each in one transaction with its notice.

    The transactional id is of the group's family, so that the service's rights suffice, and the
    same for everybody: of two people who redrive at once, the first is stopped.

    Args:
        settings: the settings.
        cluster: what the cluster takes.

    Attributes:
        sent: how many letters were redriven.

    Raises:
        ClusterError: a property is refused.
        KafkaFailureError: transactions are not allowed, or no coordinator answers.

    """

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.sent = 0
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

    def send_all(self, ready: Iterable[tuple[Letter, Ready]]) -> list[str | None]:
        """Send what is ready for letters; return for each why it did not get there, or None.

        Raises:
            FencedError: somebody else redrives now.
            KafkaFailureError: the producer is of no use any more; what is not counted as sent is
                not known to have been.

        """
        found: list[str | None] = []
        some: list[tuple[Letter, Ready]] = []
        size = 0
        for letter, one in ready:
            some.append((letter, one))
            size += len(one.value or b"")
            if size > _MAX_BYTES or not self._transactional:
                found += self._send_together(some)
                some, size = [], 0
        return found + self._send_together(some)

    def _send_together(self, ready: Sequence[tuple[Letter, Ready]]) -> list[str | None]:
        """Send in one transaction, or where that is refused, in one for each letter."""
        if not ready:
            return []
        error = self._try(ready)
        if error is None:
            self.sent += len(ready)
        if error is None or len(ready) == 1:
            return [error] * len(ready)
        return [self.send(letter, one) for letter, one in ready]

    def send(self, letter: Letter, ready: Ready) -> str | None:
        """Send what is ready for one letter, see `send_all`."""
        return self._send_together([(letter, ready)])[0]

    def _try(self, ready: Sequence[tuple[Letter, Ready]]) -> str | None:
        self._errors.clear()
        try:
            return self._send(ready)
        except KafkaException as error:
            cause = cause_of(error)
            if cause.code() in _FENCED:
                raise FencedError("redriving stopped: somebody else redrives now") from error
            if cause.fatal() or not self._transactional:
                raise KafkaFailureError(f"redriving stopped: {cause.str()}") from error
            self._abort()
            return self._errors[0] if self._errors else str(cause.str())

    def _send(self, letters: Sequence[tuple[Letter, Ready]]) -> str | None:
        if self._transactional:
            self._producer.begin_transaction()
        for letter, ready in letters:
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


def reporter_of(settings: Settings, cluster: Cluster) -> OutcomeReporter:
    """Return what makes records into messages, as the service does."""
    return OutcomeReporter(
        dead_letters="off",  # No letter is written anew.
        record_limit=cluster.record_limit,
        letter_limit=cluster.letter_limit,
        preview=settings.log_preview,
        clock=SystemClock(),
        log=get_logger(),
    )
