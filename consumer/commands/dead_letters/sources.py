"""The messages and requests that dead letters are about, read from their topics again."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from confluent_kafka import KafkaException
from msgspec import Struct

from consumer.commands.dead_letters.letters import Letter, decode_letter
from consumer.commands.dead_letters.reprocess import (
    Obstacle,
    RestoredMessage,
    find_message_obstacle,
    is_source,
    messages_by_request,
    reprocess,
    reprocess_together,
    restore,
)
from consumer.commands.places import MessagePlace, place_of
from consumer.commands.terminal import outcome_text
from consumer.commands.topic_reader import (
    MissingTopicError,
    OffsetRange,
    TopicReader,
    group_nearby,
)
from consumer.core.adapters.registry import Adapters
from consumer.core.message import TIMESTAMP_NOT_AVAILABLE, CapturedMessage, Headers, headers_of
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Pipeline
from consumer.core.records import Origin
from consumer.kafka.errors import ClusterError, KafkaFailureError
from consumer.settings.core_options import pipeline_options
from consumer.settings.settings import Settings
from consumer.telemetry.outcome_reporter import OutcomeReporter
from schemas import DeadLetter

REDRIVE_HEADER: Final = "acceptance-redrive"
"""Header of a message that was produced to its topic again: the id of its letter."""

_LETTERS_PER_BATCH: Final = 100  # Their messages are in memory at the same time.
_LEAD: Final = 640  # Messages from which the core knows stream time.
_MAX_BEFORE: Final = 2_000  # Messages: an earlier attempt rarely lies further behind.
_MAX_AFTER: Final = 100_000

T = TypeVar("T")


class RedriveMessage(Struct, frozen=True):
    """What to send for a letter.

    Attributes:
        topic: the topic to send it to.
        partition: the partition, or -1 to choose it by the key.
        timestamp: milliseconds since 1970, or 0 for the producer's clock.
        what: description for the operator.
        missing: the parts that could not be restored; None if it is complete.

    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    what: str
    missing: str | None = None


