"""The native event: the project's own contract, JSON with the response or a chunk in `body`."""

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct, defstruct

from consumer.core.bodies.body_reader import BOM_AND_SPACE, DONE, BodyReader
from consumer.core.bodies.density import SMALL, has_dense_objects
from consumer.core.bodies.documents import Document
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.json_text import (
    ABSENT,
    is_cut_off,
    is_set,
    loads,
    raw_members,
    why_not_json,
)
from consumer.core.bodies.other_apis import is_framework_error, members_of, other_api
from consumer.core.bodies.shapes import NOT_A_RESPONSE, Shape, shape_of
from consumer.core.bodies.sse import looks_like_sse
from consumer.core.envelopes.members import MAX_STATUS, Members, read_members, text_of
from consumer.core.redaction import without_secrets
from consumer.core.response_event import (
    CUT_OFF,
    MAX_ID_CHARACTERS,
    NOT_JSON,
    TOO_DENSE,
    BadEvent,
    Content,
    DecodeContent,
    Event,
    EventKind,
    Opened,
    RequestContext,
)
from consumer.core.times import event_time
from schemas import BadPayloadReason, IncompleteReason, OddMember, SkipReason
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
_NOT_ODD: Final = ()
_MARKING_MEMBERS: Final = frozenset({"body", "body_base64", "final"})
# Members that an event of mere content leaves unset, beside `final`.
_UNSET: Final = ("attempt", "model", "instance", "endpoint", "status", "labels", "body_base64")


class _Mark(Struct, gc=False):
    """The member that makes an object a native event."""

    request_id: msgspec.Raw


_decode_mark: Final = msgspec.json.Decoder(_Mark).decode


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
        wire: Any = defstruct(
            "NativeWire", [("request_id", str), body], bases=(Members,), gc=False, kw_only=True
        )
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
        if len(value) > SMALL and has_dense_objects(value):
            return TOO_DENSE
        try:
            members = self._decode(value)
        except msgspec.MsgspecError as error:
            return CUT_OFF if is_cut_off(error) else self._open_leniently(value)
        except RecursionError:
            return BadEvent(BadPayloadReason.TOO_DEEP)
        stated = members.timestamp
        time = None if stated is None else event_time(stated)
        if _has_odd(members, time):
            return self._open_leniently(value)
        return self._complete(members, time, value, _NOT_ODD)

    def complete(
        self, members: Members, value: bytes, odd: Sequence[OddMember] = _NOT_ODD
    ) -> Opened | None:
        """Make an event of members that `read_members` has read, and a body of `read_body`.

        Args:
            members: the members.
            value: bytes of the event.
            odd: the members that were ignored.

        Returns:
            the event, or why it is refused; None if it has neither a body nor another meaning.

        """
        time = members.timestamp
        return self._complete(members, time if isinstance(time, int) else None, value, odd)

    def read_body(self, raw: Raw) -> Document | list[Any] | str | BadPayloadReason | None:
        """Read a body that is JSON: a document, the entries of an array, text, or null."""
        if not is_set(raw):
            return None
        text = bytes(raw)
        if text.startswith(b"{"):
            return self._documents.read(text)
        value = loads(text)
        known = isinstance(value, list | str | BadPayloadReason)
        return value if known else BadPayloadReason.INVALID_EVENT

    def _open_leniently(self, value: bytes) -> Opened | None:
        raw = raw_members(value)
        if raw is BadPayloadReason.TOO_DENSE:
            return TOO_DENSE
        if raw is BadPayloadReason.INVALID_JSON:
            return _WHY_NOT_JSON.get(why_not_json(value))
        if not isinstance(raw, dict) or "request_id" not in raw:
            return None
        members, odd = read_members(raw)
        if raw.keys().isdisjoint(_MARKING_MEMBERS) and members.status is None:
            return None
        encoded, text = raw.get("body_base64", ABSENT), None
        if is_set(encoded) and (text := text_of(bytes(encoded))) is None:
            return _not_an_event("body_base64 is not a string", members.request_id)
        body = self.read_body(raw.get("body", ABSENT))
        if body is BadPayloadReason.INVALID_EVENT:
            return _not_an_event("body is not an object, array or string", members.request_id)
        if isinstance(body, BadPayloadReason):
            return BadEvent(body, None, members.request_id)
        members.body, members.body_base64 = body, text
        return self.complete(members, value, odd)

    def _complete(
        self, members: Members, time: int | None, value: bytes, odd: Sequence[OddMember]
    ) -> Opened | None:
        request_id, body = members.request_id, members.body
        if not request_id or len(request_id) > MAX_ID_CHARACTERS or (body and members.body_base64):
            return _refused(members)
        document = body if isinstance(body, self._document_type) else None
        event = Event(
            _CHUNK,
            "",
            request_id,
            value,
            document,
            _UNKNOWN if document is None else shape_of(document),
            sequence=members.sequence,
            final=members.final is True,
            attempt=members.attempt,
            time=time,
            failed=members.status is not None and members.status >= _FIRST_ERROR_STATUS,
            context=_context(members),
            odd=odd,
        )
        if document is None:
            return self._with_other_body(event, members)
        if document.choices is not None and len(document.choices) > self._documents.max_choices:
            return BadEvent(BadPayloadReason.TOO_MANY_CHOICES, None, request_id)
        if event.shape in NOT_A_RESPONSE:
            name_other_answer(event, bytes(members_of(value).get("body", ABSENT)))
        return event

    def _with_other_body(self, event: Event, members: Members) -> Opened | None:
        """Complete an event whose body is not one document; return None if it has no meaning."""
        body, encoded = members.body, members.body_base64
        if isinstance(body, list):
            return self._with_array(event, body)
        if isinstance(body, str) and not encoded:
            return self._with_text(event, body)
        if encoded is None:
            return _without_body(event) if event.final or event.failed else None
        try:
            event.segment = b64decode(encoded, validate=True)
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
        """Complete an event of an end marker, a document, or text that may be cut anywhere."""
        piece = body.encode("utf-8", "replace")
        text = piece.lstrip(BOM_AND_SPACE)
        if not text:
            event.segment = piece
            return _without_body(event)
        if text.rstrip() == DONE:
            event.kind = EventKind.END
            return event
        if text.startswith(b"{"):
            document = self._documents.read(text)
            if not isinstance(document, BadPayloadReason):
                event.document, event.shape, event.segment = document, shape_of(document), piece
                return event
        if not (text.startswith((b"{", b"[", b"<")) or looks_like_sse(text)):
            if event.failed:  # A failed response may have a plain-text body.
                return _without_body(event)
            event.continues = True
        event.kind = EventKind.SEGMENT
        event.segment = piece
        return event


