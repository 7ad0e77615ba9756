"""From a finished response to its record, its dead letter, and their Kafka messages."""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from consumer.core.adapters.registry import Adapters, judge
from consumer.core.message import Headers, Message, headers_of
from consumer.core.reassembly.reassembler import Response
from consumer.core.redaction import MASK, holds_credentials, is_secret
from consumer.core.times import rfc3339
from schemas import (
    SCHEMA_VERSION,
    AcceptanceRecord,
    BadPayloadReason,
    DeadLetter,
    IncompleteReason,
    MalformedReason,
    MessageOutcome,
    NoStatsReason,
    ParsedResponse,
    PublishedRecord,
    RequestOutcome,
)
from schemas.record import MAX_COUNT, MAX_LABELS, MAX_TEXT

RECORD_TYPE: Final = "acceptance-consumer.record"
_INVALID_HEADERS: Final = BadPayloadReason.INVALID_HEADERS.value
_NO_STATS: Final = RequestOutcome.NO_STATS  # Dear to look up (CPython 3.11).
MASKED: Final = b64encode(b"***").decode()
_MAX_LABEL_CHARACTERS: Final = 256
_MAX_LETTER_BYTES: Final = 512 * 1024
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 4096
_MAX_STATS_ITEMS: Final = 4096
_MAX_STATS_NAME: Final = 64
_FRAMING_BYTES: Final = 128  # What a batch adds to one message, at most.
_HEADER_FRAMING_BYTES: Final = 8
_MAX_AROUND: Final = 8192  # More than what a message has beside copies of its members.
LEFT_OUT: Final = "left-out"
_LONG_FIELDS: Final = (("per_step_accepted", "per_step_drafted"), ("acceptance_histogram",))

_CONTENT_HEADERS: Final[Headers] = [
    ("content-type", b"application/json"),
    ("schema-version", str(SCHEMA_VERSION).encode()),
]
_RECORD_HEADERS: Final[Headers] = [*_CONTENT_HEADERS, ("ce_specversion", b"1.0")]
_RECORD_TYPE_HEADER: Final = ("ce_type", RECORD_TYPE.encode())

_encode = msgspec.json.Encoder().encode


class Origin(Struct, frozen=True):
    """Where messages come from, and what is said of all of them."""

    fleet: str
    topic: str
    partition: int
    labels: dict[str, str]


class RequestResult(Struct, frozen=True, gc=False):
    """The one outcome of a request.

    Attributes:
        outcome: what became of it.
        reason: why, where the outcome has reasons.
        response: the response, with its place in the log.
        record: the record, if the outcome is `published`.
        claims: engines whose adapter claimed the statistics.
        failures: engines whose adapter raised, with the name of the exception.
        detail: what exactly is wrong with the statistics, where the adapter says it.

    """

    outcome: RequestOutcome
    reason: NoStatsReason | MalformedReason | IncompleteReason | None
    response: Response
    record: PublishedRecord | None = None
    claims: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    detail: str | None = None


class OutputMessage(Struct, frozen=True, gc=False):
    """A message for one of the output topics."""

    kind: Literal["record", "dead_letter"]
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp: int  # Milliseconds since 1970, or 0: the producer's clock.


def decide_outcome(response: Response, adapters: Adapters, origin: Origin) -> RequestResult:
    """Decide the outcome of a response; the numbers, if any, are read by the adapters."""
    facts = response.facts
    if facts is None:
        return RequestResult(RequestOutcome.INCOMPLETE, response.incomplete, response)
    if response.failed:
        return RequestResult(RequestOutcome.FAILED_RESPONSE, None, response)
    if not facts.stats:
        if response.incomplete is not None:
            return RequestResult(RequestOutcome.INCOMPLETE, response.incomplete, response)
        return RequestResult(RequestOutcome.NO_STATS, _why_no_stats(response), response)
    if facts.too_large:
        return RequestResult(RequestOutcome.MALFORMED_STATS, MalformedReason.TOO_LARGE, response)
    parsed = facts.parsed()
    judgement = judge(adapters, parsed)
    outcome, reason, acceptance = judgement.outcome, judgement.reason, judgement.record
    if outcome is _NO_STATS and response.incomplete is not None:
        return RequestResult(RequestOutcome.INCOMPLETE, response.incomplete, response)
    record = None if acceptance is None else _record(acceptance, parsed, response, origin)
    return RequestResult(
        outcome, reason, response, record, judgement.claims, judgement.failures, judgement.detail
    )


