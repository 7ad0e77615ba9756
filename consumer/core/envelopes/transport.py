"""What a producer or serializer put around the bytes of a value, taken off.

Compression is undone wherever a value begins with the magic bytes of one, or where the header
`content-encoding` names it. The frames of schema registries (Confluent, Apicurio, AWS Glue) are
taken off where JSON or text follows.
"""

from typing import Final

from msgspec import Struct

from consumer.core.bodies.body_reader import BOM_AND_SPACE
from consumer.core.bodies.encoding import inflate, is_compressed
from consumer.core.message import Headers, header
from consumer.core.response_event import BadEvent
from schemas import BadPayloadReason

_MAX_COMPRESSIONS: Final = 2  # A gateway compresses the body, and the producer the event.
_CONFLUENT: Final = b"\x00"
_GLUE: Final = b"\x03"
_ID_BYTES: Final = 5  # Magic byte and schema id.
_APICURIO_BYTES: Final = 9  # Its own encoding has an id of eight bytes.
_GLUE_BYTES: Final = 18  # Version, compression, and a UUID.
_MAX_INDEXES: Final = 8  # Protobuf messages nested deeper than this are not looked for.
_TEXT_STARTS: Final = (b"{", b"[", b'"', b"data:", b"event:", b"id:", b"retry:", b":")
# Where serializers that write no frame put the schema id.
_SCHEMA_HEADERS: Final = (
    "__value_schema_id",
    "apicurio.value.globalid",
    "apicurio.value.contentid",
)


class Plain(Struct, frozen=True):
    """A value without what stood around it.

    Attributes:
        text: the rest, which begins like JSON or text if it is either.
        steps: what was taken off, in order, in words.

    """

    text: bytes
    steps: tuple[str, ...]


def plain_text(value: bytes, headers: Headers, limit: int) -> Plain | BadEvent:
    """Take compressions and the frame off a value.

    Args:
        value: the value of the message.
        headers: its headers.
        limit: maximum bytes after decompression.

    """
    label = header(headers, "content-encoding")
    steps: tuple[str, ...] = ()
    for _ in range(_MAX_COMPRESSIONS):
        inflated = inflate(value, label, limit)
        if isinstance(inflated, BadPayloadReason):
            return BadEvent(inflated)
        if inflated is not value:
            value, label, steps = inflated, None, (*steps, "compression")
        length = _frame_length(value)
        if length:
            value, steps = value[length:], (*steps, "frame of a schema registry")
    if not _begins_like_text(value) and (problem := _frame_problem(value, headers)) is not None:
        return BadEvent(BadPayloadReason.SCHEMA_REGISTRY_FRAME, problem)
    return Plain(value, steps)


def _frame_length(value: bytes) -> int:
    """Return the length of a frame before JSON, text or a compression; 0 if there is none."""
    if value.startswith(_CONFLUENT):
        lengths = [_ID_BYTES, _protobuf_frame(value), _APICURIO_BYTES]
    elif value.startswith(_GLUE):
        lengths = [_GLUE_BYTES]
    else:
        return 0
    return next((n for n in lengths if n and _begins_like_text(value[n : n + 64])), 0)


def _begins_like_text(value: bytes) -> bool:
    head = value[:64].lstrip(BOM_AND_SPACE)
    return head.startswith(_TEXT_STARTS) or (len(head) > 1 and is_compressed(head))


def _protobuf_frame(value: bytes) -> int:
    """Return the length of a frame with Protobuf's path of message indexes; 0 if it has none."""
    count, at = _varint(value, _ID_BYTES)
    if count > _MAX_INDEXES:
        return 0
    for _ in range(count):
        _, at = _varint(value, at)
    return at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint of one byte, as all indexes in use are; return it and its end."""
    number = value[at] if at < len(value) else 0x80
    return (_MAX_INDEXES + 1 if number & 0x81 else number >> 1), at + 1


def _frame_problem(value: bytes, headers: Headers) -> str | None:
    """Return what is known of a schema whose value is neither JSON nor text, if there is one."""
    if value.startswith(_CONFLUENT) and len(value) > _ID_BYTES:
        return f"schema id {int.from_bytes(value[1:_ID_BYTES])}"
    if value.startswith(_GLUE) and len(value) > _GLUE_BYTES and value[1] in (0, 5):
        return "schema of AWS Glue"
    names = {name.lower() for name, _ in headers}
    found = next((name for name in _SCHEMA_HEADERS if name in names), None)
    return f"the header {found} names a schema" if found and value else None
