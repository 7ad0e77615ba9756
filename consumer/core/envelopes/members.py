"""The members of an event, read from JSON of any type.

A producer that writes "7" for 7 costs no record: what means the same is read, and any other value
of an optional member is ignored and named as odd.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from consumer.core.bodies.json_text import (
    is_set,
    loads_tolerantly,
    raw_members,
    without_surrogates,
)
from consumer.core.times import UNSET_TIMES, event_time
from schemas import BadPayloadReason, OddMember
from schemas.record import MAX_COUNT, MAX_LABELS, MAX_TEXT

MAX_STATUS: Final = 999  # A status has three digits; longer numbers are codes of other protocols.
_EMPTY_TEXT: Final = b'""'
_INTEGER: Final = re.compile(rb"-?[0-9]{1,64}")  # A longer one is neither a count nor an id.
_NUMBER: Final = re.compile(rb"-?[0-9][0-9.eE+-]{0,63}")
_COUNT: Final = re.compile(r"([0-9]{1,19})(?:\.0*)?")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_BOOLEANS: Final = (b"true", b"false")
_decode: Final = msgspec.json.Decoder().decode


class Members(Struct, gc=False):
    """The members of an event; `schemas.ResponseEvent` documents them.

    `read_members` sets all but the body: a document, the entries of an array, or text.
    """

    request_id: str | None = None
    sequence: int | None = None
    final: bool | None = None
    timestamp: int | float | str | None = None
    attempt: int | None = None
    model: str | None = None
    instance: str | None = None
    endpoint: str | None = None
    status: int | None = None
    labels: dict[str, str] | None = None
    body_base64: str | None = None
    body: Any = None


def read_members(raw: Mapping[str, Raw]) -> tuple[Members, list[OddMember]]:
    """Read the members of an event.

    Args:
        raw: members by their names in the native event; other names do not matter.

    Returns:
        the members, with the timestamp in milliseconds since 1970, and with a request id only if
        it is text or an integer; and the optional members of which a value was ignored.

    """
    members, odd = Members(), list[OddMember]()
    if (request_id := raw.get("request_id")) is not None:
        members.request_id = _id(bytes(request_id))
    for member, read in _READERS.items():
        value = raw.get(member)
        if value is None or not is_set(value):
            continue
        text = bytes(value)
        if text == _EMPTY_TEXT or (member == "timestamp" and _stated_time(text) in UNSET_TIMES):
            continue
        found = read(text)
        setattr(members, member, found)
        if found is None:
            odd.append(member)
    if (value := raw.get("labels")) is not None and is_set(value):
        entries = raw_members(bytes(value))
        if isinstance(entries, dict):
            members.labels, ignored = read_labels(entries)
        else:
            ignored = entries != []  # Lua and PHP write an empty object so.
        if ignored:
            odd.append(OddMember.LABELS)
    return members, odd


def read_labels(raw: Mapping[str, Raw]) -> tuple[dict[str, str], bool]:
    """Read labels; numbers and booleans become text.

    Returns:
        the labels, no more than a record keeps; and whether a value was ignored, since it is
        neither text, number, boolean nor null.

    """
    labels, ignored = dict[str, str](), False
    for name, value in raw.items():
        if not is_set(value):
            continue
        text = _text(bytes(value))
        if text is None:
            ignored = True
        elif len(labels) < MAX_LABELS:
            labels[name] = text[:MAX_TEXT]
    return labels, ignored


def text_of(raw: bytes) -> str | None:
    """Return the text of a JSON string; None for any other value."""
    return _text(raw) if raw.startswith(b'"') else None


def _id(raw: bytes) -> str | None:
    return _text(raw) if raw.startswith(b'"') or _INTEGER.fullmatch(raw) else None


def _text(raw: bytes) -> str | None:
    """Return text as it is, a number as written, a boolean as true or false, else None."""
    if raw.startswith(b'"'):
        try:
            value = _decode(raw)
        except msgspec.MsgspecError:
            value = loads_tolerantly(raw)
        if isinstance(value, BadPayloadReason) or not isinstance(value, str):
            return None
        return without_surrogates(value)
    return raw.decode() if raw in _BOOLEANS or _NUMBER.fullmatch(raw) else None


def _count(raw: bytes) -> int | None:
    found = _COUNT.fullmatch(_text(raw) or "")
    return int(found[1]) if found and int(found[1]) <= MAX_COUNT else None


def _status(raw: bytes) -> int | None:
    status = _count(raw)
    return status if status is not None and status <= MAX_STATUS else None


def _flag(raw: bytes) -> bool | None:
    return _FLAGS.get((_text(raw) or "").lower())


def _stated_time(raw: bytes) -> object:
    """Return a time as it is stated: text or a number; None if it is neither."""
    text = _text(raw)
    if text is None or not _NUMBER.fullmatch(raw):
        return text
    return int(text) if _INTEGER.fullmatch(raw) else float(text)


def _time(raw: bytes) -> int | None:
    return event_time(_stated_time(raw))


_READERS: Final[Mapping[OddMember, Callable[[bytes], str | int | None]]] = {
    OddMember.SEQUENCE: _count,
    OddMember.FINAL: _flag,
    OddMember.TIMESTAMP: _time,
    OddMember.ATTEMPT: _count,
    OddMember.MODEL: text_of,
    OddMember.INSTANCE: text_of,
    OddMember.ENDPOINT: text_of,
    OddMember.STATUS: _status,
}
