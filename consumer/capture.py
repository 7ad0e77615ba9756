"""Captured messages: what kcat prints, our binary-safe form, bare values, or a whole file."""

import binascii
import gzip
import json
import sys
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

from msgspec import Struct

from consumer.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
    Headers,
)

CaptureFormat = Literal["auto", "kcat", "records", "values", "file"]

STANDARD_INPUT: Final = "-"
_TIMESTAMP_TYPES: Final = {
    "create": TIMESTAMP_CREATE_TIME,
    "CREATE_TIME": TIMESTAMP_CREATE_TIME,
    "logappend": TIMESTAMP_LOG_APPEND_TIME,
    "LOG_APPEND_TIME": TIMESTAMP_LOG_APPEND_TIME,
}
_RECORD_MEMBER: Final = "value_b64"
_KCAT_MEMBERS: Final = frozenset({"topic", "partition", "offset", "payload"})


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


def _opened(name: str) -> AbstractContextManager[BinaryIO]:
    if name == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    if name.endswith(".gz"):
        return cast("AbstractContextManager[BinaryIO]", gzip.open(name, "rb"))
    return Path(name).open("rb")


def _messages(
    name: str, file: BinaryIO, form: CaptureFormat, first_offset: int
) -> Iterator[Captured]:
    offset = first_offset
    for number, line in enumerate(file, 1):
        text = line.rstrip(b"\r\n")
        if number == 1 and form in ("auto", "records") and text.strip() in (b"{", b"["):
            rest = file.read()
            yield from _pretty(name, line + rest, form, offset)
            return
        if not text.strip() and form != "values":
            continue
        message = _message(f"{name}:{number}", text, form, offset)
        offset += 1
        yield Captured(message, len(line))


def _pretty(name: str, text: bytes, form: CaptureFormat, offset: int) -> Iterator[Captured]:
    """Read a file that is one JSON value over several lines: one record, or an array of them."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    records = value if isinstance(value, list) else [value]
    if all(isinstance(record, dict) and _RECORD_MEMBER in record for record in records):
        for record in records:
            yield Captured(_record(name, record, offset), len(text) // len(records))
            offset += 1
    elif form == "records":
        raise CaptureError(f"{name}: not a record of the binary-safe form")
    else:
        yield Captured(CapturedMessage(at_offset=offset, the_value=text), len(text))


def _message(where: str, text: bytes, form: CaptureFormat, offset: int) -> CapturedMessage:
    if form != "values":
        members = _object(text)
        if form in ("auto", "records") and members and _RECORD_MEMBER in members:
            return _record(where, members, offset)
        if form in ("auto", "kcat") and members and members.keys() >= _KCAT_MEMBERS:
            return _kcat(where, members)
        if form != "auto":
            raise CaptureError(f"{where}: not a line of the form {form!r}")
    return CapturedMessage(at_offset=offset, the_value=text)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _record(where: str, members: dict[str, Any], offset: int) -> CapturedMessage:
    try:
        headers: Headers = [
            (str(key), _base64(value)) for key, value in members.get("headers") or []
        ]
        kind = _TIMESTAMP_TYPES.get(members.get("timestamp_type", ""), TIMESTAMP_NOT_AVAILABLE)
        return CapturedMessage(
            at_topic=str(members.get("topic", "capture")),
            at_partition=int(members.get("partition", 0)),
            at_offset=int(members.get("offset", offset)),
            the_key=_base64(members.get("key_b64")),
            the_value=_base64(members[_RECORD_MEMBER]),
            the_headers=headers,
            timestamp_type=kind,
            timestamp_ms=int(members.get("timestamp", -1)) if kind else -1,
        )
    except (binascii.Error, ValueError, TypeError) as error:
        raise CaptureError(f"{where}: damaged record: {error}") from error


def _base64(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def _kcat(where: str, members: dict[str, Any]) -> CapturedMessage:
    try:
        flat = members.get("headers") or []
        headers: Headers = [
            (str(key), None if value is None else str(value).encode("utf-8", "surrogateescape"))
            for key, value in zip(flat[::2], flat[1::2], strict=True)
        ]
        kind = _TIMESTAMP_TYPES.get(members.get("tstype", ""), TIMESTAMP_NOT_AVAILABLE)
        return CapturedMessage(
            at_topic=str(members["topic"]),
            at_partition=int(members["partition"]),
            at_offset=int(members["offset"]),
            the_key=_bytes(members.get("key")),
            the_value=_bytes(members["payload"]),
            the_headers=headers,
            timestamp_type=kind,
            timestamp_ms=int(members.get("ts", -1)) if kind else -1,
        )
    except (ValueError, TypeError) as error:
        raise CaptureError(f"{where}: damaged kcat line: {error}") from error


def _bytes(text: object) -> bytes | None:
    if text is None:
        return None
    written = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return written.encode("utf-8", "replace")
