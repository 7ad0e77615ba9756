"""TensorRT-LLM: `choices[].speculative_decoding`, with `per_request_spec_decode_stats: true`.

Provisional: the shape is that of NVIDIA/TensorRT-LLM PR 19311, which was not merged when this was
written. In streams the choice chunk with `finish_reason` carries it; a request without verify steps
has none. Released versions send only `avg_decoded_tokens_per_iter`, which is not an acceptance
length, because it averages over steps without drafts as well.
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

_PLACE: Final = "choices[].speculative_decoding"


class _Signature(Struct):
    """The keys that only TensorRT-LLM writes: vLLM writes the other ones as well."""

    total_accepted_draft_tokens: Raw
    total_draft_tokens: Raw


class _SpeculativeDecoding(Struct):
    """The object on the wire; unknown members and `acceptance_rate` are ignored."""

    total_accepted_draft_tokens: WireCount
    total_draft_tokens: WireCount
    num_spec_steps: WireCount
    acceptance_histogram: list[WireCount]
    num_spec_tokens: WireCount | None = None


_SIGNATURE: Final = Decoder(_Signature)
_OBJECT: Final = Decoder(_SpeculativeDecoding)


class TensorRTLLMAdapter:
    """Reads TensorRT-LLM's statistics of one choice."""

    engine: ClassVar[str] = "tensorrt_llm"
    places: ClassVar[tuple[str, ...]] = (_PLACE,)
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Claim an object that has TensorRT-LLM's own key names."""
        response = latest(responses, cls.places)
        return response is not None and fits(_SIGNATURE, response.stats[_PLACE])

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record."""
        response = latest(responses, cls.places)
        if response is None:
            return None
        stats = read(_OBJECT, response.stats[_PLACE])
        if isinstance(stats, Refusal):
            return stats
        accepted, drafted = stats.total_accepted_draft_tokens, stats.total_draft_tokens
        # Without a bound (`draft_len_schedule`) the histogram ends at the deepest step seen.
        k = stats.num_spec_tokens
        if k is not None and len(stats.acceptance_histogram) != k + 1:
            return malformed(MalformedReason.HISTOGRAM_LENGTH)
        return AcceptanceRecord(
            engine=cls.engine,
            acceptance_histogram=sparse(stats.acceptance_histogram),
            num_accepted_draft_tokens=accepted,
            num_draft_tokens=drafted,
            num_spec_steps=stats.num_spec_steps,
            num_spec_tokens=k,
            completion_tokens=completion_tokens(response),
        )
