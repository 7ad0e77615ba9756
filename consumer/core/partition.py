"""The core composed: the messages of one partition in, outcomes out. No I/O, no clock.

The same messages give the same outcomes, byte for byte, in the service, in a replay and in a test.

The path of a message: `feed_all` asks the envelopes for content that it hands to
`fold_run`; `feed` asks them for events that it hands to the reassembler; `drain` takes finished
responses from the reassembler and decides their outcomes.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from consumer.core.adapters.registry import Adapters
from consumer.core.adapters.smg import SmgAdapter
from consumer.core.adapters.unsupported import known_places
from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.documents import DocumentReader
from consumer.core.checkpoint import Checkpoint, settings_digest
from consumer.core.envelopes.opener import Opener
from consumer.core.message import EventPlace, Message
from consumer.core.outcomes import RequestResult, decide_outcome
from consumer.core.reassembly.attempt import Arrival
from consumer.core.reassembly.content_run import fold_run
from consumer.core.reassembly.limits import Limits
from consumer.core.reassembly.reassembler import Reassembler
from consumer.core.reassembly.response import Response
from consumer.core.records import Origin
from consumer.core.response_event import BadEvent, Content, Event, Opened
from consumer.core.stream_time import BlockState, StreamTime
from consumer.core.times import event_time
from schemas import BadPayloadReason, IncompleteReason, MessageOutcome, OddMember, SkipReason

# After so many misses the next message is probably not content either: then only one in
# `_TRY_EVERY` is tried on the short path.
_MAX_MISSES: Final = 4
_TRY_EVERY: Final = 8
STATE_VERSION: Final = 5  # Raise it when the same events lead to a different state.


class MessageResult(Struct, frozen=True, gc=False):
    """The one outcome of a message.

    Attributes:
        outcome: whether it was accepted.
        reason: why it was not.
        detail: what exactly is wrong with it.
        request_id: of a message that is bad, where it could be read.
        envelope: the envelope that it came in.
        odd: optional members of its events of which a value was ignored.

    """

    outcome: MessageOutcome
    reason: SkipReason | BadPayloadReason | None = None
    detail: str | None = None
    request_id: str | None = None
    envelope: str = "unknown"
    odd: Sequence[OddMember] = ()


class FeedResult(Struct):
    """What became of messages that were fed together; re-read messages are not in here.

    Attributes:
        fed: number of messages that were read or passed over; the rest was not reached in time.
        accepted: number of accepted messages by envelope.
        repeated: number of messages below the position, which were passed over.
        not_accepted: messages that were skipped or are bad, each with its outcome.
        odd: how often a value of an optional member was ignored, by envelope and member.

    """

    fed: int
    accepted: defaultdict[str, int]
    repeated: int
    not_accepted: list[tuple[Message, MessageResult]]
    odd: defaultdict[tuple[str, OddMember], int]

    def add(self, message: Message, result: MessageResult) -> None:
        """Count a message that was read."""
        if result.outcome is _ACCEPTED:
            self.accepted[result.envelope] += 1
        else:
            self.not_accepted.append((message, result))
        for member in result.odd:
            self.odd[result.envelope, member] += 1


_ACCEPTED: Final = MessageOutcome.ACCEPTED  # Not looked up for each event: see CONTRIBUTING.md.
_BAD_PAYLOAD: Final = MessageOutcome.BAD_PAYLOAD
_SKIPPED: Final = MessageOutcome.SKIPPED
_BY_OPERATOR: Final = MessageResult(_SKIPPED, SkipReason.SKIPPED_BY_OPERATOR)


PredictionTokens = Literal["ignore", "drafts"]


class Options(Struct, frozen=True, kw_only=True):
    """Settings of the core, with the defaults.

    Attributes:
        fleet: name of the fleet, a part of every record id.
        labels: labels of all records.
        envelope: the only envelope to try, or `auto`.
        paths: where home-made events keep the members of a native event.
        response_types: types of CloudEvents that carry a response.
        label_attributes: extension attributes of CloudEvents that become labels.
        prediction_tokens: whether the prediction tokens in `usage` are drafts, as smg writes them.
        max_stats_bytes: maximum bytes of the statistics at one place.
        limits: bounds of the state.
        skip: topic, partition and offset of messages to skip.

    """

    fleet: str = "local"
    labels: Mapping[str, str] = {}
    envelope: str = "auto"
    paths: Mapping[str, str] = {}
    response_types: tuple[str, ...] = ("org.kubeflow.serving.inference.response",)
    label_attributes: tuple[str, ...] = ("inferenceservicename", "namespace", "component")
    prediction_tokens: PredictionTokens = "ignore"
    max_stats_bytes: int = 1 << 20
    limits: Limits = Limits()
    skip: frozenset[tuple[str, int, int]] = frozenset()


class Pipeline:
    """What all partitions share: decoders, adapters, settings.

    Args:
        options: settings of the core.
        adapters: engine adapters.

    """

    def __init__(self, options: Options, adapters: Adapters) -> None:
        if options.prediction_tokens == "drafts":
            adapters = (*adapters, SmgAdapter)
        self.options = options
        self.adapters = adapters
        self.body_reader = BodyReader(
            DocumentReader(known_places(adapters), options.limits.max_choices),
            options.max_stats_bytes,
        )
        self.opener = Opener(
            self.body_reader,
            envelope=options.envelope,
            response_types=options.response_types,
            label_attributes=options.label_attributes,
            max_inflated_bytes=options.limits.max_inflated_bytes,
            max_entries=options.limits.max_entries,
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
        """Return a partition that rebuilds its state when fed from the checkpoint's start on."""
        return Partition(self, topic, partition, checkpoint.position, checkpoint)


