"""Dead letters: found, counted, and made into the messages that they are about."""

from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from consumer.core.checkpoint import Checkpoint
from consumer.core.dead_letters import MASKED, MAX_HEADER_BYTES, MAX_HEADERS, digest
from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
    Headers,
    Message,
    header_text,
)
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Partition, Pipeline
from consumer.core.response_event import Event
from consumer.core.stream_time import BlockState
from consumer.core.times import milliseconds
from schemas import BadPayloadReason, DeadLetter, SkipReason
from schemas.record import MAX_TEXT, SCHEMA_VERSION

REDRIVEN: Final = "redriven"
"""Header of a message without a value that says, by its id, which letter was redriven."""

MessagePlace = tuple[str, int, int]  # Topic, partition and offset.

_BATCH: Final = 256  # Messages.

_decode: Final = msgspec.json.Decoder(DeadLetter).decode


class Letter(Struct, frozen=True):
    """A dead letter without its payload, and where it lies.

    Attributes:
        content: the letter; value, headers and statistics are left out.
        place: where the letter itself is.
        written: when it was written, milliseconds since 1970, or -1.
        redriven: whether somebody has redriven it.

    """

    content: DeadLetter
    place: MessagePlace
    written: int
    redriven: bool = False

    @property
    def source(self) -> MessagePlace:
        """Where the message is that it is about, or the first one of the request."""
        content = self.content
        return content.source_topic, content.source_partition, content.source_first_offset

    def spans(self, place: MessagePlace) -> bool:
        """Tell whether a place is in the range of its request."""
        topic, partition, offset = place
        return (topic, partition) == self.source[:2] and (
            self.content.source_first_offset <= offset <= self.content.source_last_offset
        )


class Filter(Struct, frozen=True, kw_only=True):
    """Which letters are wanted; what is empty lets all pass. Times are those of the letters."""

    kind: str | None = None
    outcomes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    place: MessagePlace | None = None

    def admits(self, letter: Letter) -> bool:
        """Tell whether a letter is wanted."""
        content = letter.content
        return (
            self.kind in (None, content.kind)
            and (not self.outcomes or content.outcome in self.outcomes)
            and (not self.reasons or content.reason in self.reasons)
            and (self.since is None or letter.written >= self.since)
            and (self.until is None or letter.written < self.until)
            and self.place in (None, letter.place, letter.source)
        )


class Group(Struct):
    """Letters of one kind, outcome and reason.

    Attributes:
        count: how many there are.
        redriven: how many of them were redriven.
        first: when the first was written, milliseconds since 1970.
        last: when the last was written.
        example: source of the last one that was not redriven, else of the last.

    """

    kind: str
    outcome: str
    reason: str | None
    count: int
    redriven: int
    first: int
    last: int
    example: MessagePlace


class Letters:
    """The letters of a dead-letter topic.

    A letter that was written twice, as after a rewound group, is one: the last counts.

    Args:
        messages: messages of the topic; those of a partition in order.

    Attributes:
        foreign: how many of the messages are no dead letters.

    """

    def __init__(self, messages: Iterable[CapturedMessage]) -> None:
        self.foreign = 0
        self._letters: dict[str, Letter] = {}
        self._redriven: set[str | None] = set()
        for message in messages:
            self._take(message)

    def selected(self, wanted: Filter) -> list[Letter]:
        """Return the letters that are wanted, in the order in which they were written."""
        letters = [
            msgspec.structs.replace(letter, redriven=letter.content.record_id in self._redriven)
            for letter in self._letters.values()
            if wanted.admits(letter)
        ]
        return sorted(letters, key=lambda letter: (letter.written, letter.place))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._letters)

    def _take(self, message: CapturedMessage) -> None:
        if message.the_value is None:
            self._redriven |= {
                header_text(value) for name, value in message.the_headers or [] if name == REDRIVEN
            }
            return
        try:
            content = opened(message)
        except msgspec.MsgspecError:
            self.foreign += 1
            return
        light = msgspec.structs.replace(content, value_base64=None, headers=None, stats=None)
        place = (message.at_topic, message.at_partition, message.at_offset)
        self._letters[content.record_id] = Letter(light, place, message.timestamp_ms)


