"""Captured messages as JSON objects: the format `records`, kcat -J, and rpk topic consume."""

import json
from base64 import b64encode
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from consumer.commands.exit_codes import CommandError
from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
    Headers,
    headers_of,
)

CaptureFormat = Literal["auto", "kcat", "records", "values", "file"]

_TIMESTAMP_TYPES: Final = {
    "create": TIMESTAMP_CREATE_TIME,
    "CREATE_TIME": TIMESTAMP_CREATE_TIME,
    "logappend": TIMESTAMP_LOG_APPEND_TIME,
    "LOG_APPEND_TIME": TIMESTAMP_LOG_APPEND_TIME,
}
_TIMESTAMP_NAMES: Final = {
    TIMESTAMP_CREATE_TIME: "CREATE_TIME",
    TIMESTAMP_LOG_APPEND_TIME: "LOG_APPEND_TIME",
}
_RECORD_MEMBER: Final = "value_b64"
_KCAT_MEMBERS: Final = frozenset({"topic", "partition", "offset", "payload"})
_RPK_MEMBERS: Final = frozenset({"topic", "partition", "offset", "timestamp"})
_RPK_OPTIONAL: Final = frozenset({"key", "value", "value_size", "headers"})
_MARKS: Final = (b'"offset"', b'"value_b64"')

LineType = TypeVar("LineType")
_Topic = Annotated[str, Meta(pattern=r"^[\x00-\x7f]*$")]
_Partition = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Offset = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Timestamp = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]


class CaptureError(CommandError):
    """A capture cannot be read; the message says where and why."""


class _RecordLine(Struct):
    """A message in the format `records`; msgspec decodes base64."""

    value_b64: bytes | None
    topic: _Topic = "capture"
    partition: _Partition | None = None
    offset: _Offset | None = None
    key_b64: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    timestamp_type: Any = None
    timestamp: Any = None


class _KcatLine(Struct):
    """A message as kcat -J prints it; headers are names and values in turn."""

    topic: _Topic
    partition: _Partition
    offset: _Offset
    payload: Any
    key: Any = None
    headers: list[Any] | None = None
    tstype: Any = None
    ts: Any = None


class _RpkHeader(Struct):
    key: str
    value: Any = None


class _RpkRecord(Struct):
    """A message as `rpk topic consume` prints it; it omits an empty key and the value null."""

    topic: _Topic
    partition: _Partition
    offset: _Offset
    timestamp: _Timestamp
    key: Any = None
    value: Any = None
    headers: list[_RpkHeader] | None = None


def message_of(
    where: str, members: object, form: CaptureFormat, offset: int
) -> CapturedMessage | None:
    """Return a captured message; None if the JSON does not have the format.

    Args:
        where: file and line, for an error.
        members: the JSON.
        form: the format; `auto` for any of them.
        offset: offset of the message, where the JSON states none.

    Raises:
        CaptureError: the JSON has the format, and is damaged.

    """
    if not isinstance(members, dict):
        return None
    if form in ("auto", "records") and _RECORD_MEMBER in members:
        return _record_message(where, members, offset)
    if form in ("auto", "kcat") and members.keys() >= _KCAT_MEMBERS:
        return _kcat_message(where, members)
    if form == "auto" and _is_of_rpk(members):
        return _rpk_message(where, members)
    return None


def may_be_message(text: bytes) -> bool:
    """Return whether JSON has the member that every captured message has."""
    return any(mark in text for mark in _MARKS)


def is_message(text: bytes) -> bool:
    """Return whether JSON is a captured message."""
    members = parse_json(text) if may_be_message(text) else None
    return isinstance(members, dict) and (
        _RECORD_MEMBER in members or members.keys() >= _KCAT_MEMBERS or _is_of_rpk(members)
    )


def record_line(message: CapturedMessage) -> bytes:
    """Return a message as a line of the format `records`."""
    members = {
        "topic": message.at_topic,
        "partition": message.at_partition,
        "offset": message.at_offset,
        "timestamp": message.timestamp_ms,
        "timestamp_type": _TIMESTAMP_NAMES.get(message.timestamp_type, "NOT_AVAILABLE"),
        "key_b64": _encode_base64(message.the_key),
        "headers": [
            (name, _encode_base64(value.encode() if isinstance(value, str) else value))
            for name, value in headers_of(message.headers) or []
        ],
        _RECORD_MEMBER: _encode_base64(message.the_value),
    }
    return json.dumps(members).encode() + b"\n"


