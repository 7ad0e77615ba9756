"""SGLang's exact counts: `speculative_decoding_stats`, beside the nominal ones.

sgl-project/sglang PR 34814, not merged when this was written; the flag is
`--speculative-decoding-stats summary|detailed`. `meta_info` has the object, `sglext` a list of
objects by choice. Lengths by step include the token that the step itself gives.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder

from consumer.core.adapters.protocol import UNATTRIBUTABLE, Refusal, malformed
from consumer.core.adapters.wire_counts import WireCount, fits, read
from schemas import AcceptanceRecord, MalformedReason

_OF_META_INFO: Final = ("meta_info.spec*", "choices[].meta_info.spec*")
SGLEXT_PLACE: Final = "sglext.speculative_decoding_stats"


class _Signature(Struct):
    num_verification_steps: Raw
    num_verified_draft_tokens: Raw


class ExactStats(Struct):
    """The object on the wire; unknown members are ignored."""

    num_verification_steps: WireCount
    num_accepted_draft_tokens: WireCount
    num_verified_draft_tokens: WireCount
    mean_accept_length: float | None = None
    draft_acceptance_rate: float | None = None
    verify_lengths: list[WireCount] | None = None
    accept_lengths: list[WireCount] | None = None


class _MetaInfo(Struct):
    speculative_decoding_stats: Raw | UnsetType = UNSET


_META_INFO: Final = Decoder(_MetaInfo)
_SIGNATURE: Final = Decoder(_Signature | list[_Signature])
_STATS: Final[Decoder[ExactStats | list[ExactStats]]] = Decoder(ExactStats | list[ExactStats])


def has_exact_stats(stats: Mapping[str, bytes]) -> bool:
    """Return whether a place has exact counts, under the names that only SGLang writes."""
    return any(fits(_SIGNATURE, raw) for raw in _raw_stats(stats))


def exact_stats(stats: Mapping[str, bytes]) -> ExactStats | Refusal | None:
    """Return the exact counts of a response, why they cannot be used, or None without any."""
    found: list[ExactStats] = []
    for raw in _raw_stats(stats):
        value = read(_STATS, raw)
        if isinstance(value, list):  # An entry by choice, also of a single one.
            value = value[0] if len(value) == 1 else UNATTRIBUTABLE
        if isinstance(value, Refusal):
            return value
        found.append(value)
    if found and found.count(found[0]) != len(found):
        return malformed(MalformedReason.PLACES_DISAGREE)
    return found[0] if found else None


def exact_record(stats: ExactStats, engine: str, completion_tokens: int | None) -> AcceptanceRecord:
    """Return the record of exact counts; the histogram follows from the lengths by step."""
    accepted, verified = _without_own(stats.accept_lengths), _without_own(stats.verify_lengths)
    return AcceptanceRecord(
        engine=engine,
        mean_acceptance_length=stats.mean_accept_length,
        draft_acceptance_rate=stats.draft_acceptance_rate,
        acceptance_histogram=None if accepted is None else dict(sorted(Counter(accepted).items())),
        num_accepted_draft_tokens=stats.num_accepted_draft_tokens,
        num_draft_tokens=stats.num_verified_draft_tokens,
        num_spec_steps=stats.num_verification_steps,
        completion_tokens=completion_tokens,
        per_step_accepted=accepted,
        per_step_drafted=verified,
    )


def _raw_stats(stats: Mapping[str, bytes]) -> list[bytes]:
    found = [stats[SGLEXT_PLACE]] if SGLEXT_PLACE in stats else []
    for place in _OF_META_INFO:
        if place in stats:
            members = read(_META_INFO, stats[place])
            if isinstance(members, _MetaInfo) and isinstance(
                members.speculative_decoding_stats, Raw
            ):
                found.append(bytes(members.speculative_decoding_stats))
    return found


def _without_own(lengths: list[int] | None) -> list[int] | None:
    """Return numbers of drafts by step, without the token of the step itself."""
    return None if lengths is None else [length - 1 for length in lengths]
