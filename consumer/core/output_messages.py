"""Records and dead letters as messages for the output topics, none larger than its topic takes."""

from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from consumer.core.message import Headers
from consumer.core.reassembly.response import Response
from schemas import SCHEMA_VERSION, DeadLetter, PublishedRecord, RequestOutcome

_BATCH_FRAMING_BYTES: Final = 128  # Added to one message by its batch, at most.
_HEADER_FRAMING_BYTES: Final = 8
_MAX_AROUND_BYTES: Final = 8192  # Upper bound of what is added to value, key and headers.
_LONG_FIELDS: Final = (("per_step_accepted", "per_step_drafted"), ("acceptance_histogram",))
_PUBLISHED: Final = RequestOutcome.PUBLISHED

_CONTENT_HEADERS: Final[Headers] = [
    ("content-type", b"application/json"),
    ("schema-version", str(SCHEMA_VERSION).encode()),
]
_RECORD_HEADERS: Final[Headers] = [*_CONTENT_HEADERS, ("ce_specversion", b"1.0")]
_RECORD_TYPE_HEADER: Final = ("ce_type", b"acceptance-consumer.record")

_encode = msgspec.json.Encoder().encode


class OutputMessage(Struct, frozen=True, gc=False):
    """A record or a dead letter, ready to be sent.

    Attributes:
        output: which output topic it is for.
        key: Kafka key.
        value: JSON text.
        headers: Kafka headers.
        timestamp: milliseconds since 1970, or 0 for the producer's clock.
        source: topic, partition and offset of the first event.
        request_id: id of the request, where known.
        kind: whether it is about a message or a request.
        outcome: outcome of the message or request.
        reason: why, where the outcome has reasons.
        left_out: fields of a record that were left out because the message was too large.

    """

    output: Literal["record", "dead_letter"]
    key: bytes
    value: bytes
    headers: Headers
    timestamp: int
    source: tuple[str, int, int]
    request_id: str | None
    kind: Literal["message", "request"]
    outcome: str
    reason: str | None = None
    left_out: tuple[str, ...] = ()


def output_of_record(record: PublishedRecord, response: Response, limit: int) -> OutputMessage:
    """Return the message of a record. If it is too large, its long fields are left out.

    The result may still be too large; then the sender drops it.

    Args:
        record: the record.
        response: the response that it is about.
        limit: maximum size of a message, in bytes.

    """
    context = response.context
    record_id = record.record_id.encode()
    headers: Headers = [
        *_RECORD_HEADERS,
        ("ce_id", record_id),
        ("ce_source", b"acceptance-consumer/" + record.fleet.encode()),
        _RECORD_TYPE_HEADER,
    ]
    if record.completed_at is not None:
        headers.append(("ce_time", record.completed_at.encode()))
    if context is not None and context.traceparent is not None:
        headers.append(("traceparent", context.traceparent.encode()))
    output = OutputMessage(
        "record",
        # A compacted topic rejects messages without a key.
        record.request_id.encode() if record.request_id else record_id,
        _encode(record),
        headers,
        response.completed or 0,
        (record.source_topic, record.source_partition, record.source_first_offset),
        record.request_id,
        "request",
        _PUBLISHED,
    )
    return output if _surely_fits(output, limit) else _fit_record(output, record, limit)


def output_of_letter(letter: DeadLetter, limit: int) -> OutputMessage:
    """Return the message of a dead letter.

    One that is too large loses its payload, and then its headers.

    Args:
        letter: the letter.
        limit: maximum size of a message, in bytes.

    """
    headers: Headers = [
        *_CONTENT_HEADERS,
        ("kind", letter.kind.encode()),
        ("outcome", letter.outcome.encode()),
    ]
    if letter.reason is not None:
        headers.append(("reason", letter.reason.encode()))
    output = OutputMessage(
        "dead_letter",
        (letter.request_id or letter.record_id).encode(),
        _encode(letter),
        headers,
        0,
        (letter.source_topic, letter.source_partition, letter.source_first_offset),
        letter.request_id,
        letter.kind,
        letter.outcome,
        letter.reason,
    )
    return output if _surely_fits(output, limit) else _fit_letter(output, letter, limit)


def _surely_fits(output: OutputMessage, limit: int) -> bool:
    """Return whether a message fits, judged by a rough upper bound; nearly all do.

    Each of key and headers repeats at most the value.
    """
    return 3 * len(output.value) + _MAX_AROUND_BYTES <= limit


def _fit_record(output: OutputMessage, record: PublishedRecord, limit: int) -> OutputMessage:
    """Leave long fields out of a record until its message fits; name them in a header."""
    left_out: tuple[str, ...] = ()
    headers = output.headers
    for fields in _LONG_FIELDS:
        if _size(output) <= limit:
            break
        left_out += fields
        record = replace(record, **dict.fromkeys(fields))
        names = ("left-out", ", ".join(left_out).encode())
        output = replace(
            output, value=_encode(record), headers=[*headers, names], left_out=left_out
        )
    return output


def _fit_letter(output: OutputMessage, letter: DeadLetter, limit: int) -> OutputMessage:
    """Take the payload out of a letter, then the headers, until its message fits."""
    payload = {"value_base64": None, "stats": None, "truncated": letter.kind == "message"}
    for fields in (payload, {**payload, "headers": None}):
        if _size(output) <= limit:
            break
        output = replace(output, value=_encode(replace(letter, **fields)))
    return output


def _size(output: OutputMessage) -> int:
    """Return the maximum number of bytes that a message takes."""
    size = len(output.key) + len(output.value) + _BATCH_FRAMING_BYTES
    for name, value in output.headers:
        size += len(name) + len(value or b"") + _HEADER_FRAMING_BYTES
    return size