def opened(message: CapturedMessage) -> DeadLetter:
    """Return the letter in a message of the dead-letter topic.

    Raises:
        msgspec.MsgspecError: it is none, or one of another version.

    """
    try:
        letter = _decode(message.the_value or b"")
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
    if letter.schema_version != SCHEMA_VERSION:
        raise msgspec.ValidationError(f"schema version {letter.schema_version}")
    return letter


def grouped(letters: Iterable[Letter]) -> list[Group]:
    """Count letters by kind, outcome and reason; the most frequent come first."""
    groups: dict[tuple[str, str, str | None], Group] = {}
    for letter in letters:
        content = letter.content
        name = content.kind, content.outcome, content.reason
        group = groups.get(name)
        if group is None:
            group = Group(*name, 0, 0, letter.written, letter.written, letter.source)
            groups[name] = group
        if not letter.redriven or group.count == group.redriven:
            group.example = letter.source
        group.count += 1
        group.redriven += letter.redriven
        group.first = min(group.first, letter.written)
        group.last = max(group.last, letter.written)
    return sorted(groups.values(), key=lambda group: -group.count)


class Restored(Struct, frozen=True):
    """The message that a letter is about.

    Attributes:
        message: the message.
        lacks: what could not be restored, in words; None if nothing lacks.

    """

    message: CapturedMessage
    lacks: str | None = None


class Refused(Struct, frozen=True):
    """Why a letter is left alone."""

    reason: str


def is_of(letter: DeadLetter, source: CapturedMessage) -> bool:
    """Tell whether the message at a letter's coordinates is still the one it is about."""
    value = source.the_value or b""
    return len(value) == letter.size and digest(value) == letter.digest


def restored(letter: DeadLetter) -> Restored | Refused:
    """Return the message that a letter of kind `message` holds, or why it does not hold it."""
    if letter.truncated or letter.value_base64 is None:
        return Refused("the source is gone, and the letter does not hold all of its bytes")
    damaged = Refused("the source is gone, and its letter is damaged")
    lacks = [] if letter.headers is not None else ["the headers are not in the letter"]
    headers: Headers = []
    timestamp = milliseconds(letter.source_timestamp)
    try:
        key = None if letter.key_base64 is None else b64decode(letter.key_base64)
        value = b64decode(letter.value_base64)
        for name, text in letter.headers or []:
            if text == MASKED:
                lacks.append(f"the header {name} was masked")
            else:
                headers.append((name, None if text is None else b64decode(text)))
    except ValueError:
        return damaged
    if key is not None and len(key) >= MAX_TEXT:
        lacks.insert(0, "the key may be cut")
    if len(letter.headers or ()) >= MAX_HEADERS or any(
        len(text or "") >= MAX_HEADER_BYTES for _, text in headers
    ):
        lacks.append("the headers may be cut")
    message = CapturedMessage(
        at_topic=letter.source_topic,
        at_partition=letter.source_partition,
        at_offset=letter.source_first_offset,
        the_key=key,
        the_value=value,
        the_headers=headers,
        timestamp_type=TIMESTAMP_NOT_AVAILABLE if timestamp is None else TIMESTAMP_CREATE_TIME,
        timestamp_ms=-1 if timestamp is None else timestamp,
    )
    return Restored(message, "; ".join(lacks) or None) if is_of(letter, message) else damaged


def retold(
    pipeline: Pipeline, letter: DeadLetter, messages: Iterable[Message]
) -> RequestResult | None:
    """Return what becomes of a letter's request now; None if it is not among the messages.

    The way is that of a restart: the place of the request is listed as open, what lies before is
    only remembered.

    Args:
        pipeline: the core, with the adapters and settings of today.
        letter: a letter of kind `request`.
        messages: messages of its partition in order, from before its first one until after its
            last one; no more are taken than it takes.

    """
    place = (letter.source_first_offset, letter.source_index or 0)
    partition = None
    for message in messages:
        if partition is None:
            start = BlockState(min(message.offset() or 0, place[0]))
            checkpoint = Checkpoint(place[0] + 1, 0, pipeline.settings_digest, start, open=(place,))
            partition = pipeline.resume(letter.source_topic, letter.source_partition, checkpoint)
        partition.feed(message)
        for result in partition.drain():
            if result.response.place == place:
                return result
    if partition is None:
        return None
    partition.close_all()
    return next((one for one in partition.drain() if one.response.place == place), None)


