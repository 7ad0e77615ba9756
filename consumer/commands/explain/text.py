"""An explanation in words."""

import json
from typing import Final

from consumer.commands.explain.explanation import (
    LATE,
    AdapterAnswer,
    Body,
    Entry,
    ExplainedRequest,
    Explanation,
    RequestEvent,
    UnknownObject,
)
from consumer.commands.terminal import outcome_text, printable
from schemas import MessageOutcome, PublishedRecord

_MAX_PARTS: Final = 12
_NO_TOPIC: Final = "capture"  # What messages of a capture get that names none.

Steps = list[tuple[str, str]]


def steps(message: Explanation) -> Steps:
    """Return an explanation as headed paragraphs, in the order in which the service works."""
    found = [("message", _said_of_message(message))]
    if message.payload is not None:
        found.append(("payload", message.payload))
    found.append(("envelope", message.envelope or "none that is known"))
    if message.unknown is not None:
        found.append(("members", _said_of_unknown(message.unknown)))
    several = len(message.entries) > 1
    for entry in message.entries:
        found += _steps_of_entry(entry, f" {entry.index}" if several else "")
    found.append(("outcome", _said_of_outcome(message)))
    if message.outcome == MessageOutcome.BAD_PAYLOAD:
        found += _letter_at(message, message.offset)
    for entry in message.entries:
        request = entry.request
        if request is not None:
            found += _steps_of_request(request, f" {entry.index}" if several else "")
            if request.dead_letter:
                found += _letter_at(message, request.first_offset)
        elif entry.event is not None and message.reason in LATE:
            found.append(("request", "it ended before the messages that were read"))
    found.append(("read", f"offsets {message.read_first} to {message.read_last}"))
    return found


def _said_of_message(message: Explanation) -> str:
    said = [
        f"{message.topic}:{message.partition}:{message.offset}",
        message.timestamp or "without a timestamp",
        f"{message.size} bytes, digest {message.digest}",
    ]
    if message.key is not None:
        said.append(f"key {message.key!r}")
    if message.headers is None:
        said.append("headers that cannot be read")
    elif message.headers:
        said.append(f"headers {', '.join(message.headers)}")
    return ", ".join(said)


def _said_of_unknown(unknown: UnknownObject) -> str:
    said = ", ".join(map(printable, unknown.members)) or "none"
    if left_out := unknown.count - len(unknown.members):
        said += f" and {left_out} more"
    if unknown.lacks_request_id:
        said += "\na native event needs request_id"
    return said


def _steps_of_entry(entry: Entry, which: str) -> Steps:
    if entry.event is None:  # The outcome says it, unless there are several.
        return [(f"event{which}", f"none: {entry.refused}")] if which else []
    found = [(f"event{which}", _said_of_event(entry))]
    if entry.body is not None:
        found.append((f"body{which}", _said_of_body(entry.body)))
    return found


def _letter_at(message: Explanation, offset: int) -> Steps:
    if message.topic == _NO_TOPIC:
        return []
    place = f"{message.topic}:{message.partition}:{offset}"
    # The settings here are those of a shell.
    where = "if the service has the same settings, and writes dead letters:"
    return [("dead letter", f"{where}\nacceptance-consumer dead-letters --show {place}")]


def _said_of_event(entry: Entry) -> str:
    said = [entry.event or ""]
    if entry.segment_bytes is not None:
        said[0] += f" of {entry.segment_bytes} bytes, cut anywhere"
    said.append("without a request id" if entry.request_id is None else f"of {entry.request_id!r}")
    if entry.source is not None:
        said.append(f"from {entry.source!r}")
    if entry.sequence is not None:
        said.append(f"sequence {entry.sequence}")
    if entry.attempt is not None:
        said.append(f"attempt {entry.attempt}")
    if entry.final:
        said.append("marked as the last one")
    if entry.failed:
        said.append("with an error status")
    if entry.time is not None:
        said.append(f"sent at {entry.time}")
    return ", ".join(said)


