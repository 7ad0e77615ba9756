"""An explanation as headed paragraphs, in the order in which the service works."""

import json
from collections.abc import Sequence
from typing import Final

from consumer.commands.explain.adapter_answers import AdapterAnswer
from consumer.commands.explain.explanation import (
    LATE,
    ExplainedEvent,
    ExplainedRequest,
    Explanation,
    RequestEvent,
    UnknownObject,
    event_name,
)
from consumer.commands.places import place_text
from consumer.commands.terminal import outcome_text, printable
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.dead_letters import LETTER_OUTCOMES, digest
from consumer.core.envelopes.formats import ENVELOPES, FORMATS
from consumer.core.message import Message, headers_of
from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult
from consumer.core.response_event import BadEvent, Event
from consumer.core.times import milliseconds, rfc3339
from schemas import MessageOutcome, PublishedRecord, RequestOutcome

_MAX_PARTS: Final = 12
_MIN_SHARED_LINE: Final = 2
_MAX_KEY_BYTES: Final = 128
_CAPTURE_TOPIC: Final = "capture"  # The topic of captured messages that name none.
_ENVELOPES: Final = {
    "paths": "home-made event, read by the setting paths",
    "unknown": "unknown",
    **{form.name: form.title for form in (*ENVELOPES, *FORMATS)},
}

Paragraphs = list[tuple[str, str]]


def paragraphs(explanation: Explanation) -> Paragraphs:
    """Return headings and texts."""
    result, message = explanation.result, explanation.message
    found = [("message", _message_text(explanation))]
    if explanation.preview is not None:
        found.append(("payload", explanation.preview))
    found.append(("envelope", _envelope_text(explanation)))
    if explanation.unknown is not None:
        found.append(("members", _unknown_text(explanation.unknown)))
    several = len(explanation.events) > 1
    for index, event in enumerate(explanation.events):
        found += _event_paragraphs(event, f" {index}" if several else "")
    found.append(("outcome", _outcome_text(result)))
    if result.outcome is MessageOutcome.BAD_PAYLOAD:
        found += _letter_paragraphs(explanation, message.offset() or 0)
    shown: list[RequestResult] = []
    for index, event in enumerate(explanation.events):
        request = event.request
        if request is not None:
            if any(request.result is one for one in shown):
                continue
            shown.append(request.result)
            found += _request_paragraphs(request, f" {index}" if several else "")
            if request.result.outcome in LETTER_OUTCOMES:
                found += _letter_paragraphs(explanation, request.result.response.place[0])
        elif isinstance(event.opened, Event) and result.reason in LATE:
            found.append(("request", "it ended before the first message that was read"))
    offsets = f"offsets {explanation.first_offset} to {explanation.last_offset}"
    return [*found, ("read", offsets)]


def _envelope_text(explanation: Explanation) -> str:
    if explanation.envelope is None:
        return "none: a dead letter of this service, which dead-letters --show reads"
    return _ENVELOPES[explanation.envelope]


def key_text(message: Message) -> str | None:
    """Return the beginning of a message's key."""
    key = message.key()
    return None if key is None else key[:_MAX_KEY_BYTES].decode("utf-8", "replace")


def meaning_of(result: MessageResult | RequestResult) -> str:
    """Return a sentence on what an outcome means."""
    if result.outcome is RequestOutcome.PUBLISHED:
        return "The service publishes an acceptance record."
    return (result.reason or result.outcome).explanation


def _outcome_text(result: MessageResult | RequestResult) -> str:
    text = f"{outcome_text(result.outcome, result.reason)}: {meaning_of(result)}"
    return f"{text} Detail: {result.detail}" if result.detail else text


def _message_text(explanation: Explanation) -> str:
    message = explanation.message
    value, key, headers = message.value() or b"", key_text(message), headers_of(message.headers)
    kind, stamp = message.timestamp()
    parts = [
        place_text((message.topic() or "", message.partition() or 0, message.offset() or 0)),
        rfc3339(milliseconds(stamp if kind else -1)) or "no timestamp",
        f"{len(value)} bytes, digest {digest(value)}",
    ]
    if key is not None:
        parts.append(f"key {key!r}")
    if headers is None:
        parts.append("unreadable headers")
    elif headers:
        parts.append(f"headers {', '.join(name for name, _ in headers)}")
    return ", ".join(parts)


