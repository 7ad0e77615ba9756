"""The protocol of adapters, and what they may answer.

Follows AIPerf's `SpecDecodeAdapterProtocol` (v0.13): two classmethods, no state, found through the
entry-point group `spec_decode_adapter`. Here an adapter also declares the places that it reads,
since the service keeps nothing else of a response, and may say why it refuses numbers.
"""

from typing import ClassVar, Final, Protocol, runtime_checkable

from msgspec import Struct

from schemas import AcceptanceRecord, MalformedReason, ParsedResponse, RequestOutcome

ENTRY_POINT_GROUP: Final = "spec_decode_adapter"


class Refusal(Struct, frozen=True):
    """Numbers that an adapter recognises, but does not turn into a record.

    Attributes:
        outcome: `malformed_stats` or `unattributable`.
        reason: what is malformed.
        detail: what exactly, for logs and dead letters: printable, without text of the payload.

    """

    outcome: RequestOutcome
    reason: MalformedReason | None = None
    detail: str | None = None


UNATTRIBUTABLE: Final = Refusal(RequestOutcome.UNATTRIBUTABLE)


def malformed(reason: MalformedReason, detail: str | None = None) -> Refusal:
    """Return the refusal of malformed numbers."""
    return Refusal(RequestOutcome.MALFORMED_STATS, reason, detail)


@runtime_checkable
class SpecDecodeAdapter(Protocol):
    """An engine's reader of acceptance numbers.

    Attributes:
        engine: name of the engine in records, metrics and logs.
        places: JSON places of its numbers, as member names joined by dots from the root of a
            response or chunk. `choices[].x` is the member `x` of each choice, also where LiteLLM
            moved it into `provider_specific_fields`. A last name with one `*` (`meta_info.spec*`)
            stands for all members that it fits; the adapter receives an object of these members.

    An adapter may also have `own_keys`, names of the members by which it recognises its numbers:
    if it does not claim a response, `explain` names the missing ones. Those of this project have
    `title` and `switch_on` for the documents: the name for people, and how to get the numbers.

    """

    engine: ClassVar[str]
    places: ClassVar[tuple[str, ...]]

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Return whether the responses have keys that only this engine writes.

        The service asks only if one of the adapter's places is filled.
        """
        ...

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record, why there is none, or None if the engine reported nothing.

        The service calls it only after `can_adapt`, with one generation. An adapter does not raise
        for a malformed payload, and does not invent a number that the engine did not send.
        """
        ...
