"""Objects that hold an event in a member: of log shippers, connectors and change-data capture."""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Raw

from consumer.core.bodies.body_reader import BOM_AND_SPACE
from consumer.core.bodies.json_text import raw_members
from consumer.core.bodies.sse import looks_like_sse
from consumer.core.envelopes.member_paths import EventMembers, decoded_text
from consumer.core.redaction import preview

# Members in which log shippers, Kafka Connect, Debezium, Dapr and Dynamo put what they carry.
_MEMBERS: Final = (
    "message",
    "MESSAGE",  # Of syslog-ng and journald.
    "log",
    "body",
    "payload",
    "value",
    "data",
    "after",
    "response",
    "event",
)
_PAYLOAD: Final = "payload"
ROW: Final = "after"  # Of Debezium: a row of a table, whose columns have names of their own.
# Of log shippers: a line, perhaps blank.
_LINE_MEMBERS: Final = ("message", "MESSAGE", "log", "payload")
_EMPTY_STRING: Final = b'""'
_MAX_COLUMNS: Final = 64
_SCHEMA_TYPE: Final = ("schema", "type")  # Of Kafka Connect, which writes bytes as base64.
_MAX_NAMES: Final = 12
_MAX_NAME: Final = 40
_NAME: Final = re.compile(rf"[A-Za-z_@$][A-Za-z0-9_.@$-]{{0,{_MAX_NAME - 1}}}")


def wrapped_texts(top: Mapping[str, Raw], members: EventMembers) -> Iterator[tuple[str, bytes]]:
    """Return an iterator over the members of a wrapper that may hold an event, and their texts."""
    for name in _MEMBERS:
        raw = bytes(top.get(name, b""))
        if name == ROW and raw.startswith(b"{"):
            row = raw_members(raw)
            columns = list(row.items())[:_MAX_COLUMNS] if isinstance(row, dict) else []
            for column, value in columns:
                if (text := _text_of(bytes(value))) is not None:
                    yield f"{name}.{column}", text
        elif name == _PAYLOAD and members.at(_SCHEMA_TYPE) == Raw(b'"bytes"'):
            if (text := _decoded_base64(raw)) is not None:
                yield name, text
        elif (text := _text_of(raw)) is not None:
            yield name, text


def _decoded_base64(raw: bytes) -> bytes | None:
    try:
        return b64decode(decoded_text(raw) or "", validate=True)
    except (binascii.Error, ValueError):
        return None


def _text_of(raw: bytes) -> bytes | None:
    """Return the text of a member that begins like an event; None if it does not."""
    if raw.startswith((b"{", b"[")):
        return raw
    if not raw.startswith(b'"'):
        return None
    text = (decoded_text(raw) or "").encode("utf-8", "replace").lstrip(BOM_AND_SPACE)
    return text if text.startswith((b"{", b"[", b'"')) or looks_like_sse(text) else None


def holds_blank_line(top: Mapping[str, Raw]) -> bool:
    """Return whether an object is a blank line of a log."""
    return any(bytes(top.get(name, b"")) == _EMPTY_STRING for name in _LINE_MEMBERS)


def names_of(members: Mapping[str, Raw]) -> str:
    """Return the names of an object's first members, without names that may be content."""
    names = [name for name in islice(members, _MAX_NAMES) if _NAME.fullmatch(name)]
    shown = preview(", ".join(names).encode(), _MAX_NAMES * _MAX_NAME)
    more = len(members) - len(names)
    return f"its members are {shown}" + (f" and {more} more" if more else "")
