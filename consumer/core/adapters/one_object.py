"""The common form of adapters: one object, recognised by its keys, decoded strictly."""

from typing import Any, ClassVar

from msgspec.json import Decoder

from consumer.core.adapters.protocol import Refusal, malformed
from consumer.core.adapters.wire_counts import completion_tokens, fits, latest, read
from schemas import AcceptanceRecord, MalformedReason, ParsedResponse


class OneObjectAdapter:
    """Reads an engine that reports all its numbers in one object.

    Attributes:
        engine: name of the engine.
        places: where the object may be; objects at several places must be equal.
        signature: decoder of a struct whose members only this engine writes all together.
        wire: decoder of the object.

    """

    engine: ClassVar[str]
    places: ClassVar[tuple[str, ...]]
    signature: ClassVar[Decoder[Any]]
    wire: ClassVar[Decoder[Any]]

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Return whether the object is there, and has the engine's own keys."""
        response = latest(responses, cls.places)
        if response is None:
            return False
        for place in cls.places:
            if place in response.stats and fits(cls.signature, response.stats[place]):
                return True
        return False

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record, why there is none, or None if the engine reported nothing."""
        response = latest(responses, cls.places)
        if response is None:
            return None
        found: Any = None
        for place in cls.places:
            if place in response.stats:
                value = read(cls.wire, response.stats[place])
                if isinstance(value, Refusal):
                    return value
                if found is not None and found != value:
                    return malformed(MalformedReason.PLACES_DISAGREE)
                found = value
        return cls.record(found, completion_tokens(response))

    @classmethod
    def record(cls, stats: Any, completion_tokens: int | None) -> AcceptanceRecord | Refusal | None:
        """Return the record of the decoded object."""
        raise NotImplementedError