def retold_together(
    pipeline: Pipeline, letters: Sequence[DeadLetter], messages: Iterable[CapturedMessage]
) -> dict[str, RequestResult]:
    """Return by record id what becomes of the requests of many letters, in one pass.

    The way is that of a service that begins at the first message. What it could not know of what
    lies before may leave a request out, for which `retold` is to be asked.

    Args:
        pipeline: the core, with the adapters and settings of today.
        letters: letters of kind `request`, all of one partition.
        messages: its messages in order; hardly more are taken than it takes.

    """
    wanted = {(one.source_first_offset, one.source_index or 0): one.record_id for one in letters}
    last = max(one.source_last_offset for one in letters)
    found: dict[str, RequestResult] = {}
    left = iter(messages)
    partition = None
    while some := list(islice(left, _BATCH)):
        if partition is None:
            topic, number = letters[0].source_topic, letters[0].source_partition
            partition = pipeline.partition(topic, number, some[0].at_offset)
        try:
            partition.feed_all(some)
        except Exception:  # noqa: BLE001 - `retold` finds out whose fault it is.
            return found
        found |= _of_wanted(partition, wanted)
        if some[-1].at_offset >= last and wanted.keys().isdisjoint(partition.checkpoint(0).open):
            return found
    if partition is not None:
        partition.close_all()
        found |= _of_wanted(partition, wanted)
    return found


def _of_wanted(
    partition: Partition, wanted: Mapping[tuple[int, int], str]
) -> dict[str, RequestResult]:
    """Drain a partition; return the results of what began at these places, if they are the same."""
    results = {wanted.get(result.response.place): result for result in partition.drain()}
    return {
        record_id: result
        for record_id, result in results.items()
        if record_id is not None and (result.record is None or result.record.record_id == record_id)
    }


def parts_of(
    pipeline: Pipeline, letters: Iterable[DeadLetter], messages: Iterable[CapturedMessage]
) -> dict[str, list[CapturedMessage]]:
    """Return by record id those of the messages of letters' ranges that belong to their requests.

    Args:
        pipeline: the core.
        letters: letters of kind `request`, all of one partition.
        messages: the messages from the first one to the last one of all.

    """
    beginning = defaultdict[int, list[DeadLetter]](list)
    going_on = defaultdict[tuple[str, str | None] | None, list[DeadLetter]](list)
    parts: dict[str, list[CapturedMessage]] = {}
    for letter in letters:
        beginning[letter.source_first_offset].append(letter)
        parts[letter.record_id] = []
    for message in messages:
        _, opened_now = pipeline.recogniser.open(message)
        events = opened_now if isinstance(opened_now, list) else [opened_now]
        keys = [
            (event.source, event.request_id) if isinstance(event, Event) else None
            for event in events
        ]
        for key in {key for key in keys if key in going_on}:
            for letter in going_on[key]:
                if message.at_offset <= letter.source_last_offset:
                    parts[letter.record_id].append(message)
        for letter in beginning.get(message.at_offset, ()):
            parts[letter.record_id].append(message)
            index = letter.source_index or 0
            if index < len(keys) and (key := keys[index]) is not None:
                going_on[key].append(letter)
    return parts


def refusal(pipeline: Pipeline, message: CapturedMessage) -> str | None:
    """Return why a message would be a dead letter again, or None."""
    partition = pipeline.partition(message.at_topic, message.at_partition, message.at_offset)
    try:
        result = partition.feed(message)
    except Exception as bug:  # noqa: BLE001 - it may be the very one that brought the service down.
        return f"it brings the service down: {type(bug).__name__}"
    if isinstance(result.reason, BadPayloadReason):
        return f"still {result.outcome}({result.reason})"
    if result.reason is SkipReason.SKIPPED_BY_OPERATOR:
        return "the setting skip names it"
    return None