class SourceReader:
    """Reads the sources of letters again.

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
        self._partition_obstacles: dict[tuple[str, int], Obstacle | None] = {}

    def prepare(
        self, letters: Sequence[Letter], reporter: OutcomeReporter
    ) -> list[RedriveMessage | Obstacle]:
        """Return for each letter what to send, or why nothing can be sent.

        Args:
            letters: one of the `batches`; nearby sources are read at once.
            reporter: makes records into messages.

        Raises:
            ClusterError: no broker answers.
            KafkaFailureError: the cluster refuses to read.

        """
        results = self._results_of([one for one in letters if one.content.kind == "request"])
        messages = self.messages_of([one for one in letters if one.content.kind == "message"])
        return [
            self._prepare_message(letter.content, messages[letter.place])
            if letter.place in messages
            else self._prepare_record(letter.content, results[letter.place], reporter)
            for letter in letters
        ]

    def messages_of(
        self, letters: Sequence[Letter]
    ) -> dict[MessagePlace, RestoredMessage | Obstacle]:
        """Return the messages of letters by the places of the letters.

        A message comes from its source if that still exists, else from its letter.
        """
        sources = {
            place_of(one): one for one in self._reader.messages(one.source for one in letters)
        }
        found: dict[MessagePlace, RestoredMessage | Obstacle] = {}
        sourceless = []
        for letter in letters:
            source = sources.get(letter.source)
            if (
                source is not None
                and is_source(letter.content, source)
                and headers_of(source.headers) is not None
            ):
                found[letter.place] = RestoredMessage(source)
            else:
                found[letter.place] = Obstacle("the source message and the letter were deleted")
                sourceless.append(letter.place)
        for message in self._reader.messages(sourceless):
            found[place_of(message)] = restore(decode_letter(message))
        return found

    def messages_by_request(self, letters: Iterable[Letter]) -> dict[str, list[CapturedMessage]]:
        """Return the messages of letters' requests that still exist, by record id."""
        found: dict[str, list[CapturedMessage]] = {}
        for nearby in group_nearby((letter.content for letter in letters), _range_of):
            topic, partition, first, _ = _range_of(nearby[0])
            try:
                low, high = self._reader.bounds(topic, partition)
            except MissingTopicError:
                continue
            stop = min(max(one.source_last_offset for one in nearby) + 1, high)
            messages = self._reader.read(topic, partition, max(first, low), stop)
            found |= messages_by_request(self._pipeline(nearby[0].fleet), nearby, messages)
        return found

    def _prepare_message(
        self, letter: DeadLetter, found: RestoredMessage | Obstacle
    ) -> RedriveMessage | Obstacle:
        if isinstance(found, Obstacle):
            return found
        message = found.message
        obstacle = self._find_partition_obstacle(
            message.at_topic, message.at_partition
        ) or find_message_obstacle(self._pipeline(letter.fleet), message)
        if obstacle is not None:
            return obstacle
        return RedriveMessage(
            message.at_topic,
            message.at_partition,
            message.the_key,
            message.the_value,
            [
                *(one for one in message.the_headers or [] if one[0] != REDRIVE_HEADER),
                (REDRIVE_HEADER, letter.record_id.encode()),
            ],
            0 if message.timestamp_type == TIMESTAMP_NOT_AVAILABLE else message.timestamp_ms,
            "message to its input partition",
            found.missing,
        )

    def _find_partition_obstacle(self, topic: str, partition: int) -> Obstacle | None:
        """Return why a partition cannot take messages.

        A producer would wait for a missing topic, or the broker would create an empty one.
        """
        key = topic, partition
        if key not in self._partition_obstacles:
            try:
                self._reader.bounds(topic, partition)
            except MissingTopicError as error:
                self._partition_obstacles[key] = Obstacle(str(error))
            else:
                self._partition_obstacles[key] = None
        return self._partition_obstacles[key]

    def _prepare_record(
        self, letter: DeadLetter, result: RequestResult | Obstacle, reporter: OutcomeReporter
    ) -> RedriveMessage | Obstacle:
        if isinstance(result, Obstacle):
            return result
        record = result.record
        if record is None:
            return Obstacle(f"the outcome is still {outcome_text(result.outcome, result.reason)}")
        if record.record_id != letter.record_id:
            return Obstacle(f"another request begins at its source: {record.record_id}")
        origin = Origin(
            letter.fleet, letter.source_topic, letter.source_partition, self._settings.labels
        )
        [output] = reporter.report_request(result, origin)
        return RedriveMessage(
            self._settings.output_topic,
            -1,
            output.key,
            output.value,
            output.headers,
            output.timestamp,
            f"record of {record.engine}",
        )

    def _results_of(
        self, letters: Iterable[Letter]
    ) -> dict[MessagePlace, RequestResult | Obstacle]:
        """Return the outcomes of letters' requests by the places of the letters."""
        found: dict[MessagePlace, RequestResult | Obstacle] = {}
        by_fleet = defaultdict[str, list[Letter]](list)
        for letter in letters:
            by_fleet[letter.content.fleet].append(letter)
        for fleet, of_fleet in by_fleet.items():
            for nearby in group_nearby(of_fleet, lambda letter: _range_of(letter.content)):
                contents = [letter.content for letter in nearby]
                try:
                    results = self._reprocess_together(self._pipeline(fleet), contents)
                    for letter, content in zip(nearby, contents, strict=True):
                        result = results.get(content.record_id)
                        found[letter.place] = result or self._reprocess(content)
                except MissingTopicError as error:
                    found |= {letter.place: Obstacle(str(error)) for letter in nearby}
        return found

    def _reprocess_together(
        self, pipeline: Pipeline, letters: Sequence[DeadLetter]
    ) -> dict[str, RequestResult]:
        topic, partition, first, _ = _range_of(letters[0])
        low, high = self._reader.bounds(topic, partition)
        start = max(low, first - _LEAD)
        stop = min(high, max(one.source_last_offset for one in letters) + 1 + _MAX_AFTER)
        messages = self._reader.read(topic, partition, start, stop)
        return reprocess_together(pipeline, letters, messages)

    def _reprocess(self, letter: DeadLetter) -> RequestResult | Obstacle:
        """Return the outcome of one request, from more messages before it."""
        try:
            result = reprocess(self._pipeline(letter.fleet), letter, self._messages_around(letter))
        except (ClusterError, KafkaFailureError, KafkaException):
            raise
        except Exception as bug:  # noqa: BLE001 - perhaps the bug that crashed the service.
            return Obstacle(f"a message crashes the service: {type(bug).__name__}")
        return result or Obstacle("the source messages were deleted")

    def _messages_around(self, letter: DeadLetter) -> Iterable[CapturedMessage]:
        """Return the messages of a request, and some before it, where attempts are counted."""
        topic, partition, first, last = _range_of(letter)
        low, high = self._reader.bounds(topic, partition)
        if first < low:
            return ()
        start, stop = max(low, first - _MAX_BEFORE), min(high, last + 1 + _MAX_AFTER)
        return self._reader.read(topic, partition, start, stop)

    def _pipeline(self, fleet: str) -> Pipeline:
        if fleet not in self._pipelines:
            # Record ids contain the fleet's name of that time.
            settings = msgspec.structs.replace(self._settings, fleet=fleet)
            self._pipelines[fleet] = Pipeline(pipeline_options(settings, fleet), self._adapters)
        return self._pipelines[fleet]


def batches(items: Iterable[T], letter_of: Callable[[T], Letter]) -> Iterator[list[T]]:
    """Yield letters, or items with a letter each, sorted by source and a bounded number at once."""
    ordered = sorted(items, key=lambda item: letter_of(item).source)
    for at in range(0, len(ordered), _LETTERS_PER_BATCH):
        yield ordered[at : at + _LETTERS_PER_BATCH]


def _range_of(letter: DeadLetter) -> OffsetRange:
    return (
        letter.source_topic,
        letter.source_partition,
        letter.source_first_offset,
        letter.source_last_offset,
    )
