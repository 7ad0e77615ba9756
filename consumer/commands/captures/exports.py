"""Exports of programs that hold a request with its response: HAR files, AIPerf's raw records."""

import json
from base64 import b64decode
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from consumer.commands.captures.lines import Block
from consumer.commands.captures.messages import CaptureError
from consumer.core.message import TIMESTAMP_CREATE_TIME

_MARKS: Final = (b'"entries"', b'"responses"')
_NANOSECONDS: Final = 1_000_000
# Of a page's other files, none can be a response of an engine.
_MEDIA_TYPES: Final = ("json", "event-stream", "text/plain", "octet-stream")


class _Content(Struct, frozen=True):
    text: str = ""
    encoding: str = ""
    mime_type: str = field(default="", name="mimeType")


class _Response(Struct, frozen=True):
    content: _Content = _Content()


class _Entry(Struct):
    """A request and its response, in HAR 1.2."""

    response: _Response = _Response()
    started: Any = field(default=None, name="startedDateTime")
    milliseconds: Any = field(default=None, name="time")


class _SseField(Struct):
    name: str
    value: str | None = None


class _Piece(Struct):
    """A response of AIPerf: a text, or a server-sent event."""

    text: str = ""
    packets: list[_SseField] = []


class _Metadata(Struct):
    x_request_id: str | None = None
    request_end_ns: int = 0


class _RawRecord(Struct):
    """A request with its responses as AIPerf 0.13 writes it with `--export-level raw`."""

    metadata: _Metadata
    responses: list[_Piece]
    status: int | None = None
    error: dict[str, Any] | None = None


def exported(where: str, line: int, members: object) -> list[Block] | None:
    """Return the responses of an export; None if the JSON is not an export.

    Args:
        where: file and line, for an error.
        line: number of the line.
        members: the JSON.

    Raises:
        CaptureError: the export is damaged.

    """
    match members:
        case {"log": {"entries": list(entries)}}:
            read = _entry_block
        case {"metadata": dict(), "responses": list(), "start_perf_ns": int()}:
            entries, read = [members], _aiperf_block
        case _:
            return None
    try:
        return [block for entry in entries if (block := read(line, entry)) is not None]
    except (msgspec.ValidationError, ValueError) as error:
        raise CaptureError(f"{where}: damaged export: {error}") from error


def may_be_export(text: bytes) -> bool:
    """Return whether JSON has the member that every export has."""
    return any(mark in text for mark in _MARKS)


def _entry_block(line: int, entry: object) -> Block | None:
    """Return the response of an entry of a HAR file; None if it cannot be an engine's."""
    found = msgspec.convert(entry, _Entry)
    content = found.response.content
    mime_type = content.mime_type.lower()
    if not content.text or (mime_type and not any(one in mime_type for one in _MEDIA_TYPES)):
        return None
    is_base64 = content.encoding == "base64"
    value = b64decode(content.text, validate=True) if is_base64 else _encode(content.text)
    members: dict[str, Any] = {}
    with suppress(ValueError, TypeError, OverflowError):
        ended = datetime.fromisoformat(found.started).timestamp() * 1000
        members = _created(int(ended + max(found.milliseconds or 0, 0)))
    return Block(line, value, members)


def _aiperf_block(line: int, entry: object) -> Block:
    """Return a request of AIPerf as a native event, with the id that AIPerf gave it."""
    found = msgspec.convert(entry, _RawRecord)
    event: dict[str, Any] = {"request_id": found.metadata.x_request_id, "final": True}
    if found.status is not None:
        event["status"] = found.status
    if found.responses:
        event["body"] = "".join(map(_piece_text, found.responses))
    elif found.error is not None:
        event["body"] = {"error": found.error}
    value = {name: member for name, member in event.items() if member is not None}
    ended = found.metadata.request_end_ns // _NANOSECONDS
    return Block(line, _encode(json.dumps(value, ensure_ascii=False)), _created(ended))


def _piece_text(piece: _Piece) -> str:
    if not piece.packets:
        return piece.text
    return "".join(map(_sse_line, piece.packets)) + "\n"


def _sse_line(packet: _SseField) -> str:
    name = "" if packet.name == "comment" else packet.name
    return f"{name}\n" if packet.value is None else f"{name}: {packet.value}\n"


def _created(milliseconds: int) -> dict[str, Any]:
    if milliseconds <= 0:
        return {}
    return {"timestamp_type": TIMESTAMP_CREATE_TIME, "timestamp_ms": milliseconds}


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