def _unknown_text(unknown: UnknownObject) -> str:
    text = ", ".join(map(printable, unknown.members)) or "none"
    if hidden := unknown.count - len(unknown.members):
        text += f" and {hidden} more"
    if unknown.lacks_request_id:
        text += "\na native event needs request_id"
    for member, path in unknown.missing.items():
        what = "array" if member == "each" else member
        text += f"\nthe setting paths finds no {what} at {path}"
    if unknown.only is not None:
        text += f"\nthe setting envelope lets no format but {unknown.only} count"
    return text


def _event_paragraphs(explained: ExplainedEvent, suffix: str) -> Paragraphs:
    opened = explained.opened
    found: Paragraphs = []
    if explained.steps:
        found.append((f"inside{suffix}", ", then ".join(map(printable, explained.steps))))
    if not isinstance(opened, Event):
        if not suffix:  # The outcome of the message repeats the reason.
            return found
        bad = isinstance(opened, BadEvent)
        outcome = MessageOutcome.BAD_PAYLOAD if bad else MessageOutcome.SKIPPED
        reason = opened.reason if isinstance(opened, BadEvent) else opened
        return [*found, (f"event{suffix}", f"none: {outcome_text(outcome, reason)}")]
    found.append((f"event{suffix}", _event_text(opened)))
    if opened.odd:
        lines = [f"{member}: ignored. {member.explanation}" for member in opened.odd]
        found.append((f"odd{suffix}", "\n".join(lines)))
    if explained.facts is not None:
        found.append((f"body{suffix}", _body_text(explained.facts)))
    return found


def _event_text(event: Event) -> str:
    parts = [event_name(event)]
    if event.segment:
        parts[0] += f" of {len(event.segment)} bytes"
    parts.append("no request id" if event.request_id is None else f"request {event.request_id!r}")
    if event.source:
        parts.append(f"source {event.source!r}")
    if event.sequence is not None:
        parts.append(f"sequence {event.sequence}")
    if event.attempt is not None:
        parts.append(f"attempt {event.attempt}")
    if event.final:
        parts.append("marked as final")
    if event.failed:
        parts.append("error status")
    if event.time is not None:
        parts.append(f"sent at {rfc3339(event.time)}")
    return ", ".join(parts)


def _body_text(facts: ResponseFacts) -> str:
    parts = [f"id {facts.response_id!r}" if facts.response_id else "no id"]
    if facts.model:
        parts.append(f"model {facts.model!r}")
    if facts.choices:
        parts.append(f"{facts.choices} choice{'s' if facts.choices > 1 else ''}")
    if facts.usage is not None and facts.usage.completion_tokens is not None:
        usage = facts.usage
        prompt = "" if usage.prompt_tokens is None else f"{usage.prompt_tokens} prompt + "
        parts.append(f"usage {prompt}{usage.completion_tokens} completion tokens")
    if facts.finish_reason:
        parts.append(f"finish reason {facts.finish_reason!r}")
    flags = ("streamed", "ended", "failed", "truncated", "damaged")
    parts += [flag for flag in flags if getattr(facts, flag)]
    if facts.stats:
        places = (f"{place} ({len(raw)} bytes)" for place, raw in facts.stats.items())
        parts.append(f"statistics at {', '.join(places)}")
    else:
        parts.append("no statistics at any declared place")
    return ", ".join(parts)


def _letter_paragraphs(explanation: Explanation, offset: int) -> Paragraphs:
    topic = explanation.message.topic() or ""
    if topic == _CAPTURE_TOPIC:
        return []
    place = place_text((topic, explanation.message.partition() or 0, offset))
    # This command has the settings of a shell, which may differ from those of the service.
    condition = "if the service has the same settings and writes dead letters, print it with"
    return [("dead letter", f"{condition}\nacceptance-consumer dead-letters --show {place}")]


