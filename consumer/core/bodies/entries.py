"""Splits a value that holds several JSON documents.

Documents may stand in an array, in lines, or one after another with line ends inside. Each byte is
scanned a fixed number of times, whatever the value is: a document is found by decoding from its
first byte, and once one is damaged, each following line stands alone.
"""

import json
import re
from typing import Final

import msgspec
from msgspec import Raw

from consumer.core.bodies.density import has_dense_values
from consumer.core.bodies.json_text import loads_tolerantly, raw_json, why_not_json
from schemas import BadPayloadReason, IncompleteReason

_decode_raw: Final = msgspec.json.Decoder(Raw).decode
_scan_tolerantly: Final = json.JSONDecoder(strict=False).raw_decode
# The message of msgspec's error after a whole document; the position is one too large.
_TRAILING: Final = re.compile(r"JSON is malformed: trailing characters \(byte ([0-9]+)\)")
_LINE: Final = re.compile(rb"[^\r\n]*[^\s][^\r\n]*")
_NOT_SPACE: Final = re.compile(r"\S")
_SPACE: Final = b" \t\r\n"

Entries = list[bytes]


def split_documents(text: bytes, limit: int) -> Entries | BadPayloadReason:
    """Return the documents that stand one after another, each on one or several lines.

    A damaged document, and whatever else is not JSON, is returned line by line.

    Args:
        text: the text, which begins like JSON.
        limit: maximum number of documents.

    """
    view, at, line_end = memoryview(text), 0, 0
    entries: Entries = []
    while at < len(text):
        if len(entries) == limit:
            return BadPayloadReason.TOO_MANY_ENTRIES
        if line_end <= at:
            line_end = text.find(b"\n", at) + 1 or len(text)
        # Nearly always a line is a document, and one that decodes raises no error.
        end = line_end if _is_document(view[at:line_end]) else _end_of_document(view, at)
        if end is None:
            return _add_damaged(entries, text[at:], limit)
        entries.append(text[at:end].rstrip(_SPACE))
        at = end
    return entries


def split_array(text: bytes, limit: int) -> Entries | BadPayloadReason | IncompleteReason:
    """Return the entries of a text that is one JSON array, or why it cannot be read.

    Args:
        text: the text, from the bracket on.
        limit: maximum number of entries.

    """
    view, at = memoryview(text), 1
    if text[1:].lstrip(_SPACE).startswith(b"]"):
        return []
    entries: Entries = []
    while (end := _end_of_document(view, at)) is not None and end < len(text):
        if len(entries) == limit:
            return BadPayloadReason.TOO_MANY_ENTRIES
        entries.append(text[at:end].strip(_SPACE))
        if view[end] == ord("]") and not text[end + 1 :].strip(_SPACE):
            return entries
        if view[end] != ord(","):
            break
        at = end + 1
    parsed = loads_tolerantly(text)
    if parsed is BadPayloadReason.TOO_DENSE:
        return BadPayloadReason.TOO_DENSE
    if not isinstance(parsed, list):
        return why_not_json(text)
    if len(parsed) > limit:
        return BadPayloadReason.TOO_MANY_ENTRIES
    return [bytes(raw_json(entry)) for entry in parsed]


def _is_document(text: memoryview) -> bool:
    try:
        _decode_raw(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _end_of_document(view: memoryview, at: int) -> int | None:
    """Return where the text after a document begins, or its length; None if it is damaged."""
    try:
        _decode_raw(view[at:])
    except msgspec.DecodeError as error:
        found = _TRAILING.fullmatch(str(error))
        return at + int(found[1]) - 1 if found else None
    except RecursionError:
        return None
    return len(view)


def _add_damaged(entries: Entries, rest: bytes, limit: int) -> Entries | BadPayloadReason:
    """Add what the strict decoder refuses: documents as the field writes them, else lines."""
    if has_dense_values(rest):
        return BadPayloadReason.TOO_DENSE
    rest = _add_tolerated(entries, rest, limit)
    for line in _LINE.finditer(rest):
        if len(entries) >= limit:
            return BadPayloadReason.TOO_MANY_ENTRIES
        entries.append(line[0].strip(_SPACE))
    return entries


def _add_tolerated(entries: Entries, rest: bytes, limit: int) -> bytes:
    """Add documents with NaN, control characters and the like; return the text after them."""
    text, at = rest.decode("utf-8", "replace"), 0
    while len(entries) < limit and (begin := _NOT_SPACE.search(text, at)) is not None:
        try:
            _, at = _scan_tolerantly(text, begin.start())
        except (ValueError, RecursionError):
            break
        entries.append(text[begin.start() : at].encode("utf-8", "replace"))
    return text[at:].encode("utf-8", "replace")