def _never(_: Message) -> bool:
    return False


class Partition:
    """One partition, which is fed messages in order, and from which outcomes are drained.

    Attributes:
        origin: what all records and letters of the partition have in common.
        position: next offset to read, which is the offset to commit.
        resumed_at: position at which re-reading ends.
        ended_in_reread: number of requests that the checkpoint lists as open and that ended before
            its position when they were re-read; 0 as long as settings and log are the same.

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
        self._open_message = pipeline.opener.open
        self._contents = pipeline.opener.contents
        listed = checkpoint.open if checkpoint is not None else None
        start = checkpoint.start if checkpoint else BlockState(position)
        self._time = StreamTime(start)
        self.position = start.offset if checkpoint is not None else position
        self._reassembler = Reassembler(pipeline.body_reader, options.limits, listed)
        self._not_found: list[EventPlace] = []
        self._skip = {
            offset for at, number, offset in options.skip if (at, number) == (topic, partition)
        }
        self.ended_in_reread = 0
        if checkpoint is not None and start.offset >= position:
            self.go_live()

    @property
    def live(self) -> bool:
        """Whether outcomes are reported: not while re-reading."""
        return self._reassembler.live

    @property
    def open_requests(self) -> int:
        """Return how many requests are open.

        While re-reading, it leaves out the requests that the checkpoint lists as open.
        """
        return self._reassembler.index.open_count

    @property
    def oldest_open_age(self) -> float:
        """Return the seconds of stream time since the oldest open request began; 0.0 if none is."""
        began = self._reassembler.index.oldest_open_began_ms
        return 0.0 if began is None else (self._time.now - began) / 1000

    @property
    def possible_repeats(self) -> int:
        """Return the number of whole responses that may repeat one from before a restart."""
        return self._reassembler.repeats.possible_repeats

    def feed(self, message: Message) -> MessageResult:
        """Read the next message of the partition."""
        return self._feed(message, message.offset() or 0)

    def _feed(self, message: Message, offset: int) -> MessageResult:
        time, reassembler = self._time, self._reassembler
        if not reassembler.live and offset >= self.resumed_at:
            self.go_live()
        stamp = message.timestamp()
        if time.observe(offset, stamp):
            reassembler.advance(time.now, time.start.offset)
        self.position = offset + 1
        if self._skip and offset in self._skip:
            return _BY_OPERATOR
        timestamp = stamp[1] if stamp[0] else -1
        try:
            envelope, opened = self._open_message(message)
            if isinstance(opened, list):
                results = [
                    self._add(entry, envelope, message, (offset, index), timestamp)
                    for index, entry in enumerate(opened)
                ]
                return _combined(results)
            return self._add(opened, envelope, message, (offset, 0), timestamp)
        except Exception as bug:
            self._name_message(bug, offset)
            raise

    def _name_message(self, bug: Exception, offset: int) -> None:
        """Add to an exception which message raised it, and how the operator passes over it."""
        place = f"{self.origin.topic}:{self.origin.partition}:{offset}"
        bug.add_note(f"at {place}; to pass over this message, add {place!r} to skip")

    def feed_all(
        self, messages: Sequence[Message], is_over: Callable[[Message], bool] = _never
    ) -> FeedResult:
        """Read the next messages of the partition, as `feed` would one after the other.

        Messages below the position, as after a seek, are passed over.

        Args:
            messages: the messages.
            is_over: called after each message that may have taken long; whether to stop there.

        """
        result = FeedResult(0, defaultdict(int), 0, [], defaultdict(int))
        reassembler = self._reassembler
        contents: Iterator[Content] = iter(())
        at = end = misses = 0  # Contents are of the messages from `at` up to `end`.
        while at < len(messages):
            message = messages[at]
            offset = message.offset() or 0
            if offset < self.position:
                result.repeated += 1
                at += 1
                continue
            if at >= end and (misses < _MAX_MISSES or not at % _TRY_EVERY):
                run = self._content_run(messages, at, offset, at_most_one=misses >= _MAX_MISSES)
                contents, end = self._contents(run), at + len(run)
            if at < end and (folded := self._fold_run(contents, messages, at, offset)):
                if reassembler.live:
                    result.accepted["native"] += folded
                at, misses = at + folded, 0
                if at == end:
                    continue
                message, offset = messages[at], offset + folded
            fed = self._feed(message, offset)
            at, misses = at + 1, misses + 1
            end = at if misses >= _MAX_MISSES else end
            if reassembler.live:
                if fed.outcome is _ACCEPTED and not fed.odd:
                    result.accepted[fed.envelope] += 1
                else:
                    result.add(message, fed)
            if is_over(message):
                break
        result.fed = at
        return result

    def _fold_run(
        self, contents: Iterator[Content], messages: Sequence[Message], at: int, offset: int
    ) -> int:
        """Fold contents, of the messages from an index on; return how many were folded."""
        block, latest = self._time.start, self._reassembler.index.latest
        try:
            folded = fold_run(contents, messages, at, offset, block, latest)
        except Exception as bug:
            # With any message of the partition to skip, `feed` reads all and names the right one.
            self._name_message(bug, offset)
            raise
        if folded:
            self._time.observe_all(messages[at : at + folded])
            self.position = offset + folded
        return folded

    def _content_run(
        self, messages: Sequence[Message], at: int, offset: int, *, at_most_one: bool
    ) -> Sequence[Message]:
        """Return the messages from an index on that may be content: consecutive, in one block.

        Args:
            messages: messages of the partition.
            at: index of the first message.
            offset: its offset.
            at_most_one: whether more than one would probably be looked at in vain.

        """
        if self._skip:
            return ()
        reassembler, time = self._reassembler, self._time
        end = offset + 1 if at_most_one else sys.maxsize
        if not reassembler.live:
            # `feed` reads the start of a listed request, and ends re-reading.
            end = min(end, self.resumed_at, reassembler.next_listed(offset))
            if end <= offset:
                return ()
        if time.enter(offset):
            reassembler.advance(time.now, time.start.offset)
        run = messages[at : at + min(time.end, end) - offset]
        if (run[-1].offset() or 0) - offset != len(run) - 1:
            run = _consecutive(run, offset)  # Offsets are missing, as on a compacted topic.
        return run

    def go_live(self) -> None:
        """End re-reading, since the committed position has been reached."""
        if self._reassembler.live:
            return
        self.position = max(self.position, self.resumed_at)
        self._not_found = self._reassembler.go_live(self._time.now, self._time.start.offset)
        self.ended_in_reread = self._reassembler.finished_count + len(self._not_found)

    def close_silent(self) -> None:
        """Close all open requests, since by the wall clock no message has arrived for too long."""
        self._reassembler.close_all(IncompleteReason.PARTITION_SILENT)

    def close_all(self) -> None:
        """Close all open requests as idle: the capture has ended, or the topic was recreated."""
        self.go_live()
        self._reassembler.close_all(IncompleteReason.IDLE_TIMEOUT)

    def drain(self) -> list[RequestResult]:
        """Return the outcomes of requests since the last call, in order."""
        reassembler = self._reassembler
        if not reassembler.live or not (reassembler.finished_count or self._not_found):
            return []
        responses = [*map(self._response_not_found, self._not_found), *reassembler.pop_finished()]
        self._not_found.clear()
        adapters, origin = self._pipeline.adapters, self.origin
        return [decide_outcome(response, adapters, origin) for response in responses]

    def _response_not_found(self, place: EventPlace) -> Response:
        """Return the response of a listed request whose first event is gone."""
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
        """Return the checkpoint to commit with the position, for a topic of this hash."""
        return Checkpoint(
            self.position,
            topic,
            self._pipeline.settings_digest,
            self._reassembler.index.start or self._time.start,
            self._reassembler.index.open_places(),
        )

    def _add(
        self,
        opened: Opened,
        envelope: str,
        message: Message,
        place: EventPlace,
        timestamp: int,
    ) -> MessageResult:
        if isinstance(opened, Event):
            if opened.time is None:
                opened.time = event_time(timestamp)
            arrival = Arrival(place, timestamp, self._time.start, message.headers)
            refused = self._reassembler.add(opened, arrival)
            if refused is None:
                return MessageResult(_ACCEPTED, envelope=envelope, odd=opened.odd)
            outcome = _SKIPPED if isinstance(refused, SkipReason) else _BAD_PAYLOAD
            return MessageResult(outcome, refused, None, opened.request_id, envelope, opened.odd)
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


def _combined(results: list[MessageResult]) -> MessageResult:
    """Return the outcome of a message with several events.

    It is bad if any is bad, else accepted if any is accepted, else the first.
    """
    odd = [member for result in results for member in result.odd]
    for outcome in (_BAD_PAYLOAD, _ACCEPTED):
        for result in results:
            if result.outcome is outcome:
                return replace(result, odd=odd) if odd else result
    return replace(results[0], odd=odd) if odd else results[0]
