"""Finds the format of an entry in the table, and reads its events."""

import binascii
from base64 import b64decode
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw

from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.encoding import inflate
from consumer.core.bodies.entries import split_array
from consumer.core.bodies.json_text import ABSENT, raw_members
from consumer.core.bodies.shapes import NOT_A_RESPONSE
from consumer.core.envelopes.bare import BareBody, refusal
from consumer.core.envelopes.formats import Format, Skip
from consumer.core.envelopes.member_paths import EventMembers, Path, decoded_text, parse_path
from consumer.core.envelopes.members import Members, read_members
from consumer.core.envelopes.native import NativeEnvelope, name_other_answer
from consumer.core.envelopes.whole_event import is_failure, whole_event
from consumer.core.redaction import without_secrets
from consumer.core.response_event import (
    MAX_ID_CHARACTERS,
    BadEvent,
    Event,
    Opened,
    RequestContext,
)
from schemas import BadPayloadReason, OddMember, SkipReason
from schemas.record import MAX_TEXT

# Members of a native event that a row has paths for, beside its body and its labels.
_MEMBERS: Final = (
    "request_id",
    "model",
    "endpoint",
    "instance",
    "status",
    "timestamp",
    "sequence",
    "final",
    "attempt",
)
_TYPES: Final = {ord('"'): "text", ord("{"): "object", ord("["): "array"}
_TYPES.update({ord("t"): "boolean", ord("f"): "boolean"})
_NOT_RESPONSES: Final = (
    BadPayloadReason.BODY_NOT_A_RESPONSE,
    BadPayloadReason.UNRECOGNISED_FORMAT,
)
_ANY: Final = "any"
_NULL: Final = "null"
_BASE64_MARKS: Final = (b"true", b"1")


class FormatReader:
    """Reads the events of one format.

    Args:
        form: the row of the table.
        body_reader: reads the bodies.
        native: completes the events of a format whose entries are parts of a response.
        max_inflated_bytes: maximum size of a body after its compression is undone.

    Attributes:
        form: the row.

    """

    def __init__(
        self, form: Format, body_reader: BodyReader, native: NativeEnvelope, max_inflated_bytes: int
    ) -> None:
        self.form = form
        self._body_reader = body_reader
        self._native = native
        self._bare = BareBody(body_reader)
        self._max_inflated_bytes = max_inflated_bytes
        self._signature = [
            (_alternatives(paths), frozenset(types.split("|")))
            for paths, types in form.signature.items()
        ]
        self._entries = parse_path(form.entries) if form.entries else None
        self._body = tuple(map(parse_path, form.body))
        self._body_base64 = tuple(map(parse_path, form.body_base64))
        self._base64_if = (parse_path(form.base64_if),) if form.base64_if else ()
        self._members = {name: tuple(map(parse_path, getattr(form, name))) for name in _MEMBERS}
        self._labels = {label: _alternatives(path) for label, path in form.labels.items()}
        self._all_labels = (parse_path(form.all_labels),) if form.all_labels else ()
        self._skips = [(_alternatives(skip.path), skip) for skip in form.skips]

    @property
    def first_names(self) -> list[str]:
        """The members of an entry in which the first member of the signature may lie."""
        return [
            ".".join(path[:count])
            for path in self._signature[0][0]
            for count in range(1, len(path) + 1)
        ]

    def matches(self, members: EventMembers) -> bool:
        """Return whether an entry has the members of the signature."""
        return all(_fits(members.first(paths), types) for paths, types in self._signature)

    def open(self, members: EventMembers, value: bytes, limit: int) -> list[Opened]:
        """Read the events of an entry whose members match; none if they say nothing.

        Args:
            members: its members.
            value: its bytes.
            limit: maximum number of events.

        """
        if self._entries is None:
            event = self._open_one(members, value)
            return [] if event is None else [event]
        array = members.at(self._entries)
        entries = split_array(bytes(array), limit) if array is not None else []
        if not isinstance(entries, list):
            return [refusal(entries)]
        return [self._open_entry(entry, members) for entry in entries] or [SkipReason.EMPTY_BATCH]

    def _open_entry(self, entry: bytes, outer: EventMembers) -> Opened:
        members = raw_members(entry)
        if not isinstance(members, dict):
            problem = f"an entry of {self.form.entries} is not an object"
            return BadEvent(BadPayloadReason.INVALID_EVENT, problem)
        return self._open_one(EventMembers(members, outer), entry) or BadEvent(
            BadPayloadReason.INVALID_EVENT, "it has neither a body nor an end marker"
        )

    def _open_one(self, members: EventMembers, value: bytes) -> Opened | None:
        for paths, skip in self._skips:
            if _is_skipped(members.first(paths), skip):
                return skip.reason
        stated = {
            name: raw
            for name, paths in self._members.items()
            if (raw := members.first(paths)) is not None
        }
        if (labels := self._stated_labels(members)) is not None:
            stated["labels"] = labels
        body, is_base64 = self._stated_body(members, value)
        read, odd = read_members(stated)
        if "request_id" in stated and not self.form.whole:
            return self._complete(read, odd, body, value, is_base64=is_base64)
        if read.request_id and len(read.request_id) > MAX_ID_CHARACTERS:
            problem = f"the request id is longer than {MAX_ID_CHARACTERS} characters"
            return BadEvent(BadPayloadReason.INVALID_EVENT, problem)
        text = self._body_bytes(body, is_base64=is_base64)
        if isinstance(text, bytes) and not self.form.whole:
            return self._open_bare(text, value, read, odd)
        event = whole_event(
            self._body_reader,
            text,
            value,
            source="",
            request_id=read.request_id or None,
            time=_time(read),
            failed=is_failure(read.status),
            context=_context(read),
            odd=odd,
        )
        if isinstance(event, BadEvent) and event.reason in _NOT_RESPONSES:
            return self.form.others or event
        return event

    def _complete(
        self,
        read: Members,
        odd: list[OddMember],
        body: Raw | None,
        value: bytes,
        *,
        is_base64: bool,
    ) -> Opened | None:
        """Complete an event that may be a part of a response, as a native event."""
        if body is not None and is_base64:
            read.body_base64 = decoded_text(bytes(body)) or ""
        elif body is not None:
            read.body = self._native.read_body(body)
            if isinstance(read.body, BadPayloadReason):
                return BadEvent(read.body, None, read.request_id)
        event = self._native.complete(read, value, odd)
        if isinstance(event, Event) and event.document and event.shape in NOT_A_RESPONSE:
            name_other_answer(event, _text_of(body or ABSENT))
        return event

    def _open_bare(self, body: bytes, value: bytes, read: Members, odd: list[OddMember]) -> Opened:
        """Open a body that may be a chunk, and whose own id counts."""
        event = self._bare.open(body, value, _context(read))
        if isinstance(event, Event):
            event.time, event.odd = _time(read), odd
            event.failed = is_failure(read.status)
            event.sequence, event.attempt = read.sequence, read.attempt
            event.final = read.final is True
        return event

    def _stated_labels(self, members: EventMembers) -> Raw | None:
        if not self._labels:
            return members.first(self._all_labels)
        found = {
            label: raw
            for label, paths in self._labels.items()
            if (raw := members.first(paths)) is not None
        }
        return Raw(msgspec.json.encode(found)) if found else None

    def _stated_body(self, members: EventMembers, value: bytes) -> tuple[Raw | None, bool]:
        """Return the body as the entry holds it, and whether it is base64."""
        if (join := self.form.join) is not None:
            pieces = members.first(self._body) if self._body else Raw(value)
            return None if pieces is None else Raw(join(bytes(pieces))), False
        if (body := members.first(self._body)) is not None:
            mark = members.first(self._base64_if)
            return body, mark is not None and is_base64_mark(bytes(mark))
        return members.first(self._body_base64), True

    def _body_bytes(self, body: Raw | None, *, is_base64: bool) -> bytes | BadPayloadReason:
        """Return a body as the server sent it, or why it cannot be read."""
        if body is None:
            return b""
        text = _text_of(body)
        if is_base64:
            try:
                text = b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                return BadPayloadReason.INVALID_BASE64
            return inflate(text, None, self._max_inflated_bytes)
        if text.startswith(b'"'):  # A logger encoded the text once more.
            return (decoded_text(text) or "").encode("utf-8", "replace")
        return text


