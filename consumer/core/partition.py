"""The core composed: the messages of one partition in, outcomes out. No I/O, no clock.

The same messages give the same outcomes, byte for byte, whoever feeds them: the service, a replay,
a test.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from consumer.core.adapters.registry import Adapters, places_of
from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.documents import DocumentReader
from consumer.core.checkpoint import Checkpoint, settings_digest
from consumer.core.envelopes.recognise import Envelope, EnvelopeName, Recogniser
from consumer.core.message import EventPlace, Message
from consumer.core.outcomes import RequestResult, decide_outcome
from consumer.core.reassembly.limits import Limits
from consumer.core.reassembly.reassembler import Arrival, Reassembler
from consumer.core.reassembly.response import Response
from consumer.core.records import Origin
from consumer.core.response_event import BadEvent, Event, Opened
from consumer.core.stream_time import BlockState, StreamTime
from consumer.core.times import milliseconds
from schemas import BadPayloadReason, IncompleteReason, MessageOutcome, SkipReason

_PATIENCE: Final = 4  # After so many misses in a row, only one in as many is tried.
STATE_VERSION: Final = 2  # Of how events make state; a change makes old checkpoints count as such.


class MessageResult(Struct, frozen=True, gc=False):
    """The one outcome of a message, and the envelope that it came in.

    Attributes:
        request_id: of a message that is bad, where it could be read.

    """

    outcome: MessageOutcome
    reason: SkipReason | BadPayloadReason | None = None
    detail: str | None = None
    request_id: str | None = None
    envelope: Envelope = "unknown"


class FeedResult(Struct, frozen=True):
    """What became of messages that were fed together; re-read messages are not in here.

    Attributes:
        accepted: number of accepted messages by envelope.
        repeated: number of messages below the position, which were passed over.
        not_accepted: messages that were skipped or are bad, each with its outcome.

    """

    accepted: Mapping[Envelope, int]
    repeated: int
    not_accepted: list[tuple[Message, MessageResult]]


_ACCEPTED: Final = MessageOutcome.ACCEPTED  # Dear to look up (CPython 3.11).
_BAD_PAYLOAD: Final = MessageOutcome.BAD_PAYLOAD
_SKIPPED: Final = MessageOutcome.SKIPPED
_BY_OPERATOR: Final = MessageResult(_SKIPPED, SkipReason.SKIPPED_BY_OPERATOR)


class Options(Struct, frozen=True, kw_only=True):
    """Settings of the core."""

    fleet: str = "local"
    labels: Mapping[str, str] = {}
    envelope: EnvelopeName = "auto"
    paths: Mapping[str, str] = {}
    response_types: tuple[str, ...] = ("org.kubeflow.serving.inference.response",)
    label_attributes: tuple[str, ...] = ("inferenceservicename", "namespace", "component")
    max_stats_bytes: int = 1 << 20
    limits: Limits = Limits()
    skip: frozenset[tuple[str, int, int]] = frozenset()  # Topic, partition and offset.


class Pipeline:
    """What all partitions share: decoders, adapters, settings.

    Args:
        options: settings of the core.
        adapters: engine adapters.

    """

    def __init__(self, options: Options, adapters: Adapters) -> None:
        self.options = options
        self.adapters = adapters
        self.body_reader = BodyReader(DocumentReader(places_of(adapters)), options.max_stats_bytes)
        self.recogniser = Recogniser(
            self.body_reader,
            envelope=options.envelope,
            response_types=options.response_types,
            label_attributes=options.label_attributes,
            max_inflated_bytes=options.limits.max_inflated_bytes,
            paths=options.paths,
        )
        self.settings_digest = settings_digest(
            STATE_VERSION,
            options.envelope,
            sorted(options.paths.items()),
            options.response_types,
            options.limits,
            sorted(adapter.engine for adapter in adapters),
            sorted(options.skip),
        )

    def partition(self, topic: str, partition: int, position: int) -> "Partition":
        """Return a partition without history, whose first message is at a position or above."""
        return Partition(self, topic, partition, position, None)

    def resume(self, topic: str, partition: int, checkpoint: Checkpoint) -> "Partition":
        """Return a partition that finds its state again: feed it from the checkpoint's start."""
        return Partition(self, topic, partition, checkpoint.position, checkpoint)


