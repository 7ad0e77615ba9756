"""What an adapter is, and what it may answer.

Follows AIPerf's `SpecDecodeAdapterProtocol` (v0.13): two classmethods, no state, found through the
entry-point group `spec_decode_adapter`. Ours also declares the places that it reads, since a log
reader keeps nothing else of a response, and may say why numbers are refused.
"""

from typing import ClassVar, Final, Protocol, runtime_checkable

from msgspec import Struct

from schemas import AcceptanceRecord, MalformedReason, ParsedResponse, RequestOutcome

ENTRY_POINT_GROUP: Final = "spec_decode_adapter"


class Refusal(Struct, frozen=True):
    """Numbers that an adapter recognises and will not turn into a record.

    Attributes:
        outcome: `malformed_stats` or `unattributable`.
        reason: what is malformed.
        detail: what exactly, for logs and dead letters: printable, and no text of the payload.

    """

    outcome: RequestOutcome
    reason: MalformedReason | None = None
    detail: str | None = None


UNATTRIBUTABLE: Final = Refusal(RequestOutcome.UNATTRIBUTABLE)


def malformed(reason: MalformedReason, detail: str | None = None) -> Refusal:
    """Return the refusal of numbers that are wrong, for the reason given."""
    return Refusal(RequestOutcome.MALFORMED_STATS, reason, detail)


@runtime_checkable
class SpecDecodeAdapter(Protocol):
    """An engine's reader of acceptance numbers.

    Attributes:
        engine: name of the engine in records, metrics and logs.
        places: JSON places that hold its numbers, as member names joined by dots from the root of
            a response or chunk. `choices[].x` is the member `x` of each choice. A last name that
            ends in `*` (`meta_info.spec*`) stands for all members of that prefix, and the bytes
            kept are an object of just those members.

    An adapter may also have `own_keys`, names of the members by which it knows its numbers: where
    it does not claim, `explain` says which of them are not there.

    """

    engine: ClassVar[str]
    places: ClassVar[tuple[str, ...]]

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Tell whether the responses carry keys that only this engine writes. Cheap, no effects."""
        ...

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record, why there is none, or None where the engine reported nothing.

        Called only after `can_adapt` and with one generation. Does not raise for a malformed
        payload, and never invents a number that the engine did not send.
        """
        ...
