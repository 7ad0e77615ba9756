"""What the adapters share: reading an engine's JSON strictly, and what follows from its counts."""

from collections.abc import Collection
from typing import Annotated, Any, Final, TypeVar

from msgspec import DecodeError, Meta, ValidationError
from msgspec.json import Decoder

from consumer.core.adapters.protocol import Refusal, malformed
from schemas import MalformedReason, ParsedResponse

T = TypeVar("T")

_INT64: Final = 2**63
# What msgspec says in names of our types alone; tags and unknown members it would quote.
_WITHOUT_CONTENT: Final = ("Expected `", "Object missing required field `", "Integer value out of")

# A count on the wire: a JSON integer that fits 64 bits, so that every subscriber can hold it.
# Negative ones pass, for the identities to name them.
WireCount = Annotated[int, Meta(ge=-_INT64, le=_INT64 - 1)]


def latest_at(responses: list[ParsedResponse], place: str) -> tuple[ParsedResponse, bytes] | None:
    """Return the last response that has statistics at the place, with them, if any has."""
    for response in reversed(responses):
        if (raw := response.stats.get(place)) is not None:
            return response, raw
    return None


def latest(responses: list[ParsedResponse], places: Collection[str]) -> ParsedResponse | None:
    """Return the last response that has statistics at one of the places, if any has."""
    for response in reversed(responses):
        if not response.stats.keys().isdisjoint(places):
            return response
    return None


def read(decoder: Decoder[T], raw: bytes) -> T | Refusal:
    """Return what the decoder makes of the bytes, or why it refuses them. Never raises."""
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        said = str(error)
        detail = said if said.startswith(_WITHOUT_CONTENT) else None
        return malformed(MalformedReason.WRONG_TYPE, detail)
    except (DecodeError, RecursionError):
        return malformed(MalformedReason.NOT_JSON)


def fits(decoder: Decoder[Any], raw: bytes) -> bool:
    """Tell whether the bytes are JSON of the decoder's type."""
    try:
        decoder.decode(raw)
    except (DecodeError, RecursionError):
        return False
    return True


def sparse(dense: list[int]) -> dict[int, int]:
    """Return a histogram without its empty buckets, by bucket."""
    return {bucket: steps for bucket, steps in enumerate(dense) if steps}


def completion_tokens(response: ParsedResponse) -> int | None:
    """Return the output tokens that the response's usage states, if it does."""
    return response.usage.completion_tokens if response.usage else None