class FormatTable:
    """Finds the format of an entry.

    Args:
        readers: readers of the formats, in the order in which they are tried.

    """

    def __init__(self, readers: Iterable[FormatReader]) -> None:
        self._by_name: dict[str, list[tuple[int, FormatReader]]] = {}
        for order, reader in enumerate(readers):
            for name in reader.first_names:
                self._by_name.setdefault(name, []).append((order, reader))

    def find(self, top: dict[str, Raw], members: EventMembers) -> FormatReader | None:
        """Return the reader of the first format that an entry matches; None if it matches none."""
        names = self._by_name.keys() & top.keys()
        candidates = sorted(
            (one for name in names for one in self._by_name[name]), key=lambda one: one[0]
        )
        return next((reader for _, reader in candidates if reader.matches(members)), None)


def is_base64_mark(raw: bytes) -> bool:
    """Return whether the JSON value of a member says that the body is base64."""
    return raw in _BASE64_MARKS or raw.strip(b'"').lower() in (b"base64", b"true")


def _text_of(body: Raw) -> bytes:
    """Return a body as JSON, or the text that it is."""
    raw = bytes(body)
    return (decoded_text(raw) or "").encode("utf-8", "replace") if raw.startswith(b'"') else raw


def _time(read: Members) -> int | None:
    return read.timestamp if isinstance(read.timestamp, int) else None


def _alternatives(paths: str) -> tuple[Path, ...]:
    return tuple(map(parse_path, paths.split(" | ")))


def _context(read: Members) -> RequestContext:
    return RequestContext(
        read.model[:MAX_TEXT] if read.model else None,
        without_secrets(read.instance),
        without_secrets(read.endpoint),
        read.labels or None,
    )


def _fits(raw: Raw | None, types: frozenset[str]) -> bool:
    """Return whether a member has one of the types; null is that of an absent one."""
    if raw is None:
        return _NULL in types
    return _ANY in types or _TYPES.get(memoryview(raw)[0], "number") in types


def _is_skipped(raw: Raw | None, skip: Skip) -> bool:
    if raw is None or skip.absent:
        return raw is None and skip.absent
    return not skip.values or _plain(raw) in skip.values


def _plain(raw: Raw) -> str:
    """Return text as it is, and any other value as JSON writes it."""
    text = bytes(raw)
    return (decoded_text(text) or "") if text.startswith(b'"') else text.decode("utf-8", "replace")
