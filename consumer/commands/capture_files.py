"""Captured messages: what kcat prints, our binary-safe form, bare values, or a whole file."""

import gzip
import json
import re
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

from msgspec import Struct

from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
    Headers,
    headers_of,
)

CaptureFormat = Literal["auto", "kcat", "records", "values", "file"]

STANDARD_INPUT: Final = "-"
_TIMESTAMP_TYPES: Final = {
    "create": TIMESTAMP_CREATE_TIME,
    "CREATE_TIME": TIMESTAMP_CREATE_TIME,
    "logappend": TIMESTAMP_LOG_APPEND_TIME,
    "LOG_APPEND_TIME": TIMESTAMP_LOG_APPEND_TIME,
}
_MAX_PARTITION: Final = (1 << 31) - 1
_MAX_OFFSET: Final = (1 << 63) - 1
_RECORD_MEMBER: Final = "value_b64"
_KCAT_MEMBERS: Final = frozenset({"topic", "partition", "offset", "payload"})
_SEPARATORS: Final = re.compile(r"[\s\[\],]*")
_decode_next: Final = json.JSONDecoder().raw_decode


class CaptureError(Exception):
    """A capture cannot be read; the message says where and why."""


class Captured(Struct):
    """A message, and how many bytes of its file it took."""

    message: CapturedMessage
    size: int


def read_capture(name: str, form: CaptureFormat, first_offset: int) -> Iterator[Captured]:
    """Read the messages of one file.

    Args:
        name: path of the file, `-` for standard input; `.gz` is decompressed.
        form: how messages are written; `auto` recognises each line.
        first_offset: offset of the first message, where the capture states none.

    Raises:
        CaptureError: the file cannot be read, or a line is not of the form it should be.

    """
    try:
        with _opened(name) as file:
            if form == "file":
                value = file.read()
                yield Captured(CapturedMessage(at_offset=first_offset, the_value=value), len(value))
                return
            yield from _messages(name, file, form, first_offset)
    except (OSError, EOFError, zlib.error) as error:
        raise CaptureError(f"{name}: {getattr(error, 'strerror', None) or error}") from error


def written(message: CapturedMessage) -> bytes:
    """Return a message as a line of the binary-safe form, which `read_capture` reads again."""
    names = {TIMESTAMP_CREATE_TIME: "CREATE_TIME", TIMESTAMP_LOG_APPEND_TIME: "LOG_APPEND_TIME"}
    members = {
        "topic": message.at_topic,
        "partition": message.at_partition,
        "offset": message.at_offset,
        "timestamp": message.timestamp_ms,
        "timestamp_type": names.get(message.timestamp_type, "NOT_AVAILABLE"),
        "key_b64": _text(message.the_key),
        "headers": [
            (name, _text(value.encode() if isinstance(value, str) else value))
            for name, value in headers_of(message.headers) or []
        ],
        _RECORD_MEMBER: _text(message.the_value),
    }
    return json.dumps(members).encode() + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _opened(name: str) -> AbstractContextManager[BinaryIO]:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise CaptureError(f"{name}: standard input is closed")
        return nullcontext(sys.stdin.buffer)
    if name.endswith(".gz"):
        return cast("AbstractContextManager[BinaryIO]", gzip.open(name, "rb"))
    return Path(name).open("rb")


def _messages(
    name: str, file: BinaryIO, form: CaptureFormat, first_offset: int
) -> Iterator[Captured]:
    offset = first_offset
    begun = form == "values"
    for number, line in enumerate(file, 1):
        text = line.rstrip(b"\r\n")
        if not text.strip() and form != "values":
            continue
        if not begun and text.strip() in (b"{", b"["):
            yield from _spread(name, number, line + file.read(), form, offset)
            return
        begun = True
        yield Captured(_message(f"{name}:{number}", text, form, offset), len(line))
        offset += 1


def _spread(
    name: str, line: int, value: bytes, form: CaptureFormat, offset: int
) -> Iterator[Captured]:
    """Read JSON that spreads over lines: captured messages, one after another or in an array.

    If it does not begin with a captured message, the whole is one bare value.
    """
    text = _decoded(value)
    first, counted, begin = True, 0, _past_separators(text, 0)
    while first or begin < len(text):
        line += text.count("\n", counted, begin)
        counted = begin
        try:
            members, end = _decode_next(text, begin)
        except (ValueError, RecursionError):
            members, end = None, len(text)
        message = _captured(f"{name}:{line}", members, form, offset)
        if message is None:
            if form != "auto":
                raise _not_of_form(f"{name}:{line}", form)
            if first:
                yield Captured(CapturedMessage(at_offset=offset, the_value=value), len(value))
                return
            message = CapturedMessage(at_offset=offset, the_value=_bytes(text[begin:end]))
        yield Captured(message, end - begin)
        offset += 1
        first, begin = False, _past_separators(text, end)