def name_other_answer(event: Event, body: bytes) -> None:
    """Complete an event whose body is not a completion: an answer of another API, or an error."""
    answer = members_of(body)
    event.other_api = other_api(answer)
    event.shape = Shape.ERROR if is_framework_error(answer) else event.shape


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


def _context(members: Members) -> RequestContext | None:
    """Return the members that describe the request, no longer than a record keeps them."""
    labels = members.labels
    if not (members.model or members.instance or members.endpoint or labels):
        return None
    if labels is not None and len(labels) > MAX_LABELS:
        labels = dict(list(labels.items())[:MAX_LABELS])
    return RequestContext(
        members.model[:MAX_TEXT] if members.model else None,
        without_secrets(members.instance or None),
        without_secrets(members.endpoint or None),
        labels,
    )


def _has_odd(members: Members, time: int | None) -> bool:
    """Return whether an optional member of the right type has a value that must be ignored.

    Args:
        members: the members.
        time: what their timestamp says.

    """
    sequence, attempt, status = members.sequence, members.attempt, members.status
    return (
        (sequence is not None and not 0 <= sequence <= MAX_COUNT)
        or (attempt is not None and not 0 <= attempt <= MAX_COUNT)
        or (status is not None and not 0 <= status <= MAX_STATUS)
        or (time is None and members.timestamp is not None)
    )


def _refused(members: Members) -> BadEvent:
    """Return what is wrong with the members that an event cannot do without."""
    request_id = members.request_id
    if request_id is None:
        problem = "request_id is neither text nor an integer"
    elif not request_id:
        problem = "request_id is empty"
    elif len(request_id) > MAX_ID_CHARACTERS:
        problem = f"request_id is longer than {MAX_ID_CHARACTERS} characters"
    else:
        problem = "body and body_base64 are both set"
    return _not_an_event(problem, request_id)


def _not_an_event(problem: str, request_id: str | None) -> BadEvent:
    known = request_id[:MAX_TEXT] if request_id else None
    return BadEvent(BadPayloadReason.INVALID_EVENT, problem, known)
