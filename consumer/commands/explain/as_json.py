"""An explanation as a JSON object."""

from typing import Any, Final

from consumer.commands.explain.explanation import (
    ExplainedEvent,
    ExplainedRequest,
    Explanation,
    event_name,
)
from consumer.commands.explain.text import key_text, meaning_of
from consumer.commands.terminal import outcome_text
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.dead_letters import LETTER_OUTCOMES, digest
from consumer.core.message import headers_of
from consumer.core.response_event import BadEvent
from consumer.core.times import milliseconds, rfc3339
from schemas import MessageOutcome, SkipReason

Members = dict[str, Any]

_UNSET: Final = ("event", "refused", "detail", "source", "request_id", "sequence")
_EVENT_DEFAULTS: Final[Members] = {
    **dict.fromkeys(_UNSET),
    "final": False,
    "attempt": None,
    "time": None,
    "failed": False,
    "odd_members": [],
    "segment_bytes": None,
    "body": None,
    "request": None,
}


def explanation_members(explanation: Explanation) -> Members:
    """Return the members of the JSON object; msgspec encodes structs among the values."""
    message, result = explanation.message, explanation.result
    value, headers = message.value() or b"", headers_of(message.headers)
    kind, stamp = message.timestamp()
    return {
        "topic": message.topic() or "",
        "partition": message.partition() or 0,
        "offset": message.offset() or 0,
        "timestamp": rfc3339(milliseconds(stamp if kind else -1)),
        "key": key_text(message),
        "size": len(value),
        "digest": digest(value),
        "headers": None if headers is None else [name for name, _ in headers],
        "envelope": _envelope(explanation),
        **_pick(result, "outcome", "reason"),
        "meaning": meaning_of(result),
        "detail": result.detail,
        "entries": [
            {"index": index, "inside": one.steps} | _event(one)
            for index, one in enumerate(explanation.events)
        ],
        "read_first": explanation.first_offset,
        "read_last": explanation.last_offset,
        "unknown": explanation.unknown,
        "payload": explanation.preview,
    }


def _envelope(explanation: Explanation) -> str | None:
    """Return the identifier of the envelope; None if it is unknown."""
    if explanation.envelope == "unknown":
        return None
    return explanation.envelope or "dead_letter"


def _event(explained: ExplainedEvent) -> Members:
    event = explained.opened
    if isinstance(event, SkipReason):
        return _EVENT_DEFAULTS | {"refused": outcome_text(MessageOutcome.SKIPPED, event)}
    if isinstance(event, BadEvent):
        refused = outcome_text(MessageOutcome.BAD_PAYLOAD, event.reason)
        return _EVENT_DEFAULTS | {"refused": refused, "detail": event.detail}
    return _EVENT_DEFAULTS | {
        "event": event_name(event),
        "source": event.source or None,
        "time": rfc3339(event.time),
        **_pick(event, "request_id", "sequence", "final", "attempt", "failed"),
        "odd_members": list(event.odd),
        "segment_bytes": len(event.segment) or None,
        "body": explained.facts and _body(explained.facts),
        "request": explained.request and _request(explained.request),
    }


def _body(facts: ResponseFacts) -> Members:
    usage = facts.usage
    return {
        **_pick(facts, "response_id", "model"),
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        **_pick(facts, "choices", "finish_reason"),
        **_pick(facts, "streamed", "ended", "failed", "truncated", "damaged"),
        "stats": {place: len(raw) for place, raw in (facts.stats or {}).items()},
    }


def _request(request: ExplainedRequest) -> Members:
    result, response = request.result, request.result.response
    return {
        **_pick(response, "request_id", "attempt"),
        "first_offset": response.place[0],
        "first_index": response.place[1],
        "last_offset": response.last_offset,
        **_pick(request, "parts", "still_open", "seen_whole"),
        **_pick(result, "outcome", "reason"),
        "meaning": meaning_of(result),
        "detail": result.detail,
        "incomplete": response.incomplete,
        "choices": response.facts and response.facts.parsed().choices,
        "stats": request.letter.stats,
        "adapters": request.adapters,
        "failures": result.failures,
        "differing": result.differing,
        "dead_letter": result.outcome in LETTER_OUTCOMES,
        "record": result.record,
    }


def _pick(struct: object, *names: str) -> Members:
    return {name: getattr(struct, name) for name in names}
