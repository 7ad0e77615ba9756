"""One response event, whatever envelope it came in."""

from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from consumer.core.bodies.documents import ContentChunk, Document
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import Shape
from consumer.core.times import LAST_MS
from schemas import BadPayloadReason, IncompleteReason, SkipReason
from schemas.record import MAX_COUNT


class EventKind(IntEnum):
    """What part of a response the event carries."""

    CHUNK = 0  # One document, of a stream or alone.
    SEGMENT = 1  # Raw bytes of a body, cut anywhere.
    END = 2  # Only an end mark.
    WHOLE = 3  # All that will ever come of the response.


class Context(Struct, frozen=True, gc=False):
    """What the envelope says about the request; every member may be unknown."""

    model: str | None = None
    instance: str | None = None
    endpoint: str | None = None
    labels: dict[str, str] | None = None
    traceparent: str | None = None


class Event(Struct, gc=False):
    """One response event.

    Attributes:
        kind: what the event carries.
        source: producer's name for itself, where ids are unique only to it (CloudEvents).
        request_id: as the envelope says, else the body; null only on whole responses.
        raw: bytes of the event, to tell a repeat from another event.
        document: of a `CHUNK`.
        shape: of the document of a `CHUNK`.
        segment: bytes of a `SEGMENT`.
        facts: of a `WHOLE`: the response, folded already.
        incomplete: of a `WHOLE`: why its body could not be read to its end.
        sequence: place among the events of its attempt, from 0.
        final: whether this is the attempt's last event.
        attempt: as the event says.
        time: when the server sent it, milliseconds since 1970.
        failed: whether the envelope's status is an error.
        context: what the envelope says around it.

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
    context: Context | None = None


class Content(Struct, gc=False, kw_only=True):
    """An event that can say nothing but the next content of a stream; all other members are unset.

    Decoding fails on every event that can say more. What it takes, the full event takes as well.
    """

    request_id: str
    sequence: Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None = None
    timestamp: Annotated[int, Meta(ge=0, le=LAST_MS)] | str | None = None
    body: ContentChunk


DecodeContent = Callable[[Any], Content]
NOT_CONTENT: Final = (msgspec.MsgspecError, RecursionError, TypeError)  # The last: of no value.


class BadEvent(Struct, frozen=True, gc=False):
    """A message, or one entry of it, that cannot be read."""

    reason: BadPayloadReason
    detail: str | None = None
    request_id: str | None = None


Opened = Event | SkipReason | BadEvent
