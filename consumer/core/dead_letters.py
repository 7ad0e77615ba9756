"""Dead letters of messages and requests that could not be used."""

import re
from base64 import b64encode
from hashlib import blake2b
from typing import Any, Final

import msgspec

from consumer.core.message import Headers, Message, headers_of
from consumer.core.outcomes import RequestResult
from consumer.core.records import Origin, model_of, record_id, shortened
from consumer.core.redaction import holds_credentials, is_secret
from schemas import BadPayloadReason, DeadLetter, MessageOutcome, RequestOutcome
from schemas.record import MAX_COUNT, MAX_TEXT

# Outcomes of requests that get a dead letter.
LETTER_OUTCOMES: Final = frozenset(
    {
        RequestOutcome.MALFORMED_STATS,
        RequestOutcome.UNRECOGNISED_STATS,
        RequestOutcome.AMBIGUOUS_STATS,
    }
)
MASKED: Final = b64encode(b"***").decode()
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 4096
_MAX_VALUE_BYTES: Final = 512 * 1024
_MAX_HEADER_NAME: Final = 256
_MAX_STATS_ITEMS: Final = 1024
_STATS_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # A key of statistics, never a sentence.
_INVALID_HEADERS: Final = BadPayloadReason.INVALID_HEADERS.value


def letter_of_message(
    message: Message,
    outcome: MessageOutcome,
    reason: str,
    detail: str | None,
    origin: Origin,
    headers: Headers | None,
    *,
    reference: bool = False,
) -> DeadLetter:
    """Return the dead letter of a message.

    Args:
        message: the message.
        outcome: its outcome.
        reason: why it could not be used.
        detail: what is wrong, where more is known.
        origin: where it came from.
        headers: its headers, as `readable_headers` returns them.
        reference: whether to leave out its value.

    """
    value, key = message.value() or b"", message.key()
    offset = message.offset() or 0
    kind, stamp = message.timestamp()
    # A value that seems to hold credentials is only referenced.
    full = not reference and not holds_credentials(value)
    kept = value[:_MAX_VALUE_BYTES] if full else b""
    return DeadLetter(
        kind="message",
        outcome=outcome,
        reason=reason,
        detail=shortened(detail),
        fleet=origin.fleet,
        source_topic=origin.topic,
        source_partition=origin.partition,
        source_first_offset=offset,
        source_last_offset=offset,
        source_index=None,
        source_timestamp=stamp if kind and stamp >= 0 else None,
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


def letter_of_request(result: RequestResult, origin: Origin) -> DeadLetter:
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
        request_id=shortened(response.request_id),
        response_id=shortened(facts.response_id) if facts else None,
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


def readable_headers(message: Message, reason: str) -> Headers | None:
    """Return the headers of a message that could not be used; None if they cannot be read.

    The client must not be asked again for headers that it could not read, see `headers_of`.
    """
    return None if reason == _INVALID_HEADERS else headers_of(message.headers)


def digest(value: bytes) -> str:
    """Return the digest that names a value in logs and dead letters."""
    return blake2b(value, digest_size=16).hexdigest()


def _masked(headers: Headers) -> list[tuple[str, str | None]]:
    """Encode headers for a letter: capped, and credentials masked."""
    masked: list[tuple[str, str | None]] = []
    for long_name, value in headers[:MAX_HEADERS]:
        name = long_name[:_MAX_HEADER_NAME]
        if value is None:
            masked.append((name, None))
        elif is_secret(long_name):
            masked.append((name, MASKED))
        else:
            raw = value.encode("utf-8", "replace") if isinstance(value, str) else value
            masked.append((name, b64encode(raw[:MAX_HEADER_BYTES]).decode()))
    return masked


def _detail(result: RequestResult) -> str | None:
    parts = [f"claimed by {', '.join(result.claims)}"] if result.claims else []
    parts += [f"adapter {engine} raised {error}" for engine, error in result.failures]
    parts += [result.detail] if result.detail else []
    return shortened("; ".join(parts)) or None


def _numbers(raw: bytes) -> Any:
    """Return statistics without any text, so that no content is left in them."""
    try:
        return _only_numbers(msgspec.json.decode(raw), [_MAX_STATS_ITEMS])
    except (msgspec.MsgspecError, RecursionError):
        return None


def _only_numbers(value: Any, left: list[int]) -> Any:
    """Return a value with its numbers only, until no more items are left."""
    left[0] -= 1
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for name, member in value.items():
            if left[0] <= 0:
                break
            if _STATS_NAME.fullmatch(name):
                found[name] = _only_numbers(member, left)
        return found
    if isinstance(value, list):
        return [_only_numbers(entry, left) for entry in value if left[0] > 0]
    if type(value) is int and abs(value) > MAX_COUNT:
        return None
    return None if isinstance(value, str) else value
