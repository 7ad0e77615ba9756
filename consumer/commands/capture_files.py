"""Captured messages: lines of kcat -J, binary-safe records, bare values, or whole files."""

import gzip
import json
import re
import sys
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeVar, cast

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

STANDARD_INPUT: Final = "-"
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
_SEPARATORS: Final = re.compile(r"[\s\[\],]*")
_decode_next: Final = json.JSONDecoder().raw_decode


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


def read_capture(
    name: str,
    form: CaptureFormat,
    first_offset: int = 0,
    track: Callable[[BinaryIO], BinaryIO] = lambda file: file,
) -> Iterator[CapturedMessage]:
    """Read the messages of one file.

    Args:
        name: path of the file, `-` for standard input; `.gz` is decompressed.
        form: format of the file; `auto` recognises each line.
        first_offset: offset of the first message, where the capture states none.
        track: wraps the opened file, to see how much of it is read.

    Raises:
        CaptureError: the file cannot be read, or a line does not have the format.

    """
    try:
        with _opened(name, track) as file:
            if form == "file":
                yield CapturedMessage(at_offset=first_offset, the_value=file.read())
            else:
                yield from _messages(name, file, form, first_offset)
    except (OSError, EOFError, zlib.error) as error:
        raise CaptureError(f"{name}: {getattr(error, 'strerror', None) or error}") from error


def record_line(message: CapturedMessage) -> bytes:
    """Return a message as a line of the format `records`, which `read_capture` reads."""
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


def consecutive_run(
    messages: Iterable[CapturedMessage], target: CapturedMessage
) -> list[CapturedMessage]:
    """Return the messages around one in its partition, as far as offsets rise.

    Another capture begins where they go back.
    """
    run: list[CapturedMessage] = []
    found = False
    for message in messages:
        if (message.at_topic, message.at_partition) != (target.at_topic, target.at_partition):
            continue
        if run and message.at_offset <= run[-1].at_offset:
            if found:
                break
            run = []
        run.append(message)
        found = found or message is target
    return run


@contextmanager
def _opened(name: str, track: Callable[[BinaryIO], BinaryIO]) -> Iterator[BinaryIO]:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise CaptureError(f"{name}: standard input is closed")
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        if name.endswith(".gz"):
            with gzip.open(track(file), "rb") as inflated:
                yield cast("BinaryIO", inflated)
        else:
            yield track(file)


def _messages(
    name: str, file: BinaryIO, form: CaptureFormat, first_offset: int
) -> Iterator[CapturedMessage]:
    offset = first_offset
    is_first = form != "values"
    for number, line in enumerate(file, 1):
        text = line.rstrip(b"\r\n")
        if not text.strip() and form != "values":
            continue
        if is_first and text.strip() in (b"{", b"["):
            yield from _spread(name, number, line + file.read(), form, offset)
            return
        is_first = False
        yield _message(f"{name}:{number}", text, form, offset)
        offset += 1


def _spread(
    name: str, line: int, value: bytes, form: CaptureFormat, offset: int
) -> Iterator[CapturedMessage]:
    """Read JSON that spreads over lines: captured messages, one after another or in an array.

    If it does not begin with a captured message, the whole is one bare value.
    """
    text = _decode_text(value)
    first, counted, begin = True, 0, _skip_separators(text, 0)
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
                raise _not_of_format(f"{name}:{line}", form)
            if first:
                yield CapturedMessage(at_offset=offset, the_value=value)
                return
            message = CapturedMessage(at_offset=offset, the_value=_encode_text(text[begin:end]))
        yield message
        offset += 1
        first, begin = False, _skip_separators(text, end)


def _skip_separators(text: str, position: int) -> int:
    match = _SEPARATORS.match(text, position)
    return match.end() if match else position


def _message(where: str, text: bytes, form: CaptureFormat, offset: int) -> CapturedMessage:
    if form != "values":
        message = _captured(where, _parse(text), form, offset)
        if message is not None:
            return message
        if form != "auto":
            raise _not_of_format(where, form)
    return CapturedMessage(at_offset=offset, the_value=text)


def _captured(
    where: str, members: object, form: CaptureFormat, offset: int
) -> CapturedMessage | None:
    """Return a captured message; None if the JSON does not have the format."""
    if not isinstance(members, dict):
        return None
    if form in ("auto", "records") and _RECORD_MEMBER in members:
        return _record_message(where, members, offset)
    if form in ("auto", "kcat") and members.keys() >= _KCAT_MEMBERS:
        return _kcat_message(where, members)
    return None


def _not_of_format(where: str, form: CaptureFormat) -> CaptureError:
    return CaptureError(
        f"{where}: not a captured message of the format {form!r}; correct it, or omit --format"
    )


def _parse(text: bytes) -> object:
    try:
        return json.loads(_decode_text(text))
    except (ValueError, RecursionError):
        return None


def _decode_text(text: bytes) -> str:
    # kcat writes bytes that are not UTF-8 unchanged; `_encode_text` restores them.
    return text.decode("utf-8-sig", "surrogateescape")


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
    """Return the bytes of a string of `_decode_text`, or of JSON that kcat decoded from Avro."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # An escaped half of a character, which kcat never writes.
        return text.encode("utf-8", "replace")
