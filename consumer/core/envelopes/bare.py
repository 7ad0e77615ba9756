"""No envelope: a text is the response, or one chunk of it."""

from typing import Final

from consumer.core.bodies.body_reader import (
    BOM_AND_SPACE,
    DONE,
    BodyReader,
    has_result,
    response_id_of,
)
from consumer.core.bodies.documents import Document
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import Shape, shape_of
from consumer.core.response_event import (
    CUT_OFF,
    MAX_ID_CHARACTERS,
    BadEvent,
    Event,
    EventKind,
    Opened,
    RequestContext,
)
from schemas import BadPayloadReason, IncompleteReason, SkipReason

_CHUNK: Final = Shape.CHUNK  # Not looked up for each event: see CONTRIBUTING.md.
_WHOLE: Final = EventKind.WHOLE
_LAST_BYTES: Final = 32  # Of a single event: its blank line, and perhaps an end marker.


class BareBody:
    """Reads texts that are a body and nothing else.

    Args:
        body_reader: reads the bodies.

    """

    def __init__(self, body_reader: BodyReader) -> None:
        self._body_reader = body_reader

    def open(self, text: bytes, value: bytes, context: RequestContext | None) -> Opened:
        """Read a body.

        Args:
            text: the body.
            value: bytes of the event.
            context: what is known of the request from outside.

        """
        text = text.lstrip(BOM_AND_SPACE)
        if text.startswith(b"{"):
            document = self._body_reader.document_reader.read(text)
            if isinstance(document, Document):
                return self.open_document(document, shape_of(document), text, value, context)
        elif text.find(b"\n", 0, -_LAST_BYTES) < 0:
            event = self._only_event(text, value, context)
            if event is not None:
                return event
        facts = ResponseFacts()
        reason = self._body_reader.fold_body(facts, text)
        if reason is None:
            return Event(_WHOLE, "", facts.response_id, value, facts=facts, context=context)
        return reason if isinstance(reason, SkipReason) else refusal(reason)

    def open_document(
        self,
        document: Document,
        shape: Shape,
        text: bytes,
        value: bytes,
        context: RequestContext | None,
    ) -> Opened:
        """Read a body that is one JSON object, which has been decoded already."""
        if shape is _CHUNK:
            return _chunk(document, value, context)
        facts = ResponseFacts()
        reason = self._body_reader.fold_single_document(facts, document, shape, text)
        if reason is None:
            return Event(_WHOLE, "", facts.response_id, value, facts=facts, context=context)
        return reason if isinstance(reason, SkipReason) else refusal(reason)

    def _only_event(
        self, text: bytes, value: bytes, context: RequestContext | None
    ) -> Opened | None:
        """Read a text that is a single server-sent event; return None for any other."""
        if not text:
            return SkipReason.KEEP_ALIVE  # The blank line after an event, logged by itself.
        line, _, rest = text.partition(b"\n")
        rest = rest.removeprefix(b"\n").removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or rest not in (b"", DONE):
            return None
        document = self._body_reader.document_reader.read(line.removeprefix(b"data:").strip())
        if not isinstance(document, Document) or shape_of(document) is not _CHUNK:
            return None
        event = _chunk(document, value, context)
        if isinstance(event, Event):
            event.final = bool(rest)
        return event


def refusal(reason: BadPayloadReason | IncompleteReason) -> BadEvent:
    """Return why a text that is not a body is bad."""
    if reason is IncompleteReason.EMPTY_BODY:
        return BadEvent(BadPayloadReason.EMPTY_VALUE)
    if isinstance(reason, IncompleteReason):
        return CUT_OFF
    if reason is BadPayloadReason.BODY_NOT_A_RESPONSE:
        return BadEvent(BadPayloadReason.UNRECOGNISED_SHAPE)
    return BadEvent(reason)


def _chunk(
    document: Document, value: bytes, context: RequestContext | None
) -> Event | BadEvent | SkipReason:
    response_id = response_id_of(document)
    if response_id is None:
        if document.id is not None and document.usage is None and not has_result(document):
            return SkipReason.KEEP_ALIVE  # Of a content filter.
        return BadEvent(BadPayloadReason.NO_REQUEST_ID, "the chunk has no id")
    if len(response_id) > MAX_ID_CHARACTERS:
        problem = f"id is longer than {MAX_ID_CHARACTERS} characters"
        return BadEvent(BadPayloadReason.INVALID_EVENT, problem)
    return Event(
        EventKind.CHUNK,
        "",
        response_id,
        value,
        document=document,
        shape=_CHUNK,
        context=context,
        lacks_end=True,
    )
