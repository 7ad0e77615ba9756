"""No envelope: the message's value is the response, or one chunk of it."""

from consumer.bodies.documents import Document, Shape, shape_of
from consumer.bodies.encoding import inflate
from consumer.bodies.gather import AROUND, Gathered, Gatherer, name_of
from consumer.envelopes.native import MOST_ID_CHARACTERS
from consumer.events import Bad, Context, Event, Kind, Opened
from consumer.message import Headers, header, trace_of
from schemas import BadPayloadReason, IncompleteReason, SkipReason


class BareBody:
    """Reads values that are a body and nothing else.

    Args:
        gatherer: reads the bodies.
        max_inflated_bytes: most bytes that a compressed body may have.

    """

    def __init__(self, gatherer: Gatherer, max_inflated_bytes: int) -> None:
        self._gatherer = gatherer
        self._max_inflated_bytes = max_inflated_bytes

    def open(self, headers: Headers, value: bytes) -> Opened:
        """Read a body; whatever nothing else understood ends here."""
        body = inflate(value, header(headers, "content-encoding"), self._max_inflated_bytes)
        if isinstance(body, BadPayloadReason):
            return Bad(body)
        trace = trace_of(headers)
        context = Context(traceparent=trace) if trace else None
        body = body.lstrip(AROUND)
        gathered = Gathered()
        document = self._gatherer.reader.read(body) if body.startswith(b"{") else None
        if not isinstance(document, Document):
            reason = self._gatherer.take_body(gathered, body)
        elif shape_of(document) is Shape.CHUNK:
            return _chunk(document, value, context)
        else:
            reason = self._gatherer.take_whole(gathered, document, body)
        if reason is IncompleteReason.EMPTY_BODY:
            return Bad(BadPayloadReason.EMPTY_VALUE)
        if reason is IncompleteReason.TRUNCATED:
            return Bad(BadPayloadReason.INVALID_JSON, "cut off")
        if isinstance(reason, SkipReason):
            return reason
        if isinstance(reason, BadPayloadReason):
            shape = reason is BadPayloadReason.BODY_NOT_A_RESPONSE
            return Bad(BadPayloadReason.UNRECOGNISED_SHAPE if shape else reason)
        return Event(
            Kind.WHOLE, "", gathered.response_id, value, gathered=gathered, context=context
        )


def _chunk(document: Document, value: bytes, context: Context | None) -> Event | Bad:
    name = name_of(document)
    if name is None:
        return Bad(BadPayloadReason.NO_REQUEST_ID, "a chunk without id")
    if len(name) > MOST_ID_CHARACTERS:  # It is kept for as long as its request is known.
        return Bad(BadPayloadReason.INVALID_EVENT, "id is too long")
    return Event(Kind.CHUNK, "", name, value, document=document, shape=Shape.CHUNK, context=context)