def _past_separators(text: str, position: int) -> int:
    match = _SEPARATORS.match(text, position)
    return match.end() if match else position


def _message(where: str, text: bytes, form: CaptureFormat, offset: int) -> CapturedMessage:
    if form != "values":
        message = _captured(where, _parsed(text), form, offset)
        if message is not None:
            return message
        if form != "auto":
            raise _not_of_form(where, form)
    return CapturedMessage(at_offset=offset, the_value=text)


def _captured(
    where: str, members: object, form: CaptureFormat, offset: int
) -> CapturedMessage | None:
    """Read a captured message; None if the JSON is not one of the form."""
    if not isinstance(members, dict):
        return None
    if form in ("auto", "records") and _RECORD_MEMBER in members:
        return _record(where, members, offset)
    if form in ("auto", "kcat") and members.keys() >= _KCAT_MEMBERS:
        return _kcat(where, members)
    return None


def _not_of_form(where: str, form: CaptureFormat) -> CaptureError:
    return CaptureError(f"{where}: not a captured message of the form {form!r}")


def _parsed(text: bytes) -> object:
    try:
        return json.loads(_decoded(text))
    except (ValueError, RecursionError):
        return None


def _decoded(text: bytes) -> str:
    # kcat writes bytes that are no UTF-8 as they are; `_bytes` finds them again.
    return text.decode("utf-8-sig", "surrogateescape")


def _record(where: str, members: dict[str, Any], offset: int) -> CapturedMessage:
    try:
        headers: Headers = [
            (_name(key), _base64(f"value of header {key!r}", value))
            for key, value in _list(members, "headers")
        ]
        kind = _TIMESTAMP_TYPES.get(members.get("timestamp_type", ""), TIMESTAMP_NOT_AVAILABLE)
        return CapturedMessage(
            at_topic=_topic(members, "capture"),
            at_partition=_integer(members, "partition", 0, most=_MAX_PARTITION),
            at_offset=_integer(members, "offset", offset),
            the_key=_base64("key_b64", members.get("key_b64")),
            the_value=_base64(_RECORD_MEMBER, members[_RECORD_MEMBER]),
            the_headers=headers,
            timestamp_type=kind,
            timestamp_ms=_integer(members, "timestamp", -1, least=-1) if kind else -1,
        )
    except (ValueError, TypeError) as error:
        raise CaptureError(f"{where}: damaged record: {error}") from error


def _kcat(where: str, members: dict[str, Any]) -> CapturedMessage:
    if "payload_error" in members:  # Null stands beside it, which else is a tombstone.
        raise CaptureError(f"{where}: kcat could not decode the payload; capture it without -s")
    try:
        flat = _list(members, "headers")
        headers: Headers = [
            (_name(key), _bytes(value)) for key, value in zip(flat[::2], flat[1::2], strict=True)
        ]
        kind = _TIMESTAMP_TYPES.get(members.get("tstype", ""), TIMESTAMP_NOT_AVAILABLE)
        return CapturedMessage(
            at_topic=_topic(members, None),
            at_partition=_integer(members, "partition", None, most=_MAX_PARTITION),
            at_offset=_integer(members, "offset", None),
            the_key=_bytes(members.get("key")),
            the_value=_bytes(members["payload"]),
            the_headers=headers,
            timestamp_type=kind,
            timestamp_ms=_integer(members, "ts", -1, least=-1) if kind else -1,
        )
    except (ValueError, TypeError) as error:
        raise CaptureError(f"{where}: damaged kcat line: {error}") from error


def _topic(members: dict[str, Any], default: str | None) -> str:
    topic = members.get("topic", default)
    if not isinstance(topic, str) or not topic.isascii():
        raise ValueError("topic is no name of a topic")
    return topic


def _integer(
    members: dict[str, Any],
    name: str,
    default: int | None,
    *,
    least: int = 0,
    most: int = _MAX_OFFSET,
) -> int:
    value = members.get(name)
    if value is None:
        value = default
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is no integer from {least} to {most}")
    return value


def _list(members: dict[str, Any], name: str) -> list[Any]:
    value = members.get(name) or []
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list")
    return value


def _name(header: object) -> str:
    if not isinstance(header, str):
        raise TypeError("the name of a header is no text")
    return header.encode("utf-8", "replace").decode()


def _base64(name: str, text: object) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{name} is no text")
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"{name} is no base64: {error}") from error


def _bytes(value: object) -> bytes | None:
    """Return the bytes of a text of `_decoded`, or of JSON that kcat has made of Avro."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # A half of a character, escaped: nothing that kcat writes.
        return text.encode("utf-8", "replace")
