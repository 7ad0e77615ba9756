"""vLLM: `metrics.speculative_decoding`, with `--per-request-spec-decode-metrics`.

The shape of vLLM 0.29 to 0.33 (vllm-project/vllm PR 48915), the same on chat, completions and
`/inference/v1/generate`. In streams the usage chunk carries it, and members that are null
elsewhere are omitted. With n > 1 or several prompts the server sends null instead.
"""

from typing import ClassVar, Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.protocol import Refusal, malformed
from consumer.core.adapters.wire_counts import (
    WireCount,
    completion_tokens,
    fits,
    latest,
    read,
    sparse,
)
from schemas import AcceptanceRecord, MalformedReason, ParsedResponse

_PLACE: Final = "metrics.speculative_decoding"


class _Signature(Struct):
    """The keys that vLLM always sends: if one is missing, the shape has changed."""

    mean_acceptance_length: Raw
    draft_acceptance_rate: Raw
    acceptance_histogram: Raw
    num_spec_steps: Raw
    num_accepted_draft_tokens: Raw
    num_draft_tokens: Raw


class _SpeculativeDecoding(Struct):
    """The object on the wire; unknown members are ignored (PR 56278 will add one)."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[WireCount]
    num_spec_steps: WireCount
    num_accepted_draft_tokens: WireCount
    num_draft_tokens: WireCount
    num_spec_tokens: WireCount | None = None
    per_step_accepted: list[WireCount] | None = None
    per_step_drafted: list[WireCount] | None = None


_SIGNATURE: Final = Decoder(_Signature)
_OBJECT: Final = Decoder(_SpeculativeDecoding)


class VLLMAdapter:
    """Reads vLLM's per-request metrics, including its mean and rate, which are exact."""

    engine: ClassVar[str] = "vllm"
    places: ClassVar[tuple[str, ...]] = (_PLACE,)
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Claim an object that has vLLM's own key names."""
        response = latest(responses, cls.places)
        return response is not None and fits(_SIGNATURE, response.stats[_PLACE])

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record, even of zero verify steps, since vLLM reports them."""
        response = latest(responses, cls.places)
        if response is None:
            return None
        stats = read(_OBJECT, response.stats[_PLACE])
        if isinstance(stats, Refusal):
            return stats
        k = stats.num_spec_tokens
        if k is not None and len(stats.acceptance_histogram) != k + 1:
            return malformed(MalformedReason.HISTOGRAM_LENGTH)
        return AcceptanceRecord(
            engine=cls.engine,
            mean_acceptance_length=stats.mean_acceptance_length,
            draft_acceptance_rate=stats.draft_acceptance_rate,
            acceptance_histogram=sparse(stats.acceptance_histogram),
            num_accepted_draft_tokens=stats.num_accepted_draft_tokens,
            num_draft_tokens=stats.num_draft_tokens,
            num_spec_steps=stats.num_spec_steps,
            num_spec_tokens=k,
            completion_tokens=completion_tokens(response),
            per_step_accepted=stats.per_step_accepted,
            per_step_drafted=stats.per_step_drafted,
        )
