"""The native event: the project's own contract, JSON with the response or a chunk in `body`."""

import binascii
from base64 import b64decode
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, defstruct

from consumer.core.bodies.body_reader import BOM_AND_SPACE, DONE, BodyReader
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.json_text import (
    ABSENT,
    is_cut_off,
    loads_tolerantly,
    raw_json,
    why_not_json,
)
from consumer.core.bodies.other_apis import is_framework_error, members_of, other_api
from consumer.core.bodies.shapes import NOT_A_RESPONSE, Shape, shape_of
from consumer.core.bodies.sse import looks_like_sse
from consumer.core.redaction import without_secrets
from consumer.core.response_event import (
    CUT_OFF,
    MAX_ID_CHARACTERS,
    NOT_JSON,
    BadEvent,
    Content,
    DecodeContent,
    Event,
    EventKind,
    Opened,
    RequestContext,
)
from consumer.core.times import milliseconds
from schemas import BadPayloadReason, IncompleteReason, SkipReason
from schemas.record import MAX_COUNT, MAX_LABELS, MAX_TEXT

_MARK: Final = b'"request_id"'
_ESCAPE: Final = b"\\u00"  # The name of a member may be written with these.
_CHUNK: Final = EventKind.CHUNK  # Not looked up for each event: see CONTRIBUTING.md.
_UNKNOWN: Final = Shape.UNKNOWN
_FIRST_ERROR_STATUS: Final = 400
_WHY_NOT_JSON: Final[dict[object, BadEvent]] = {
    IncompleteReason.TRUNCATED: CUT_OFF,
    BadPayloadReason.INVALID_JSON: NOT_JSON,
}
_MARKING_MEMBERS: Final = frozenset({"body", "body_base64", "final"})
# Members that an event of mere content leaves unset, beside `final`.
_UNSET: Final = ("attempt", "model", "instance", "endpoint", "status", "labels", "body_base64")


class _Wire(Struct, gc=False):
    """The members of an event; `schemas.ResponseEvent` documents them."""

    request_id: str
    body_base64: str | None = None
    sequence: int | None = None
    final: bool | None = None
    timestamp: int | str | None = None
    attempt: int | None = None
    model: str | None = None
    instance: str | None = None
    endpoint: str | None = None
    status: int | None = None
    labels: dict[str, str] | None = None
    body: Any = None


class _Mark(Struct, gc=False):
    """The member that makes an object a native event."""

    request_id: msgspec.Raw


_decode_mark: Final = msgspec.json.Decoder(_Mark).decode
_decode_members: Final = msgspec.json.Decoder(_Wire).decode


