"""Shared by the adapters: an engine's JSON read strictly, and its counts."""

from collections.abc import Collection, Sized
from typing import Annotated, Any, Final, TypeVar

from msgspec import DecodeError, Meta, ValidationError
from msgspec.json import Decoder

from consumer.core.adapters.protocol import Refusal, malformed
from schemas import MalformedReason, ParsedResponse

T = TypeVar("T")

_INT64: Final = 2**63
# Messages of msgspec that quote no content, but only names of types.
_WITHOUT_CONTENT: Final = ("Expected `", "Object missing required field `", "Integer value out of")

# A count on the wire: a JSON integer that fits 64 bits, so that every subscriber can hold it.
# Negative ones pass, since the identities reject them with their own reason.
WireCount = Annotated[int, Meta(ge=-_INT64, le=_INT64 - 1)]


def latest(responses: list[ParsedResponse], places: Collection[str]) -> ParsedResponse | None:
    """Return the last response that has statistics at one of the places, or None."""
    for response in reversed(responses):
        for place in places:
            if place in response.stats:
                return response
    return None


def read(decoder: Decoder[T], raw: bytes) -> T | Refusal:
    """Decode statistics; return why they are malformed, and never raise."""
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        text = str(error)
        detail = text if text.startswith(_WITHOUT_CONTENT) else None
        return malformed(MalformedReason.WRONG_TYPE, detail)
    except (DecodeError, RecursionError):
        return malformed(MalformedReason.NOT_JSON)


def fits(decoder: Decoder[Any], raw: bytes) -> bool:
    """Return whether the bytes are JSON of the decoder's type."""
    try:
        decoder.decode(raw)
    except (DecodeError, RecursionError):
        return False
    return True


def has_a_bucket_for_each(k: int | None, histogram: Sized) -> bool:
    """Return whether a dense histogram has a bucket for each number of drafts from 0 to k."""
    return k is None or isinstance(histogram, dict) or len(histogram) == k + 1


def sparse(histogram: list[int] | dict[int, int]) -> dict[int, int]:
    """Return a histogram, dense or sparse, without its empty buckets."""
    buckets = histogram.items() if isinstance(histogram, dict) else enumerate(histogram)
    return {bucket: steps for bucket, steps in buckets if steps}


def completion_tokens(response: ParsedResponse) -> int | None:
    """Return the number of output tokens that the response's usage states, or None."""
    return response.usage.completion_tokens if response.usage else None
