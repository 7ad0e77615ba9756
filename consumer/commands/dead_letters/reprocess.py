"""What the core makes today of the messages that dead letters are about. Pure, as the core is."""

from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from consumer.commands.terminal import outcome_text
from consumer.core.checkpoint import Checkpoint
from consumer.core.dead_letters import MASKED, MAX_HEADER_BYTES, MAX_HEADERS, digest
from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
    EventPlace,
    Headers,
    Message,
)
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Partition, Pipeline
from consumer.core.response_event import Event
from consumer.core.stream_time import BlockState
from consumer.core.times import milliseconds
from schemas import BadPayloadReason, DeadLetter, SkipReason
from schemas.record import MAX_TEXT

_BATCH: Final = 256  # Messages.


class RestoredMessage(Struct, frozen=True):
    """The message that a letter is about.

    Attributes:
        message: the message.
        missing: the parts that could not be restored, in words; None if it is complete.

    """

    message: CapturedMessage
    missing: str | None = None


class Obstacle(Struct, frozen=True):
    """Why a letter cannot be captured or redriven."""

    reason: str


def is_source(letter: DeadLetter, message: CapturedMessage) -> bool:
    """Return whether the message at a letter's source is still the one that the letter is about."""
    value = message.the_value or b""
    return len(value) == letter.size and digest(value) == letter.digest


def restore(letter: DeadLetter) -> RestoredMessage | Obstacle:
    """Return the message that a letter of kind `message` holds, or why it does not hold it."""
    if letter.truncated or letter.value_base64 is None:
        return Obstacle(
            "the source message was deleted, and the letter does not hold all of its bytes"
        )
    damaged = Obstacle("the source message was deleted, and the letter is damaged")
    missing = [] if letter.headers is not None else ["the letter does not hold the headers"]
    headers: Headers = []
    timestamp = milliseconds(letter.source_timestamp)
    try:
        key = None if letter.key_base64 is None else b64decode(letter.key_base64)
        value = b64decode(letter.value_base64)
        for name, text in letter.headers or []:
            if text == MASKED:
                missing.append(f"the header {name} was masked")
            else:
                headers.append((name, None if text is None else b64decode(text)))
    except ValueError:
        return damaged
    if key is not None and len(key) >= MAX_TEXT:
        missing.insert(0, "the key may be truncated")
    if len(letter.headers or ()) >= MAX_HEADERS or any(
        len(text or "") >= MAX_HEADER_BYTES for _, text in headers
    ):
        missing.append("the headers may be truncated")
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
    if not is_source(letter, message):
        return damaged
    return RestoredMessage(message, "; ".join(missing) or None)


def find_message_obstacle(pipeline: Pipeline, message: CapturedMessage) -> Obstacle | None:
    """Return why a message would become a dead letter again; None if it would not."""
    partition = pipeline.partition(message.at_topic, message.at_partition, message.at_offset)
    try:
        result = partition.feed(message)
    except Exception as bug:  # noqa: BLE001 - perhaps the bug for which the operator skipped it.
        return Obstacle(f"the message crashes the service: {type(bug).__name__}")
    if isinstance(result.reason, BadPayloadReason):
        return Obstacle(f"the outcome is still {outcome_text(result.outcome, result.reason)}")
    if result.reason is SkipReason.SKIPPED_BY_OPERATOR:
        return Obstacle("the setting skip names the message")
    return None


def reprocess(
    pipeline: Pipeline, letter: DeadLetter, messages: Iterable[Message]
) -> RequestResult | None:
    """Return the outcome of a letter's request now; None if the messages do not contain it.

    The partition starts as after a restart: its checkpoint lists the request as open, and the core
    only remembers what lies before it.

    Args:
        pipeline: the core, with the adapters and settings of today.
        letter: a letter of kind `request`.
        messages: messages of its partition in order, from before its first one until after its
            last one; reading stops when the request ends.

    """
    place = _first_event(letter)
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


def reprocess_together(
    pipeline: Pipeline, letters: Sequence[DeadLetter], messages: Iterable[CapturedMessage]
) -> dict[str, RequestResult]:
    """Return the outcomes of many letters' requests by record id, from one pass.

    The partition starts at the first message without history. A request whose outcome depends on
    earlier messages may be left out: ask `reprocess` for it.

    Args:
        pipeline: the core, with the adapters and settings of today.
        letters: letters of kind `request`, all of one partition.
        messages: its messages in order; reading stops soon after the last request ends.

    """
    record_ids = {_first_event(letter): letter.record_id for letter in letters}
    last = max(letter.source_last_offset for letter in letters)
    found: dict[str, RequestResult] = {}
    remaining = iter(messages)
    partition = None
    while batch := list(islice(remaining, _BATCH)):
        if partition is None:
            topic, number = letters[0].source_topic, letters[0].source_partition
            partition = pipeline.partition(topic, number, batch[0].at_offset)
        try:
            partition.feed_all(batch)
        except Exception:  # noqa: BLE001 - `reprocess` finds out which request crashes the core.
            return found
        found |= _drain_by_record_id(partition, record_ids)
        if batch[-1].at_offset >= last and record_ids.keys().isdisjoint(
            partition.checkpoint(0).open
        ):
            return found
    if partition is not None:
        partition.close_all()
        found |= _drain_by_record_id(partition, record_ids)
    return found


def _first_event(letter: DeadLetter) -> EventPlace:
    return letter.source_first_offset, letter.source_index or 0


def _drain_by_record_id(
    partition: Partition, record_ids: Mapping[EventPlace, str]
) -> dict[str, RequestResult]:
    """Drain a partition; return the results of the requests that have these places and ids."""
    results = {record_ids.get(result.response.place): result for result in partition.drain()}
    return {
        record_id: result
        for record_id, result in results.items()
        if record_id is not None and (result.record is None or result.record.record_id == record_id)
    }


def messages_by_request(
    pipeline: Pipeline, letters: Iterable[DeadLetter], messages: Iterable[CapturedMessage]
) -> dict[str, list[CapturedMessage]]:
    """Return by record id the messages that belong to the requests of letters.

    Args:
        pipeline: the core.
        letters: letters of kind `request`, all of one partition.
        messages: the messages from the first to the last one of all these requests.

    """
    beginning = defaultdict[int, list[DeadLetter]](list)
    open_letters = defaultdict[tuple[str, str | None] | None, list[DeadLetter]](list)
    found: dict[str, list[CapturedMessage]] = {}
    for letter in letters:
        beginning[letter.source_first_offset].append(letter)
        found[letter.record_id] = []
    for message in messages:
        _, opened = pipeline.opener.open(message)
        events = opened if isinstance(opened, list) else [opened]
        keys = [
            (event.source, event.request_id) if isinstance(event, Event) else None
            for event in events
        ]
        for key in {key for key in keys if key in open_letters}:
            for letter in open_letters[key]:
                if message.at_offset <= letter.source_last_offset:
                    found[letter.record_id].append(message)
        for letter in beginning.get(message.at_offset, ()):
            found[letter.record_id].append(message)
            index = letter.source_index or 0
            if index < len(keys) and (key := keys[index]) is not None:
                open_letters[key].append(letter)
    return found
