"""Progress of a partition, to and from the metadata of its committed offset.

The committed offset is the position, the next offset to read. The metadata holds what a new owner
needs to rebuild the state: where re-reading starts, stream time there, and where each open request
began. It is ASCII and fits in `offset.metadata.max.bytes` (4,096) less the NUL that the
client adds.

Layout: `a2.` (format and version), then base64 without padding of a bit string: numbers as
Elias gamma codes of n + 1, then the places of open requests, sorted: distances between offsets in
Rice code with the parameter that fits their mean, indexes inside a message in Elias gamma; last
two bytes of a check sum.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final
from zlib import crc32

from msgspec import Struct

from consumer.core.message import EventPlace
from consumer.core.stream_time import MAX_MEDIANS, BlockState

MAX_METADATA: Final = 4095
_MAX_VERSION_DIGITS: Final = 4
_FAMILY: Final = "a"
_VERSION: Final = 2
_FIRST_VERSION: Final = 1  # It held stream time as two clocks.
_MARK: Final = f"{_FAMILY}{_VERSION}."
_BITS_PER_CHARACTER: Final = 6
_CHECK_BYTES: Final = 2
_CHECK_MASK: Final = 0xFFFF
_HEADER_BITS: Final = 1_650  # All that is not places, at most: offsets of 63 bits, times of 42.
_MAX_PARAMETER: Final = 63


class Checkpoint(Struct, frozen=True):
    """What is committed with a position.

    Attributes:
        position: next offset to read; committed as the offset, and again inside the metadata.
        topic: hash of the topic's id (or name), see `topic_hash`.
        settings: digest of the settings that shape state.
        start: stream time at the block where re-reading starts.
        open: places where open requests began, sorted.

    """

    position: int
    topic: int
    settings: int
    start: BlockState
    open: tuple[EventPlace, ...] = ()


class Ignored(Struct, frozen=True):
    """Metadata that is not a checkpoint of this position; reading starts clean at the offset."""

    reason: str


class NewerCheckpointError(Exception):
    """The metadata was written by a newer version, whose state this one cannot read."""


def topic_hash(topic_id: str) -> int:
    """Hash a topic's id to 32 bits; a recreated topic has another hash."""
    return crc32(topic_id.encode())


def settings_digest(*values: object) -> int:
    """Digest the settings that shape state to 32 bits."""
    return crc32(repr(values).encode())


def place_bits(index: int) -> int:
    """Return the bits that one open request takes beside its share of the offsets' distances."""
    return 2 * (index + 1).bit_length() - 1