def record_id(response: Response, origin: Origin) -> str:
    """Return an id that a replay gives again, and a recreated topic does not."""
    offset, index = response.place
    return f"{origin.fleet}/{origin.topic}/{origin.partition}/{offset}/{index}/{response.timestamp}"


def record_message(result: RequestResult, record: PublishedRecord, limit: int) -> OutputMessage:
    """Return the message of a record; what is long is left out of one that is too large.

    Args:
        result: outcome of the request.
        record: its record.
        limit: most bytes that a message may have.

    """
    context, completed = result.response.context, result.response.completed
    name = record.record_id.encode()
    headers: Headers = [
        *_RECORD_HEADERS,
        ("ce_id", name),
        ("ce_source", b"acceptance-consumer/" + record.fleet.encode()),
        _RECORD_TYPE_HEADER,
    ]
    if record.completed_at is not None:
        headers.append(("ce_time", record.completed_at.encode()))
    if context is not None and context.traceparent is not None:
        headers.append(("traceparent", context.traceparent.encode()))
    # Without a key, a compacted topic would refuse the record.
    key = record.request_id.encode() if record.request_id else name
    value = _encode(record)
    output = OutputMessage("record", key, value, headers, completed or 0)
    return output if _surely_fits(output, limit) else _fitted(output, record, limit)


def _fitted(output: OutputMessage, record: PublishedRecord, limit: int) -> OutputMessage:
    """Leave out what is long, if a record's message is too large."""
    left_out: tuple[str, ...] = ()
    headers = output.headers
    for fields in _LONG_FIELDS:
        if _size(output) <= limit:
            break
        left_out += fields
        record = msgspec.structs.replace(record, **dict.fromkeys(fields))
        said: Headers = [*headers, (LEFT_OUT, ", ".join(left_out).encode())]
        output = msgspec.structs.replace(output, value=_encode(record), headers=said)
    return output


def readable_headers(message: Message, reason: str) -> Headers | None:
    """Return the headers of a message that could not be used for a reason, None for unreadable."""
    return None if reason == _INVALID_HEADERS else headers_of(message.headers)


def message_letter(
    message: Message,
    outcome: MessageOutcome,
    reason: str,
    detail: str | None,
    origin: Origin,
    headers: Headers | None,
    *,
    reference: bool = False,
) -> DeadLetter:
    """Return the dead letter of a message that could not be used, with or without its bytes.

    Args:
        message: the message.
        outcome: its outcome.
        reason: why.
        detail: what is wrong, where more is known.
        origin: where it comes from.
        headers: its headers, as `readable_headers` returns them.
        reference: whether to leave out its bytes.

    """
    value, key = message.value() or b"", message.key()
    offset = message.offset() or 0
    kind, stamp = message.timestamp()
    timestamp = stamp if kind and stamp >= 0 else None
    # A value that holds credentials by the look of it is only referenced.
    full = not reference and not holds_credentials(value)
    kept = value[:_MAX_LETTER_BYTES] if full else b""
    return DeadLetter(
        kind="message",
        outcome=outcome,
        reason=reason,
        detail=_short(detail),
        fleet=origin.fleet,
        source_topic=origin.topic,
        source_partition=origin.partition,
        source_first_offset=offset,
        source_last_offset=offset,
        source_index=None,
        source_timestamp=timestamp,
        request_id=None,
        response_id=None,
        model=None,
        record_id=f"{origin.fleet}/{origin.topic}/{origin.partition}/{offset}/-/{stamp}",
        size=len(value),
        digest=digest(value),
        truncated=reference or len(kept) < len(value),
        key_base64=None if key is None else b64encode(key[:MAX_TEXT]).decode(),
        value_base64=b64encode(kept).decode() if full else None,
        headers=None if headers is None else _masked(headers),
        stats=None,
    )


