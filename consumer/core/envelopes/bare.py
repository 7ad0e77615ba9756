"""No envelope: the message's value is the response, or one chunk of it."""

from typing import Final

from consumer.core.bodies.body_reader import BOM_AND_SPACE, BodyProblem, BodyReader, response_id_of
from consumer.core.bodies.documents import Document
from consumer.core.bodies.encoding import inflate
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import Shape, shape_of
from consumer.core.message import Headers, header, trace_of
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


class BareBody:
    """Reads values that are a body and nothing else.

    Args:
        body_reader: reads the bodies.
        max_inflated_bytes: maximum size of a body after its compression is undone.

    """

    def __init__(self, body_reader: BodyReader, max_inflated_bytes: int) -> None:
        self._body_reader = body_reader
        self._max_inflated_bytes = max_inflated_bytes

    def open(self, headers: Headers, value: bytes) -> Opened:
        """Read a value that no other envelope has recognised."""
        body = inflate(value, header(headers, "content-encoding"), self._max_inflated_bytes)
        if isinstance(body, BadPayloadReason):
            return BadEvent(body)
        trace = trace_of(headers)
        context = RequestContext(traceparent=trace) if trace else None
        body = body.lstrip(BOM_AND_SPACE)
        facts = ResponseFacts()
        reader = self._body_reader
        reason: BodyProblem | None
        if not body.startswith(b"{"):
            reason = reader.fold_body(facts, body)
        elif not isinstance(document := reader.document_reader.read(body), Document):
            reason = reader.fold_json_lines_or_refuse(facts, document, body)
        elif (shape := shape_of(document)) is _CHUNK:
            return _chunk(document, value, context)
        else:
            reason = reader.fold_single_document(facts, document, shape, body)
        if reason is None:
            return Event(_WHOLE, "", facts.response_id, value, facts=facts, context=context)
        return _refusal(reason)


def _chunk(document: Document, value: bytes, context: RequestContext | None) -> Event | BadEvent:
    response_id = response_id_of(document)
    if response_id is None:
        return BadEvent(BadPayloadReason.NO_REQUEST_ID, "the chunk has no id")
    if len(response_id) > MAX_ID_CHARACTERS:
        problem = f"id is longer than {MAX_ID_CHARACTERS} characters"
        return BadEvent(BadPayloadReason.INVALID_EVENT, problem)
    return Event(
        EventKind.CHUNK, "", response_id, value, document=document, shape=_CHUNK, context=context
    )


def _refusal(reason: BodyProblem) -> BadEvent | SkipReason:
    """Return the outcome of a value that is not a body."""
    if isinstance(reason, SkipReason):
        return reason
    if reason is IncompleteReason.EMPTY_BODY:
        return BadEvent(BadPayloadReason.EMPTY_VALUE)
    if isinstance(reason, IncompleteReason):
        return CUT_OFF
    if reason is BadPayloadReason.BODY_NOT_A_RESPONSE:
        return BadEvent(BadPayloadReason.UNRECOGNISED_SHAPE)
    return BadEvent(reason)