def _said_of_body(body: Body) -> str:
    said = [f"id {body.response_id!r}" if body.response_id else "without an id"]
    if body.model:
        said.append(f"model {body.model!r}")
    if body.choices:
        said.append(f"{body.choices} choice{'s' if body.choices > 1 else ''}")
    if body.completion_tokens is not None:
        said.append(f"usage {body.prompt_tokens} + {body.completion_tokens} tokens")
    if body.finish_reason:
        said.append(f"finish reason {body.finish_reason!r}")
    facts = ("streamed", "ended", "failed", "truncated", "damaged")
    said += [fact for fact in facts if getattr(body, fact)]
    if body.stats:
        places = (f"{place} ({size} bytes)" for place, size in body.stats.items())
        said.append(f"statistics at {', '.join(places)}")
    else:
        said.append("no statistics at any declared place")
    return ", ".join(said)


def _steps_of_request(request: ExplainedRequest, which: str) -> Steps:
    found = [(f"reassembly{which}", _said_of_parts(request))]
    if request.adapters:
        several = (request.choices or 0) > 1
        claims = "would claim" if several else "claims"
        lines = [_said_of_answer(answer, claims) for answer in request.adapters]
        if several:
            lines.insert(0, f"not asked: the response has {request.choices} generations")
        lines += [f"{engine} raised {error}" for engine, error in request.failures]
        found.append((f"adapters{which}", "\n".join(lines)))
    said = _said_of_outcome(request)
    if request.still_open:
        said = f"still open where reading ended; its timeout would make it {said}"
    found.append((f"request{which}", said))
    if request.record is not None:
        found.append((f"record{which}", _said_of_record(request.record)))
    elif request.stats:
        lines = [f"{place}: {json.dumps(numbers)}" for place, numbers in request.stats.items()]
        found.append((f"numbers{which}", "\n".join(lines)))
    return found


def _said_of_outcome(told: Explanation | ExplainedRequest) -> str:
    said = f"{outcome_text(told.outcome, told.reason)}: {told.meaning}"
    return f"{said} Here: {told.detail}" if told.detail else said


def _said_of_parts(request: ExplainedRequest) -> str:
    parts = request.parts
    who = "without a request id" if request.request_id is None else repr(request.request_id)
    count = f"{len(parts)} message{'' if len(parts) == 1 else 's'}"
    offsets = f"offsets {request.first_offset} to {request.last_offset}"
    if request.first_offset == request.last_offset:
        offsets = f"offset {request.first_offset}"
    end = "complete" if request.incomplete is None else f"not complete: {request.incomplete}"
    lines = [f"request {who}, attempt {request.attempt}: {count}, {offsets}, {end}"]
    if len(parts) > 1:
        shown = parts[: _MAX_PARTS - 2], parts[-2:]
        left_out = len(parts) - _MAX_PARTS
        if left_out <= 0:
            shown = parts, ()
        lines += map(_said_of_part, shown[0])
        lines += [f"... {left_out} more ..."] if left_out > 0 else []
        lines += map(_said_of_part, shown[1])
    if not request.seen_whole:
        lines.append("messages of it may lie before those that were read")
    return "\n".join(lines)


def _said_of_part(part: RequestEvent) -> str:
    sequence = "" if part.sequence is None else f" {part.sequence}"
    return f"{part.offset:>9}  {part.event}{sequence}: {part.outcome}"


def _said_of_answer(answer: AdapterAnswer, claims: str) -> str:
    filled = [place for place in answer.places if place.filled]
    if answer.claims:
        return f"{answer.name} {claims} it: {', '.join(place.place for place in filled)}"
    refused = f"{answer.name} does not claim it:"
    if answer.raised is not None:
        return f"{refused} its can_adapt raised {answer.raised}"
    if not filled:
        return f"{refused} nothing at {', '.join(place.place for place in answer.places)}"
    seen = "; ".join(
        f"{place.place} has {', '.join(place.members) or 'no members'}" for place in filled
    )
    if not answer.missing:
        return f"{refused} {seen}; not in the form that it knows as its own"
    return (
        f"{refused} {seen}; of the keys that it knows as its own, {', '.join(answer.missing)} "
        + ("is missing" if len(answer.missing) == 1 else "are missing")
    )


def _said_of_record(record: PublishedRecord) -> str:
    counts = (
        ("accepted", record.num_accepted_draft_tokens),
        ("drafted", record.num_draft_tokens),
        ("steps", record.num_spec_steps),
        ("rate", record.draft_acceptance_rate),
        ("mean length", record.mean_acceptance_length),
        ("completion tokens", record.completion_tokens),
    )
    known = ", ".join(f"{name} {_short(value)}" for name, value in counts if value is not None)
    return f"{record.engine}: {known}\nrecord_id {record.record_id}"


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"
