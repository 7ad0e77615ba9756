"""The event of an envelope that holds a whole response under an id of its own."""

from collections.abc import Sequence
from typing import Final

from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.response_event import BadEvent, Event, EventKind, Opened, RequestContext
from schemas import BadPayloadReason, IncompleteReason, OddMember, SkipReason

_FIRST_ERROR_STATUS: Final = 400


def is_failure(status: int | None) -> bool:
    """Return whether an HTTP status is that of an error."""
    return status is not None and status >= _FIRST_ERROR_STATUS


def whole_event(
    body_reader: BodyReader,
    body: bytes | BadPayloadReason,
    value: bytes,
    *,
    source: str,
    request_id: str | None,
    time: int | None,
    failed: bool,
    context: RequestContext,
    odd: Sequence[OddMember],
) -> Opened:
    """Return the event of a whole response.

    Args:
        body_reader: reads the body.
        body: the body, or why its bytes cannot be read.
        value: bytes of the event.
        source: the producer, where ids are unique only to it; else empty.
        request_id: id in the envelope; None for the body's own.
        time: when the server sent it, in milliseconds since 1970.
        failed: whether the envelope says that the response failed, so that any body will do.
        context: what the envelope says about the request.
        odd: members of the envelope of which a value was ignored.

    """
    facts = ResponseFacts()
    reason = body_reader.fold_body(facts, body) if isinstance(body, bytes) else body
    if isinstance(reason, SkipReason):
        return reason
    if isinstance(reason, BadPayloadReason) and not failed:
        return BadEvent(reason, None, request_id)
    return Event(
        EventKind.WHOLE,
        source,
        facts.response_id if request_id is None else request_id,
        value,
        facts=facts,
        incomplete=reason if isinstance(reason, IncompleteReason) else None,
        time=time,
        failed=failed,
        context=context,
        odd=odd,
    )