class Partition:
    """One partition: feed it messages in order, drain what became of requests.

    Attributes:
        position: next offset to read; what is committed.
        ended_in_reread: how many requests that were open at the committed position ended before
            it when they were read again; none does where neither settings nor the log have changed.

    """

    def __init__(
        self,
        pipeline: Pipeline,
        topic: str,
        partition: int,
        position: int,
        checkpoint: Checkpoint | None,
    ) -> None:
        options = pipeline.options
        self.origin = Origin(options.fleet, topic, partition, dict(options.labels))
        self.resumed_at = position
        self._pipeline = pipeline
        self._open_message = pipeline.recogniser.open
        self._decode_content = pipeline.recogniser.decode_content
        listed = checkpoint.open if checkpoint is not None else None
        start = checkpoint.start if checkpoint else BlockState(position)
        self._time = StreamTime(start)
        self.position = start.offset if checkpoint is not None else position
        self._reassembly = Reassembler(pipeline.body_reader, options.limits, listed)
        self._unmet: list[EventPlace] = []
        self._skip = {
            offset for at, number, offset in options.skip if (at, number) == (topic, partition)
        }
        self.ended_in_reread = 0
        if checkpoint is not None and start.offset >= position:
            self.go_live()

    @property
    def live(self) -> bool:
        """Whether outcomes are told."""
        return self._reassembly.live

    @property
    def open_requests(self) -> int:
        """Return how many requests are open."""
        return self._reassembly.open_count

    @property
    def oldest_open_age(self) -> float:
        """Return the seconds of stream time since the oldest open request began; 0.0 if none is."""
        now, began = self._time.now, self._reassembly.oldest_open
        return 0.0 if now is None or began is None else (now - began) / 1000

    @property
    def possible_repeats(self) -> int:
        """Return how many whole responses may repeat ones that a restart has forgotten."""
        return self._reassembly.possible_repeats

    def feed(self, message: Message) -> MessageResult:
        """Take the next message of the partition."""
        offset, time, reassembly = message.offset() or 0, self._time, self._reassembly
        if not reassembly.live and offset >= self.resumed_at:
            self.go_live()
        stamp = message.timestamp()
        if time.observe(offset, stamp):
            reassembly.advance(time.now, time.start.offset)
        self.position = offset + 1
        if self._skip and offset in self._skip:
            return _BY_OPERATOR
        envelope, opened = self._open_message(message)
        timestamp = stamp[1] if stamp[0] else -1
        if isinstance(opened, list):
            results = [
                self._take(entry, envelope, message, (offset, index), timestamp)
                for index, entry in enumerate(opened)
            ]
            return _worst(results)
        return self._take(opened, envelope, message, (offset, 0), timestamp)

    def feed_all(self, messages: Sequence[Message]) -> FeedResult:
        """Take the next messages of the partition, as `feed` would one after the other.

        Messages below the position, as after a seek, are passed over.
        """
        accepted, not_accepted = (
            defaultdict[Envelope, int](int),
            list[tuple[Message, MessageResult]](),
        )
        at = missed = repeated = 0
        odd = False
        while at < len(messages):
            message = messages[at]
            offset = message.offset() or 0
            try:
                if offset < self.position:
                    repeated, at = repeated + 1, at + 1
                elif not odd and (missed < _PATIENCE or not at % _PATIENCE):
                    taken, odd = self._follow(messages, at, offset)
                    if self._reassembly.live and taken:
                        accepted["native"] += taken
                    at, missed = at + taken, 0 if taken else missed
                else:
                    at, missed, odd = at + 1, missed + 1, False
                    result = self.feed(message)
                    if not self._reassembly.live:
                        continue
                    if result.outcome is _ACCEPTED:
                        accepted[result.envelope] += 1
                    else:
                        not_accepted.append((message, result))
            except Exception as bug:
                place = f"{self.origin.topic}:{self.origin.partition}:{offset}"
                bug.add_note(f"at {place}; to pass over this message, add {place!r} to skip")
                raise
        return FeedResult(accepted, repeated, not_accepted)

    def _follow(self, messages: Sequence[Message], at: int, offset: int) -> tuple[int, bool]:
        """Take the next content of open streams, up to the end of the block.

        Returns:
            how many messages were taken, and whether the next one is for `feed`.

        """
        reassembly, time = self._reassembly, self._time
        if self._decode_content is None or self._skip:
            return 0, True
        most = len(messages)
        if not reassembly.live:
            # What the list says of a place, and the end of the stretch, are for `feed`.
            most = min(self.resumed_at, reassembly.next_listed(offset)) - offset
            if most <= 0:
                return 0, True
        if time.enter(offset):
            reassembly.advance(time.now, time.start.offset)
        run = messages[at : at + min(time.end - offset, most)]
        if (run[-1].offset() or 0) - offset != len(run) - 1:
            run = _consecutive(run, offset)  # Offsets are missing, as on a compacted topic.
        taken = reassembly.follow(run, offset, time.start, self._decode_content, _time_of)
        if taken:
            time.note([message.timestamp() for message in run[:taken]])
            self.position = offset + taken
        return taken, taken < len(run)

    def go_live(self) -> None:
        """Leave re-reading: the position that was committed has been reached."""
        if self._reassembly.live:
            return
        self.position = max(self.position, self.resumed_at)
        self._unmet = self._reassembly.go_live(self._time.now, self._time.start.offset)
        self.ended_in_reread = len(self._reassembly.told) + len(self._unmet)

    def close_silent(self) -> None:
        """Close all open requests, since nothing has come for too long by the wall clock."""
        self._reassembly.close_silent()

    def close_all(self) -> None:
        """Close all open requests, since nothing more will come."""
        self.go_live()
        self._reassembly.close_all()

    def drain(self) -> list[RequestResult]:
        """Return the outcomes of requests since the last call, in order."""
        reassembly = self._reassembly
        if not reassembly.live or not (reassembly.told or self._unmet):
            return []
        responses = [*map(self._unmet_response, self._unmet), *reassembly.told]
        reassembly.told.clear()
        self._unmet.clear()
        adapters, origin = self._pipeline.adapters, self.origin
        return [decide_outcome(response, adapters, origin) for response in responses]

    def _unmet_response(self, place: EventPlace) -> Response:
        """Stand for a request that was open, and whose first event is gone."""
        skipped = place[0] in self._skip
        return Response(
            source="",
            request_id=None,
            attempt=0,
            place=place,
            last_offset=place[0],
            timestamp=-1,
            started=None,
            completed=None,
            context=None,
            facts=None,
            incomplete=IncompleteReason.FIRST_SKIPPED if skipped else IncompleteReason.RETENTION,
        )

    def checkpoint(self, topic: int) -> Checkpoint:
        """Return what to commit beside the position, for a topic of this hash."""
        return Checkpoint(
            self.position,
            topic,
            self._pipeline.settings_digest,
            self._reassembly.start or self._time.start,
            self._reassembly.open_places(),
        )

    def _take(
        self,
        opened: Opened,
        envelope: Envelope,
        message: Message,
        place: EventPlace,
        timestamp: int,
    ) -> MessageResult:
        if isinstance(opened, Event):
            if opened.time is None:
                opened.time = milliseconds(timestamp)
            arrival = Arrival(place, timestamp, self._time.start, message.headers)
            refused = self._reassembly.take(opened, arrival)
            if refused is None:
                return MessageResult(_ACCEPTED, envelope=envelope)
            outcome = _SKIPPED if isinstance(refused, SkipReason) else _BAD_PAYLOAD
            return MessageResult(outcome, refused, None, opened.request_id, envelope)
        if isinstance(opened, BadEvent):
            return MessageResult(
                _BAD_PAYLOAD, opened.reason, opened.detail, opened.request_id, envelope
            )
        return MessageResult(_SKIPPED, opened, envelope=envelope)


def _consecutive(messages: Sequence[Message], offset: int) -> Sequence[Message]:
    """Return the messages before the first offset that is missing."""
    for count, message in enumerate(messages):
        if message.offset() != offset + count:
            return messages[:count]
    return messages


def _time_of(stated: str | int | None, message: Message) -> int | None:
    """Return the time of an event that does not state it as a number."""
    time = milliseconds(stated)
    if time is not None:
        return time
    kind, stamp = message.timestamp()
    return milliseconds(stamp if kind else -1)


def _worst(results: list[MessageResult]) -> MessageResult:
    """Return the outcome of a message of several events: bad if one is, accepted if one is."""
    for outcome in (_BAD_PAYLOAD, _ACCEPTED):
        for result in results:
            if result.outcome is outcome:
                return result
    return results[0]