class NativeEnvelope:
    """Reads native events, envelope and body in one pass.

    Args:
        body_reader: reads the bodies.

    Attributes:
        decode_content: decodes an event of mere content; raises for any other.

    """

    def __init__(self, body_reader: BodyReader) -> None:
        self._body_reader = body_reader
        self._documents = body_reader.document_reader
        self._document_type = document = self._documents.document_type
        body = ("body", document | str | list[Any] | None, None)
        wire: Any = defstruct("NativeWire", [body], bases=(_Wire,), gc=False)
        self._decode = msgspec.json.Decoder(wire).decode
        # In the order of most producers, since the decoder tries the next field first.
        members: list[Any] = [
            ("body", self._documents.content_type),
            ("final", Literal[False] | None, None),
            *((name, None, None) for name in _UNSET),
        ]
        content: Any = defstruct("NativeContent", members, bases=(Content,), gc=False, kw_only=True)
        self.decode_content: DecodeContent = msgspec.json.Decoder(content).decode

    def open(self, value: bytes) -> Opened | None:
        """Read one event.

        Returns:
            - None if the value is not a native event;
            - the very objects `CUT_OFF` or `NOT_JSON` if it has the mark of one, but is not one
              JSON value, so that it may be several lines of another envelope;
            - else the event, or why it is refused.

        """
        if not value.startswith(b"{"):
            value = value.lstrip(BOM_AND_SPACE)
            if not value.startswith(b"{"):
                return None
        # By `find`, since CPython's `in` tries bytes as a number first, which takes longer.
        if value.find(_MARK) < 0 and not _has_escaped_mark(value):
            return None
        try:
            wire = self._decode(value)
        except msgspec.MsgspecError as error:
            return CUT_OFF if is_cut_off(error) else self._open_tolerantly(value)
        except RecursionError:
            return BadEvent(BadPayloadReason.TOO_DEEP)
        return self._event(wire, value)

    def _open_tolerantly(self, value: bytes) -> Opened | None:
        members = loads_tolerantly(value)
        if members is BadPayloadReason.INVALID_JSON:
            return _WHY_NOT_JSON.get(why_not_json(value))
        if not isinstance(members, dict) or "request_id" not in members:
            return None
        if members.keys().isdisjoint(_MARKING_MEMBERS) and type(members.get("status")) is not int:
            return None
        body = members.pop("body", None)
        try:
            wire = _decode_members(raw_json(members))
        except msgspec.DecodeError as error:
            return BadEvent(BadPayloadReason.INVALID_EVENT, str(error))
        if body is not None and not isinstance(body, dict | list | str):
            problem = "body is not an object, array or string"
            return BadEvent(BadPayloadReason.INVALID_EVENT, problem)
        wire.body = self._documents.from_value(body) if isinstance(body, dict) else body
        return self._event(wire, value)

    def _event(self, wire: _Wire, value: bytes) -> Opened | None:
        if (problem := _problem(wire)) is not None:
            request_id = wire.request_id[:MAX_TEXT] or None
            return BadEvent(BadPayloadReason.INVALID_EVENT, problem, request_id)
        body = wire.body
        document = body if isinstance(body, self._document_type) else None
        event = Event(
            _CHUNK,
            "",
            wire.request_id,
            value,
            document,
            _UNKNOWN if document is None else shape_of(document),
            sequence=wire.sequence,
            final=wire.final is True,
            attempt=wire.attempt,
            time=None if wire.timestamp is None else milliseconds(wire.timestamp),
            failed=wire.status is not None and wire.status >= _FIRST_ERROR_STATUS,
            context=_context(wire),
        )
        if document is None:
            return self._with_other_body(event, wire)
        return event if event.shape not in NOT_A_RESPONSE else _with_other_answer(event, value)

    def _with_other_body(self, event: Event, wire: _Wire) -> Opened | None:
        """Complete an event whose body is not one document; return None if it has no meaning."""
        if isinstance(wire.body, list):
            return self._with_array(event, wire.body)
        if isinstance(wire.body, str):
            return self._with_text(event, wire.body)
        if wire.body_base64 is None:
            return _without_body(event) if event.final or event.failed else None
        try:
            event.segment = b64decode(wire.body_base64, validate=True)
        except (binascii.Error, ValueError):
            problem = "body_base64 is not valid base64"
            return BadEvent(BadPayloadReason.INVALID_BASE64, problem, event.request_id)
        event.kind = EventKind.SEGMENT
        return event

    def _with_array(self, event: Event, entries: list[Any]) -> Opened:
        """Complete an event of several answers or of a collected stream, which is always whole."""
        event.kind = EventKind.WHOLE
        event.facts = ResponseFacts()
        reason = self._body_reader.fold_array(event.facts, entries)
        if isinstance(reason, BadPayloadReason) and not event.failed:
            return BadEvent(reason, None, event.request_id)
        if isinstance(reason, SkipReason):
            return reason
        event.facts.ended = event.facts.ended or event.final
        return event

    def _with_text(self, event: Event, body: str) -> Opened:
        """Complete an event of an end marker, a document, or whole lines."""
        text = body.encode("utf-8", "replace").lstrip(BOM_AND_SPACE)
        if not text:
            return _without_body(event)
        if text.rstrip() == DONE:
            event.kind = EventKind.END
            return event
        text += b"\n\n"  # The last line may come without its end.
        if text.startswith(b"{"):
            document = self._documents.read(text)
            if not isinstance(document, BadPayloadReason):
                event.document, event.shape = document, shape_of(document)
                return event
        if text.startswith((b"{", b"[", b"<")) or looks_like_sse(text):
            event.kind, event.segment = EventKind.SEGMENT, text
            return event
        if event.failed:  # A failed response may have a plain-text body.
            return _without_body(event)
        problem = "body is neither JSON nor server-sent events"
        return BadEvent(BadPayloadReason.BODY_NOT_A_RESPONSE, problem, event.request_id)


def _with_other_answer(event: Event, value: bytes) -> Event:
    """Complete an event whose document is not a completion: of another API, or an error."""
    body = bytes(members_of(value).get("body", ABSENT))
    answer = members_of(body)
    event.other_api = other_api(answer)
    event.shape = Shape.ERROR if is_framework_error(answer) else event.shape
    return event


def _has_escaped_mark(value: bytes) -> bool:
    """Return whether a JSON object has the member that native events must have, with escapes."""
    if value.find(_ESCAPE) < 0:
        return False
    try:
        _decode_mark(value)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _without_body(event: Event) -> Event:
    """Complete an event without a body: an end marker, a failure, or a sign of activity."""
    event.kind = EventKind.END if event.final and not event.failed else EventKind.SEGMENT
    return event


def _context(wire: _Wire) -> RequestContext | None:
    """Return the members that describe the request, no longer than a record keeps them."""
    labels = wire.labels
    if not (wire.model or wire.instance or wire.endpoint or labels):
        return None
    if labels is not None and len(labels) > MAX_LABELS:
        labels = dict(list(labels.items())[:MAX_LABELS])
    return RequestContext(
        wire.model[:MAX_TEXT] if wire.model else None,
        without_secrets(wire.instance),
        without_secrets(wire.endpoint),
        labels,
    )


def _problem(wire: _Wire) -> str | None:
    """Return what is wrong with the values of the members, or None."""
    if not wire.request_id:
        return "request_id is empty"
    if len(wire.request_id) > MAX_ID_CHARACTERS:
        return f"request_id is longer than {MAX_ID_CHARACTERS} characters"
    if wire.sequence is not None and not 0 <= wire.sequence <= MAX_COUNT:
        return "sequence is negative or too large"
    if wire.attempt is not None and not 0 <= wire.attempt <= MAX_COUNT:
        return "attempt is negative or too large"
    if wire.body is not None and wire.body_base64 is not None:
        return "body and body_base64 are both set"
    return None
