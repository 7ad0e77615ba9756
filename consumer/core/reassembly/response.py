"""A response as reassembly hands it on."""

from msgspec import Struct

from consumer.core.bodies.facts import ResponseFacts
from consumer.core.message import EventPlace
from consumer.core.response_event import RequestContext
from schemas import IncompleteReason


class Response(Struct, gc=False):
    """A response that is finished, or given up.

    Attributes:
        place: offset and index of its first event.
        last_offset: offset of its last new event.
        timestamp: Kafka timestamp of its first message, milliseconds since 1970, or -1.
        started: earliest time of an event, milliseconds since 1970.
        completed: latest time of an event.
        facts: what it says; None if its events are gone.
        incomplete: why its end was not seen, or None.

    """

    source: str
    request_id: str | None
    attempt: int
    place: EventPlace
    last_offset: int
    timestamp: int
    started: int | None
    completed: int | None
    context: RequestContext | None
    facts: ResponseFacts | None
    failed: bool = False
    incomplete: IncompleteReason | None = None