def _request_paragraphs(request: ExplainedRequest, suffix: str) -> Paragraphs:
    result = request.result
    found = [(f"reassembly{suffix}", _parts_text(request))]
    if request.adapters and result.response.facts is not None:
        choices = result.response.facts.choices
        claims = "would claim" if choices > 1 else "claims"
        lines = _answer_texts(request.adapters, claims)
        if choices > 1:
            lines.insert(0, f"not asked: the response has {choices} generations")
        lines += [f"{engine} raised {error}" for engine, error in result.failures]
        found.append((f"adapters{suffix}", "\n".join(lines)))
    text = _outcome_text(result)
    if request.still_open:
        text = f"still open at the last offset that was read; its timeout would make it {text}"
    found.append((f"request{suffix}", text))
    if result.record is not None:
        text = _record_text(result.record)
        if result.differing:
            text += f"\nthe engine states otherwise: {', '.join(result.differing)}"
        found.append((f"record{suffix}", text))
    elif request.letter.stats:
        stats = request.letter.stats.items()
        lines = [f"{place}: {json.dumps(numbers)}" for place, numbers in stats]
        found.append((f"numbers{suffix}", "\n".join(lines)))
    return found


def _parts_text(request: ExplainedRequest) -> str:
    parts, response = request.parts, request.result.response
    name = "without a request id" if response.request_id is None else repr(response.request_id)
    count = f"{len(parts)} event{'' if len(parts) == 1 else 's'}"
    first, last = response.place[0], response.last_offset
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    end = "complete" if response.incomplete is None else f"incomplete: {response.incomplete}"
    lines = [f"request {name}, attempt {response.attempt}: {count}, {offsets}, {end}"]
    if len(parts) > 1:
        shown = list(map(_part_text, parts))
        if (hidden := len(parts) - _MAX_PARTS) > 0:
            shown[_MAX_PARTS - 2 : -2] = [f"... {hidden} more ..."]
        lines += shown
    if not request.seen_whole:
        lines.append("more events of it may lie before the offsets that were read")
    return "\n".join(lines)


def _part_text(part: RequestEvent) -> str:
    sequence = "" if part.sequence is None else f" {part.sequence}"
    return f"{part.offset:>9}  {part.event}{sequence}: {part.outcome}"


def _answer_texts(answers: Sequence[AdapterAnswer], claims: str) -> list[str]:
    """Return a line for each adapter; where one claims, idle ones share a line."""
    idle = [answer.name for answer in answers if _finds_nothing(answer)]
    if not any(answer.claims for answer in answers) or len(idle) < _MIN_SHARED_LINE:
        return [_answer_text(answer, claims) for answer in answers]
    others = [_answer_text(answer, claims) for answer in answers if not _finds_nothing(answer)]
    return [f"nothing at the places of {', '.join(idle)}", *others]


def _finds_nothing(answer: AdapterAnswer) -> bool:
    return answer.raised is None and not any(place.filled for place in answer.places)


def _answer_text(answer: AdapterAnswer, claims: str) -> str:
    filled = [place for place in answer.places if place.filled]
    if answer.claims:
        return f"{answer.name} {claims} it: {', '.join(place.place for place in filled)}"
    refused = f"{answer.name} does not claim it:"
    if answer.raised is not None:
        return f"{refused} its can_adapt raised {answer.raised}"
    if not filled:
        return f"{refused} nothing at {', '.join(place.place for place in answer.places)}"
    content = "; ".join(
        f"{place.place} has {', '.join(place.members) or 'no members'}" for place in filled
    )
    if answer.missing is None:
        return f"{refused} {content}; it gives no reason"
    keys = ", ".join(answer.missing)
    match len(answer.missing):
        case 0:
            why = "the values do not have the form that it expects"
        case 1:
            why = f"its own key {keys} is missing"
        case _:
            why = f"its own keys {keys} are missing"
    return f"{refused} {content}; {why}"


def _record_text(record: PublishedRecord) -> str:
    counts = (
        ("accepted", record.num_accepted_draft_tokens),
        ("drafted", record.num_draft_tokens),
        ("steps", record.num_spec_steps),
        ("rate", record.draft_acceptance_rate),
        ("mean length", record.mean_acceptance_length),
        ("completion tokens", record.completion_tokens),
    )
    known = ", ".join(f"{name} {_number(value)}" for name, value in counts if value is not None)
    return f"{record.engine}: {known}\nrecord_id {record.record_id}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"
