"""One response event, the same for every envelope."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from consumer.core.bodies.documents import ContentChunk, Document
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import Shape
from consumer.core.times import FIRST_EVENT_MS, LAST_EVENT_MS
from schemas import BadPayloadReason, IncompleteReason, OddMember, SkipReason
from schemas.record import MAX_COUNT


class EventKind(IntEnum):
    """What part of a response the event carries."""

    CHUNK = 0  # One document, of a stream or alone.
    SEGMENT = 1  # Raw bytes of a body, cut anywhere.
    END = 2  # Only an end marker.
    WHOLE = 3  # The whole response.


class RequestContext(Struct, frozen=True, gc=False):
    """What the envelope says about the request; any member may be unknown."""

    model: str | None = None
    instance: str | None = None
    endpoint: str | None = None
    labels: dict[str, str] | None = None
    traceparent: str | None = None


class Event(Struct, gc=False):
    """One response event.

    Attributes:
        kind: what the event carries.
        source: the producer, where ids are unique only to it (CloudEvents); else empty.
        request_id: id in the envelope, else in the body; null only on whole responses.
        raw: bytes of the event, which distinguish a repeat from another event.
        document: document of a `CHUNK`.
        shape: shape of that document.
        other_api: the API that the document is an answer of, where it is not a completion.
        segment: bytes of a `SEGMENT`; of a `CHUNK`, its text, where it may be a segment as well.
        facts: facts of a `WHOLE`.
        incomplete: why the body of a `WHOLE` could not be read to its end.
        sequence: place among the events of its attempt, from 0.
        final: whether this is the attempt's last event.
        attempt: attempt that the event states.
        time: when the server sent it, in milliseconds since 1970.
        failed: whether the envelope's status is an error.
        context: what the envelope says about the request.
        odd: optional members of which a value was ignored.
        lacks_end: whether its stream has no end marker, as that of bare chunks.
        continues: whether the segment means nothing without the text before it.

    """

    kind: EventKind
    source: str
    request_id: str | None
    raw: bytes
    document: Document | None = None
    shape: Shape = Shape.UNKNOWN
    segment: bytes = b""
    facts: ResponseFacts | None = None
    incomplete: IncompleteReason | None = None
    sequence: int | None = None
    final: bool = False
    attempt: int | None = None
    time: int | None = None
    failed: bool = False
    context: RequestContext | None = None
    other_api: SkipReason | None = None
    odd: Sequence[OddMember] = ()
    lacks_end: bool = False
    continues: bool = False


class Content(Struct, gc=False, kw_only=True):
    """An event that holds nothing but the next content of a stream; other members are unset.

    Decoding fails on every event that may hold more; the full event accepts all that this accepts.
    """

    request_id: str
    sequence: Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None = None
    timestamp: Annotated[int, Meta(ge=FIRST_EVENT_MS, le=LAST_EVENT_MS)] | float | str | None = None
    body: ContentChunk


DecodeContent = Callable[[Any], Content]
# What decoding content raises; TypeError where the message has no value.
NOT_CONTENT: Final = (msgspec.MsgspecError, RecursionError, TypeError)


class BadEvent(Struct, frozen=True, gc=False):
    """A message, or one entry of it, that cannot be read."""

    reason: BadPayloadReason
    detail: str | None = None
    request_id: str | None = None


MAX_ID_CHARACTERS: Final = 1024  # An id is kept for as long as its request is known.
# Compared by identity: the value is not one JSON text, but may be lines of another envelope.
CUT_OFF: Final = BadEvent(BadPayloadReason.INVALID_JSON, "the JSON text is cut off")
NOT_JSON: Final = BadEvent(BadPayloadReason.INVALID_JSON)
TOO_DENSE: Final = BadEvent(BadPayloadReason.TOO_DENSE)

Opened = Event | SkipReason | BadEvent
