"""HAR files, in which browsers and proxies export requests with their responses."""

from base64 import b64decode
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from consumer.commands.captures.lines import Block
from consumer.commands.captures.messages import CaptureError
from consumer.core.message import TIMESTAMP_CREATE_TIME

_MARK: Final = b'"entries"'
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


def har_responses(where: str, line: int, members: object) -> list[Block] | None:
    """Return the responses of a HAR file; None if the JSON is not one.

    Args:
        where: file and line, for an error.
        line: number of the line.
        members: the JSON.

    Raises:
        CaptureError: the file is damaged.

    """
    match members:
        case {"log": {"entries": list(entries)}}:
            blocks = (_entry_block(line, entry) for entry in entries)
        case _:
            return None
    try:
        return [block for block in blocks if block is not None]
    except (msgspec.ValidationError, ValueError) as error:
        raise CaptureError(f"{where}: damaged HAR file: {error}") from error


def may_be_har(text: bytes) -> bool:
    """Return whether JSON has the member that every HAR file has."""
    return _MARK in text


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


def _created(milliseconds: int) -> dict[str, Any]:
    if milliseconds <= 0:
        return {}
    return {"timestamp_type": TIMESTAMP_CREATE_TIME, "timestamp_ms": milliseconds}


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
