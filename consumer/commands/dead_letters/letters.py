"""Dead letters on their topic: decoded, filtered and grouped."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from consumer.commands.places import MessagePlace, place_of
from consumer.core.message import CapturedMessage, header_text
from schemas import DeadLetter
from schemas.record import SCHEMA_VERSION

REDRIVEN_HEADER: Final = "redriven"
"""Header of a notice, a message without a value: the id of the letter that was redriven."""

_decode: Final = msgspec.json.Decoder(DeadLetter).decode


class Letter(Struct, frozen=True):
    """A dead letter without its payload, and its place.

    Attributes:
        content: the letter without value, headers and statistics.
        place: place of the letter itself.
        written_at: time of the letter, milliseconds since 1970, or -1.
        redriven: whether a notice says that the letter was redriven.

    """

    content: DeadLetter
    place: MessagePlace
    written_at: int
    redriven: bool = False

    @property
    def source(self) -> MessagePlace:
        """Place of the message that the letter is about, or of the first one of its request."""
        content = self.content
        return content.source_topic, content.source_partition, content.source_first_offset

    def spans(self, place: MessagePlace) -> bool:
        """Return whether a place is between the first and the last message of its request."""
        topic, partition, offset = place
        return (topic, partition) == self.source[:2] and (
            self.content.source_first_offset <= offset <= self.content.source_last_offset
        )


class LetterFilter(Struct, frozen=True, kw_only=True):
    """Which letters to process; empty fields admit all. Times are those of the letters."""

    kind: str | None = None
    outcomes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    place: MessagePlace | None = None

    def admits(self, letter: Letter) -> bool:
        """Return whether a letter passes the filter."""
        content = letter.content
        return (
            self.kind in (None, content.kind)
            and (not self.outcomes or content.outcome in self.outcomes)
            and (not self.reasons or content.reason in self.reasons)
            and (self.since is None or letter.written_at >= self.since)
            and (self.until is None or letter.written_at < self.until)
            and self.place in (None, letter.place, letter.source)
        )


class LetterGroup(Struct):
    """Letters of one kind, outcome and reason.

    Attributes:
        count: number of letters.
        redriven: how many of them were redriven.
        first: time of the first letter, milliseconds since 1970.
        last: time of the last letter.
        example: source of the last letter that was not redriven, else of the last one.

    """

    kind: str
    outcome: str
    reason: str | None
    count: int
    redriven: int
    first: int
    last: int
    example: MessagePlace


class LetterTopic:
    """The letters of a dead-letter topic.

    Of a letter that was written twice, as after a rewind of the group, the last copy counts.

    Args:
        messages: messages of the topic; those of a partition in order.

    Attributes:
        foreign: number of messages that are not dead letters of this version.

    """

    def __init__(self, messages: Iterable[CapturedMessage]) -> None:
        self.foreign = 0
        self._letters: dict[str, Letter] = {}
        self._redriven: set[str | None] = set()
        for message in messages:
            self._add(message)

    def select(self, letter_filter: LetterFilter) -> list[Letter]:
        """Return the letters that pass a filter, in the order in which they were written."""
        letters = [
            msgspec.structs.replace(letter, redriven=letter.content.record_id in self._redriven)
            for letter in self._letters.values()
            if letter_filter.admits(letter)
        ]
        return sorted(letters, key=lambda letter: (letter.written_at, letter.place))

    def __len__(self) -> int:
        """Return the number of letters."""
        return len(self._letters)

    def _add(self, message: CapturedMessage) -> None:
        if message.the_value is None:
            self._redriven |= {
                header_text(value)
                for name, value in message.the_headers or []
                if name == REDRIVEN_HEADER
            }
            return
        try:
            content = decode_letter(message)
        except msgspec.MsgspecError:
            self.foreign += 1
            return
        light = msgspec.structs.replace(content, value_base64=None, headers=None, stats=None)
        self._letters[content.record_id] = Letter(light, place_of(message), message.timestamp_ms)


def decode_letter(message: CapturedMessage) -> DeadLetter:
    """Return the letter in a message of the dead-letter topic.

    Raises:
        msgspec.MsgspecError: the message is not a letter, or has another version.

    """
    try:
        letter = _decode(message.the_value or b"")
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
    if letter.schema_version != SCHEMA_VERSION:
        raise msgspec.ValidationError(f"schema version {letter.schema_version}")
    return letter


def group_letters(letters: Iterable[Letter]) -> list[LetterGroup]:
    """Count letters by kind, outcome and reason; the most frequent come first."""
    groups: dict[tuple[str, str, str | None], LetterGroup] = {}
    for letter in letters:
        content = letter.content
        name = content.kind, content.outcome, content.reason
        group = groups.get(name)
        if group is None:
            written_at = letter.written_at
            group = LetterGroup(*name, 0, 0, written_at, written_at, letter.source)
            groups[name] = group
        if not letter.redriven or group.count == group.redriven:
            group.example = letter.source
        group.count += 1
        group.redriven += letter.redriven
        group.first = min(group.first, letter.written_at)
        group.last = max(group.last, letter.written_at)
    return sorted(groups.values(), key=lambda group: -group.count)
