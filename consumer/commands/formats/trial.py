"""What each message of a capture is recognised as, and what its members give."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from consumer.commands.formats.suggestion import suggest_paths
from consumer.commands.terminal import moment_text
from consumer.core.bodies.shapes import NOT_A_RESPONSE, Shape
from consumer.core.envelopes.opener import UNKNOWN
from consumer.core.envelopes.value_opener import CLOUDEVENTS, Steps
from consumer.core.message import CapturedMessage
from consumer.core.partition import Pipeline
from consumer.core.response_event import BadEvent, Event, EventKind, Opened
from schemas import BadPayloadReason, MessageOutcome, SkipReason

_KINDS: Final = {
    EventKind.CHUNK: "chunk",
    EventKind.SEGMENT: "piece",
    EventKind.END: "end",
    EventKind.WHOLE: "whole",
}


class TriedEvent(Struct, frozen=True, kw_only=True):
    """One event of a message, without its content.

    Attributes:
        message: number of the message in the capture, from 1.
        entry: number of the event in the message, from 0.
        format: name of the format; `unknown` for none.
        steps: what was opened on the way to it.
        outcome: `event`, or why it is not one.
        detail: more about that.
        request_id: id of the request.
        model: model, from the envelope, else from the body.
        status: `failed` where the status or the body states an error.
        time: when the response was sent.
        body: which part of a response it holds.
        bytes: size of that part, with what is around it.
        suggested_paths: the setting `paths` that would fit, where nothing does.

    """

    message: int
    entry: int
    format: str
    steps: tuple[str, ...]
    outcome: str
    detail: str | None = None
    request_id: str | None = None
    model: str | None = None
    status: str | None = None
    time: str | None = None
    body: str | None = None
    bytes: int | None = None
    suggested_paths: dict[str, str] | None = None

    @property
    def is_bad(self) -> bool:
        """Whether it is none because it cannot be read."""
        return self.outcome.startswith(MessageOutcome.BAD_PAYLOAD)


def tried(pipeline: Pipeline, messages: Iterable[CapturedMessage]) -> Iterator[TriedEvent]:
    """Return an iterator over the events of messages."""
    for number, message in enumerate(messages, 1):
        for entry, (name, opened, steps) in enumerate(_events(pipeline, message)):
            event = _without_response(opened) or opened
            place: dict[str, Any] = {
                "message": number,
                "entry": entry,
                "format": name or UNKNOWN,
                "steps": steps,
            }
            if isinstance(event, Event):
                yield TriedEvent(**place, **_members(event))
            elif isinstance(event, BadEvent):
                yield TriedEvent(
                    **place,
                    outcome=f"bad_payload({event.reason})",
                    detail=event.detail,
                    suggested_paths=_suggestion(pipeline, message, event, name),
                )
            else:
                yield TriedEvent(**place, outcome=f"skipped({event})")


def _events(pipeline: Pipeline, message: CapturedMessage) -> list[tuple[str, Opened, Steps]]:
    """Return the events of a message, with their formats and what was opened on the way to them."""
    found = pipeline.opener.trail(message)
    if found is not None:
        return list(zip(found.names, found.events, found.steps, strict=True))
    name, opened = pipeline.opener.open(message)
    return [(name, event, ()) for event in (opened if isinstance(opened, list) else [opened])]


def _without_response(event: Opened) -> BadEvent | SkipReason | None:
    """Return why an event is not one where its body is JSON, but no response; else None."""
    if not isinstance(event, Event) or event.document is None or event.failed:
        return None
    if event.shape not in NOT_A_RESPONSE or event.sequence is not None:
        return None
    if event.other_api is None and event.shape is Shape.UNKNOWN:
        return BadEvent(BadPayloadReason.BODY_NOT_A_RESPONSE)
    return event.other_api or SkipReason.UNRELATED_BODY


def _members(event: Event) -> dict[str, Any]:
    facts, document, context = event.facts, event.document, event.context
    stated = (part.model for part in (context, facts, document) if part is not None)
    failed = event.failed or (facts is not None and facts.failed)
    return {
        "outcome": "event",
        "request_id": event.request_id,
        "model": next(filter(None, stated), None),
        "status": "failed" if failed else None,
        "time": None if event.time is None else moment_text(event.time),
        "body": _KINDS[EventKind.WHOLE if event.shape is Shape.WHOLE else event.kind],
        "bytes": len(event.segment or event.raw),
    }


def _suggestion(
    pipeline: Pipeline, message: CapturedMessage, event: BadEvent, name: str
) -> dict[str, str] | None:
    is_unknown = (
        name or UNKNOWN
    ) == UNKNOWN and event.reason is BadPayloadReason.UNRECOGNISED_SHAPE
    if not is_unknown and event.reason is not BadPayloadReason.BODY_NOT_A_RESPONSE:
        return None
    if name == CLOUDEVENTS and message.headers():
        return None  # Headers that make a CloudEvent count before the setting paths.
    return suggest_paths(pipeline.body_reader, message.value() or b"")