def request_letter(result: RequestResult, origin: Origin) -> DeadLetter:
    """Return the dead letter of a request whose statistics could not be used."""
    response = result.response
    facts = response.facts
    stats = {} if facts is None else facts.stats or {}
    return DeadLetter(
        kind="request",
        outcome=result.outcome,
        reason=result.reason,
        detail=_detail(result),
        fleet=origin.fleet,
        source_topic=origin.topic,
        source_partition=origin.partition,
        source_first_offset=response.place[0],
        source_last_offset=response.last_offset,
        source_index=response.place[1],
        source_timestamp=response.timestamp if response.timestamp >= 0 else None,
        request_id=_short(response.request_id),
        response_id=_short(facts.response_id) if facts else None,
        model=model_of(response),
        record_id=record_id(response, origin),
        size=None,
        digest=None,
        truncated=False,
        key_base64=None,
        value_base64=None,
        headers=None,
        stats={place: _numbers(raw) for place, raw in stats.items()},
    )


def letter_message(letter: DeadLetter, limit: int, *, reference: bool) -> OutputMessage:
    """Return the message of a dead letter, without the payload if only a reference is wanted.

    One that is too large becomes a reference as well, and gives up its headers last.
    """
    if reference:
        letter = _without_payload(letter)
    key = (letter.request_id or letter.record_id).encode()
    headers: Headers = [
        *_CONTENT_HEADERS,
        ("kind", letter.kind.encode()),
        ("outcome", letter.outcome.encode()),
    ]
    if letter.reason is not None:
        headers.append(("reason", letter.reason.encode()))
    output = OutputMessage("dead_letter", key, _encode(letter), headers, 0)
    if _surely_fits(output, limit):
        return output
    for without in ({}, {"headers": None}):
        if _size(output) <= limit:
            break
        shortened = _without_payload(letter, **without)
        output = msgspec.structs.replace(output, value=_encode(shortened))
    return output


def model_of(response: Response) -> str | None:
    """Return the model of a response, as the event names it, else its body."""
    context, facts = response.context, response.facts
    model = context.model if context else None
    return _short(model or (facts.model if facts else None))


def digest(value: bytes) -> str:
    """Return the digest by which logs and dead letters name a value."""
    return blake2b(value, digest_size=16).hexdigest()


def _surely_fits(output: OutputMessage, limit: int) -> bool:
    """Tell that a message is small, which most are, without asking for its size.

    Key and headers repeat what the value has, each at most twice, beside a trace.
    """
    return 3 * len(output.value) + _MAX_AROUND <= limit


def _size(output: OutputMessage) -> int:
    """Return the bytes that a message takes, at most."""
    size = len(output.key or b"") + len(output.value) + _FRAMING_BYTES
    for name, value in output.headers:
        size += len(name) + len(value or b"") + _HEADER_FRAMING_BYTES
    return size


def _why_no_stats(response: Response) -> NoStatsReason:
    facts = response.facts
    if facts is not None and facts.without_stats:
        return NoStatsReason.ENDPOINT_WITHOUT_STATS
    if facts is not None and facts.streamed and facts.usage is None:
        return NoStatsReason.STREAM_WITHOUT_USAGE_CHUNK
    return NoStatsReason.ABSENT


