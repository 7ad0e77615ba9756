"""TensorRT-LLM: `choices[].speculative_decoding`, with `per_request_spec_decode_stats: true`.

Provisional: the shape is that of NVIDIA/TensorRT-LLM PR 19311, which was not merged when this was
written. In streams it rides the choice chunk that carries `finish_reason`, and nothing is sent for
a request without verify steps. Released versions send only `avg_decoded_tokens_per_iter`, which
averages over steps without drafts as well and is no acceptance length.
"""

from typing import ClassVar, Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.protocol import Refusal, malformed
from consumer.core.adapters.wire_counts import (
    WireCount,
    completion_tokens,
    fits,
    latest_at,
    read,
    sparse,
)
from schemas import AcceptanceRecord, MalformedReason, ParsedResponse

_PLACE: Final = "choices[].speculative_decoding"


class _Signature(Struct):
    """Keys of TensorRT-LLM alone: the other names of its object are vLLM's as well."""

    total_accepted_draft_tokens: Raw
    total_draft_tokens: Raw


class _SpeculativeDecoding(Struct):
    """The object on the wire; unknown members are ignored, so is its own `acceptance_rate`."""

    total_accepted_draft_tokens: WireCount
    total_draft_tokens: WireCount
    num_spec_steps: WireCount
    acceptance_histogram: list[WireCount]
    num_spec_tokens: WireCount | None = None


_SIGNATURE: Final = Decoder(_Signature)
_OBJECT: Final = Decoder(_SpeculativeDecoding)


class TensorRTLLMAdapter:
    """Reads TensorRT-LLM's statistics of one choice. Mean and rate are derived from counts."""

    engine: ClassVar[str] = "tensorrt_llm"
    places: ClassVar[tuple[str, ...]] = (_PLACE,)
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Claim an object that has TensorRT-LLM's own key names."""
        found = latest_at(responses, _PLACE)
        return found is not None and fits(_SIGNATURE, found[1])

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record."""
        found = latest_at(responses, _PLACE)
        if found is None:
            return None
        response, raw = found
        stats = read(_OBJECT, raw)
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