def open_budget(max_reread: int) -> tuple[int, int]:
    """Return how many bits a checkpoint has for open requests, and how many each takes.

    A Rice code with parameter k takes k + 1 bits for each distance and `span / 2**k` for all of
    them together, and the span from the oldest to the newest is at most `max_reread` messages.
    """
    room = (MAX_METADATA - len(_MARK)) * _BITS_PER_CHARACTER - _HEADER_BITS
    choices = ((room - (max_reread >> k), k + 1) for k in range(32) if max_reread >> k < room // 2)
    return max(choices, key=lambda choice: choice[0] / (choice[1] + 1))


def encode(checkpoint: Checkpoint) -> str:
    """Write a checkpoint as metadata."""
    start = checkpoint.start
    origin = start.offset
    numbers = (
        checkpoint.position,
        checkpoint.topic,
        checkpoint.settings,
        checkpoint.position - origin,
    )
    bits = [*map(_gamma, numbers), *_encode_time(start), _gamma(len(checkpoint.open))]
    bits += _encode_places(checkpoint.open, origin)
    text = "".join(bits)
    data = int("1" + text, 2)  # The leading one keeps leading zeros.
    raw = data.to_bytes((data.bit_length() + 7) // 8, "big")
    raw += (crc32(raw) & _CHECK_MASK).to_bytes(_CHECK_BYTES, "big")
    return _MARK + urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(metadata: str, position: int, topic: int) -> Checkpoint | Ignored:
    """Read metadata that was committed with a position.

    Args:
        metadata: as the broker returns it.
        position: the committed offset.
        topic: hash of the topic's id today.

    Raises:
        NewerCheckpointError: a newer version of this service wrote it.

    """
    if not metadata:
        return Ignored("no metadata")
    family, _, rest = metadata.partition(".")
    version = family.removeprefix(_FAMILY)
    if version == family or not _is_version(version) or not rest:
        return Ignored("foreign metadata")
    if int(version) > _VERSION:
        raise NewerCheckpointError(metadata[:16])
    try:
        raw = urlsafe_b64decode(rest + "=" * (-len(rest) % 4))
        raw, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
        if int.from_bytes(check, "big") != crc32(raw) & _CHECK_MASK:
            return Ignored("damaged metadata")
        checkpoint = _read(_Bits(bin(int.from_bytes(raw, "big"))[3:]), int(version))
    except (Base64Error, ValueError, IndexError):
        return Ignored("damaged metadata")
    if checkpoint.position != position:
        return Ignored("metadata of another offset")
    if checkpoint.topic != topic:
        return Ignored("metadata of another topic")
    return checkpoint


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_VERSION_DIGITS


def _encode_time(start: BlockState) -> Iterable[str]:
    left, left_now = start.left or (None, 0)
    clocks = (0 if clock is None else clock + 1 for clock in (start.clock, left))
    steps = [later - earlier for earlier, later in pairwise((start.clock or 0, *start.medians))]
    width = max((abs(step) for step in steps), default=0).bit_length()
    numbers = (start.now, *clocks, left_now, start.behind, len(steps), width)
    return [*map(_gamma, numbers), *(f"{step + (1 << width):0{width + 1}b}" for step in steps)]


def _encode_places(places: Sequence[EventPlace], origin: int) -> Iterable[str]:
    if not places:
        return
    parameter = _parameter(places[-1][0] - origin, len(places))
    yield _gamma(parameter)
    last_offset, last_index = origin, -1
    for offset, index in places:
        distance = offset - last_offset
        yield "1" * (distance >> parameter) + "0"
        if parameter:
            yield f"{distance & ((1 << parameter) - 1):0{parameter}b}"
        # A second request of one message is written as its distance to the first.
        yield _gamma(index - last_index - 1 if not distance and last_index >= 0 else index)
        last_offset, last_index = offset, index


def _parameter(span: int, count: int) -> int:
    return max((span // count).bit_length() - 1, 0)


def _gamma(number: int) -> str:
    """Write n >= 0 in the Elias gamma code of n + 1."""
    digits = f"{number + 1:b}"
    return "0" * (len(digits) - 1) + digits


class _Bits:
    """Reads codes from a string of ones and zeros."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def gamma(self) -> int:
        zeros = self._text.index("1", self._at) - self._at
        digits = self._digits(2 * zeros + 1)
        return int(digits, 2) - 1

    def rice(self, parameter: int) -> int:
        ones = self._text.index("0", self._at) - self._at
        self._at += ones + 1
        return ones << parameter | (self.number(parameter) if parameter else 0)

    def number(self, digits: int) -> int:
        return int(self._digits(digits), 2)

    def _digits(self, count: int) -> str:
        digits = self._text[self._at : self._at + count]
        if len(digits) < count:
            raise IndexError
        self._at += count
        return digits

    def at_end(self) -> bool:
        return self._at == len(self._text)


def _read(bits: _Bits, version: int) -> Checkpoint:
    position, topic, settings, behind = (bits.gamma() for _ in range(4))
    origin = position - behind
    start = _read_time(bits, origin) if version > _FIRST_VERSION else _read_clocks(bits, origin)
    places = _read_places(bits, bits.gamma(), origin)
    if origin < 0 or not bits.at_end() or (places and places[-1][0] >= position):
        raise ValueError
    return Checkpoint(position, topic, settings, start, places)


def _read_time(bits: _Bits, offset: int) -> BlockState:
    now, clock, left, left_now, behind, count, width = (bits.gamma() for _ in range(7))
    if count > MAX_MEDIANS or width > _MAX_PARAMETER:
        raise ValueError
    steps = [bits.number(width + 1) - (1 << width) for _ in range(count)]
    known, *medians = accumulate((clock - 1 if clock else 0, *steps))
    return BlockState(
        offset,
        now,
        known if clock else None,
        behind,
        (left - 1, left_now) if left else None,
        tuple(medians),
    )


def _read_clocks(bits: _Bits, offset: int) -> BlockState:
    """Read stream time as version 1 wrote it: its clock, and one that was not believed yet."""
    clock, _ = bits.gamma(), bits.gamma()
    return BlockState(offset, clock=clock - 1 if clock else None)


def _read_places(bits: _Bits, count: int, origin: int) -> tuple[EventPlace, ...]:
    if not count:
        return ()
    parameter = bits.gamma()
    if parameter > _MAX_PARAMETER:
        raise ValueError
    places: list[EventPlace] = []
    last_offset, last_index = origin, -1
    for _ in range(count):
        distance = bits.rice(parameter)
        index = bits.gamma()
        if not distance and last_index >= 0:
            index += last_index + 1
        last_offset, last_index = last_offset + distance, index
        places.append((last_offset, last_index))
    return tuple(places)