def _record(
    acceptance: AcceptanceRecord, parsed: ParsedResponse, response: Response, origin: Origin
) -> PublishedRecord:
    context = response.context
    offset, index = response.place
    usage = parsed.usage
    return PublishedRecord(
        # One by one, since a dictionary of them takes longer to make and to take apart.
        engine=acceptance.engine,
        mean_acceptance_length=acceptance.mean_acceptance_length,
        draft_acceptance_rate=acceptance.draft_acceptance_rate,
        acceptance_histogram=acceptance.acceptance_histogram,
        num_accepted_draft_tokens=acceptance.num_accepted_draft_tokens,
        num_draft_tokens=acceptance.num_draft_tokens,
        num_spec_steps=acceptance.num_spec_steps,
        num_spec_tokens=acceptance.num_spec_tokens,
        completion_tokens=acceptance.completion_tokens,
        per_step_accepted=acceptance.per_step_accepted,
        per_step_drafted=acceptance.per_step_drafted,
        draft_tokens_measured=acceptance.draft_tokens_measured,
        fleet=origin.fleet,
        request_id=_short(response.request_id),
        # What comes from the body was cut when it was read.
        response_id=response.facts.response_id if response.facts else None,
        attempt=response.attempt,
        model=model_of(response),
        endpoint=_short(context.endpoint) if context else None,
        instance=_short(context.instance) if context else None,
        labels=_labels(origin.labels, context.labels if context else None),
        prompt_tokens=usage.prompt_tokens if usage else None,
        finish_reason=parsed.finish_reason,
        streamed=parsed.streamed,
        stream_complete=response.incomplete is None,
        incomplete_reason=response.incomplete,
        started_at=rfc3339(response.started),
        completed_at=rfc3339(response.completed),
        source_topic=origin.topic,
        source_partition=origin.partition,
        source_first_offset=offset,
        source_last_offset=response.last_offset,
        source_index=index,
        record_id=record_id(response, origin),
    )


def _labels(settings: Mapping[str, str], event: Mapping[str, str] | None) -> dict[str, str]:
    """Merge labels; those of the settings win; a stranger's are capped, and no credentials."""
    if not event:
        return dict(settings)
    labels = {
        name[:_MAX_LABEL_CHARACTERS]: MASK if is_secret(name) else value[:_MAX_LABEL_CHARACTERS]
        for name, value in list(event.items())[:MAX_LABELS]
    }
    return {**labels, **settings}


def _short(text: str | None) -> str | None:
    return None if text is None else text[:MAX_TEXT]


def _detail(result: RequestResult) -> str | None:
    parts = [f"claimed by {', '.join(result.claims)}"] if result.claims else []
    parts += [f"adapter {engine} raised {error}" for engine, error in result.failures]
    parts += [result.detail] if result.detail else []
    return "; ".join(parts)[:MAX_TEXT] or None


def _masked(headers: Headers) -> list[tuple[str, str | None]]:
    masked: list[tuple[str, str | None]] = []
    for long_name, value in headers[:MAX_HEADERS]:
        name = long_name[:_MAX_LABEL_CHARACTERS]
        if value is None:
            masked.append((name, None))
        elif is_secret(long_name):
            masked.append((name, MASKED))
        else:
            raw = value.encode("utf-8", "replace") if isinstance(value, str) else value
            masked.append((name, b64encode(raw[:MAX_HEADER_BYTES]).decode()))
    return masked


def _without_payload(letter: DeadLetter, **more: None) -> DeadLetter:
    return msgspec.structs.replace(
        letter, value_base64=None, truncated=letter.kind == "message", stats=None, **more
    )


def _numbers(raw: bytes) -> Any:
    """Return statistics with every text taken out: what is left cannot be content."""
    try:
        return _only_numbers(msgspec.json.decode(raw), [_MAX_STATS_ITEMS])
    except (msgspec.MsgspecError, RecursionError):
        return None


def _only_numbers(value: Any, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        return None
    if isinstance(value, dict):
        return {
            name[:_MAX_STATS_NAME]: _only_numbers(member, left) for name, member in value.items()
        }
    if isinstance(value, list):
        return [_only_numbers(entry, left) for entry in value[:_MAX_STATS_ITEMS]]
    if type(value) is int and abs(value) > MAX_COUNT:
        return None
    return None if isinstance(value, str) else value