def parse_json(text: bytes) -> object:
    """Return JSON as Python objects; None if it is not valid."""
    try:
        # kcat writes bytes that are not UTF-8 unchanged; `_encode_text` restores them.
        return json.loads(text.decode("utf-8-sig", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def _is_of_rpk(members: dict[str, Any]) -> bool:
    return _RPK_MEMBERS <= members.keys() <= _RPK_MEMBERS | _RPK_OPTIONAL


def _record_message(where: str, members: dict[str, Any], offset: int) -> CapturedMessage:
    try:
        line = _convert(members, _RecordLine)
        timestamp_type, timestamp = _timestamp(line.timestamp_type, line.timestamp, "timestamp")
        return CapturedMessage(
            at_topic=line.topic,
            at_partition=line.partition or 0,
            at_offset=offset if line.offset is None else line.offset,
            the_key=line.key_b64,
            the_value=line.value_b64,
            the_headers=[(_header_name(name), value) for name, value in line.headers or []],
            timestamp_type=timestamp_type,
            timestamp_ms=timestamp,
        )
    except (msgspec.ValidationError, TypeError) as error:
        raise CaptureError(f"{where}: damaged record: {error}") from error


def _kcat_message(where: str, members: dict[str, Any]) -> CapturedMessage:
    if "payload_error" in members:  # Beside it, the payload is null, as that of a tombstone.
        raise CaptureError(f"{where}: kcat could not decode the payload; capture it without -s")
    try:
        line = _convert(members, _KcatLine)
        timestamp_type, timestamp = _timestamp(line.tstype, line.ts, "ts")
        return CapturedMessage(
            at_topic=line.topic,
            at_partition=line.partition,
            at_offset=line.offset,
            the_key=_encode_text(line.key),
            the_value=_encode_text(line.payload),
            the_headers=_kcat_headers(line.headers or []),
            timestamp_type=timestamp_type,
            timestamp_ms=timestamp,
        )
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise CaptureError(f"{where}: damaged kcat line: {error}") from error


def _rpk_message(where: str, members: dict[str, Any]) -> CapturedMessage:
    if "value_size" in members:
        raise CaptureError(f"{where}: rpk wrote no value; capture it without --meta-only")
    try:
        record = _convert(members, _RpkRecord)
    except (msgspec.ValidationError, TypeError) as error:
        raise CaptureError(f"{where}: damaged record of rpk: {error}") from error
    return CapturedMessage(
        at_topic=record.topic,
        at_partition=record.partition,
        at_offset=record.offset,
        the_key=_encode_text(record.key),
        the_value=_encode_text(record.value),
        the_headers=[
            (_header_name(header.key), _encode_text(header.value))
            for header in record.headers or []
        ],
        timestamp_type=TIMESTAMP_CREATE_TIME,
        timestamp_ms=record.timestamp,
    )


def _convert(members: dict[str, Any], line_type: type[LineType]) -> LineType:
    """Check the members; an empty object or string, too, stands for no headers."""
    return msgspec.convert(members | {"headers": members.get("headers") or None}, line_type)


def _timestamp(kind: Any, stamp: Any, member: str) -> tuple[int, int]:
    """Return type and milliseconds of a timestamp; -1 if the message has none."""
    timestamp_type = _TIMESTAMP_TYPES.get(kind, TIMESTAMP_NOT_AVAILABLE)
    if timestamp_type == TIMESTAMP_NOT_AVAILABLE or stamp is None:
        return timestamp_type, -1
    try:
        return timestamp_type, msgspec.convert(stamp, _Timestamp)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} - at `$.{member}`") from error


def _kcat_headers(flat: list[Any]) -> Headers:
    names = msgspec.convert(flat[::2], list[str])
    if len(flat) % 2:
        raise ValueError("the last header has no value")
    values = map(_encode_text, flat[1::2])
    return [(_header_name(name), value) for name, value in zip(names, values, strict=True)]


def _header_name(name: str) -> str:
    """Replace halves of characters, which a header of Kafka cannot have."""
    return name.encode("utf-8", "replace").decode()


def _encode_base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _encode_text(value: object) -> bytes | None:
    """Return the bytes of a string of `parse_json`, or of JSON that kcat decoded from Avro."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # An escaped half of a character, which kcat never writes.
        return text.encode("utf-8", "replace")
