"""Messages as Kafka's console consumer prints them: parts with a tab after each, then the value.

The parts are timestamp, partition, offset, headers and key, each on request (`print.timestamp`,
...). A value may have several lines.
"""

import re
from typing import Any, Final

from consumer.commands.captures.lines import Block, Lines
from consumer.core.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Headers

_PLACE: Final = re.compile(
    rb"(?=(?:CreateTime|LogAppendTime):(?:-1|\d{1,18})\t|NO_TIMESTAMP\t"
    rb"|Partition:\d{1,9}\t|Offset:\d{1,18}\t)"
    rb"(?:(?:(CreateTime|LogAppendTime):(-1|\d+)|NO_TIMESTAMP)\t)?"
    rb"(?:Partition:(\d{1,9})\t)?(?:Offset:(\d{1,18})\t)?"
)
# A key may be JSON, too. JSON that is indented with tabs has none.
_PART: Final = rb'([^\t\r\n{\["][^\t\r\n]*|\{[^\t\r\n]*\}|\[[^\t\r\n]*\]|"[^\t\r\n]*"|)\t'
_KEYED: Final = re.compile(
    rb"(?:" + _PART + rb")?" + _PART + rb'(?=[{\["]|(?:data|event|id|retry):|:|null\s*$)'
)
_KEY_ALONE: Final = re.compile(rb"([^\t\r\n{\[]+)\t\r?\n?")
_HEADER: Final = re.compile(rb'[^:,{\["]+:')
_TIMESTAMP_TYPES: Final = {
    b"CreateTime": TIMESTAMP_CREATE_TIME,
    b"LogAppendTime": TIMESTAMP_LOG_APPEND_TIME,
}


def place_in(line: bytes) -> re.Match[bytes] | None:
    """Return the timestamp, partition and offset that a line begins with; None without any."""
    return _PLACE.match(line)


def read_with_place(lines: Lines, place: re.Match[bytes]) -> Block:
    """Read the message that begins with a place, to the next line with one."""
    number, members = lines.number, _members(*place.groups())
    rest = place.string[place.end() :]
    more, value = split_key(rest) or ({}, rest)
    read = [value]
    while (following := lines.read()) is not None:
        if place_in(following):
            lines.put_back(following)
            break
        read.append(following)
    return Block(number, b"".join(read).removesuffix(b"\n"), members | more)


def _members(
    kind: bytes | None, stamp: bytes, partition: bytes | None, offset: bytes | None
) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if kind:
        members |= {"timestamp_type": _TIMESTAMP_TYPES[kind], "timestamp_ms": int(stamp)}
    if partition:
        members["at_partition"] = int(partition)
    if offset:
        members["at_offset"] = int(offset)
    return members


def split_key(line: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return what a line says before its value, and the value; None if it has no key or headers."""
    found = _KEYED.match(line) if b"\t" in line else None
    if found is None:
        return None
    headers, key = found.groups()
    if headers is None and (key == b"NO_HEADERS" or _HEADER.match(key)):
        headers, key = key, b""
    members = {"the_headers": _headers(headers), "the_key": None if key in (b"", b"null") else key}
    return members, line[found.end() :]


def key_alone(line: bytes) -> bytes | None:
    """Return the key of a line without a value; None if the line has another form."""
    found = _KEY_ALONE.fullmatch(line)
    return found[1] if found else None


def _headers(text: bytes | None) -> Headers:
    """Return headers that were written as `name:value,name:value`; a value may have commas."""
    if not text or text == b"NO_HEADERS":
        return []
    headers: list[tuple[str, bytes]] = []
    for part in text.split(b","):
        name, colon, value = part.partition(b":")
        if colon or not headers:
            headers.append((name.decode("utf-8", "replace"), value))
        else:
            last, before = headers[-1]
            headers[-1] = last, before + b"," + part
    return [*headers]
