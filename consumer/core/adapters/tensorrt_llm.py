"""TensorRT-LLM: `choices[].speculative_decoding`, with `per_request_spec_decode_stats: true`.

Provisional: the shape is that of NVIDIA/TensorRT-LLM PR 19311, which was not merged when this was
written. In streams the choice chunk with `finish_reason` carries it; a request without verify steps
has none. Released versions send only `avg_decoded_tokens_per_iter`, which is not an acceptance
length, because it averages over steps without drafts as well.
"""

from typing import Any, ClassVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal, malformed
from consumer.core.adapters.wire_counts import WireCount, has_a_bucket_for_each, sparse
from schemas import AcceptanceRecord, MalformedReason


class _Signature(Struct):
    """The keys that only TensorRT-LLM writes: vLLM writes the other ones as well."""

    total_accepted_draft_tokens: Raw
    total_draft_tokens: Raw


class _SpeculativeDecoding(Struct):
    """The object on the wire; unknown members are ignored."""

    total_accepted_draft_tokens: WireCount
    total_draft_tokens: WireCount
    num_spec_steps: WireCount
    acceptance_histogram: list[WireCount]
    acceptance_rate: float | None = None
    # Null without a bound (`draft_len_schedule`): the histogram ends at the deepest step seen.
    num_spec_tokens: WireCount | None = None


class TensorRTLLMAdapter(OneObjectAdapter):
    """Reads TensorRT-LLM's statistics of one choice."""

    engine: ClassVar[str] = "tensorrt_llm"
    places: ClassVar[tuple[str, ...]] = ("choices[].speculative_decoding",)
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__
    title: ClassVar[str] = "TensorRT-LLM (provisional: a pull request when this was written)"
    switch_on: ClassVar[str] = (
        "server: `per_request_spec_decode_stats: true` in the file of "
        "`--extra_llm_api_options`; PyTorch backend"
    )
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_SpeculativeDecoding)

    @classmethod
    def record(
        cls, stats: _SpeculativeDecoding, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record."""
        if not has_a_bucket_for_each(stats.num_spec_tokens, stats.acceptance_histogram):
            return malformed(MalformedReason.HISTOGRAM_LENGTH)
        return AcceptanceRecord(
            engine=cls.engine,
            draft_acceptance_rate=stats.acceptance_rate,
            acceptance_histogram=sparse(stats.acceptance_histogram),
            num_accepted_draft_tokens=stats.total_accepted_draft_tokens,
            num_draft_tokens=stats.total_draft_tokens,
            num_spec_steps=stats.num_spec_steps,
            num_spec_tokens=stats.num_spec_tokens,
            completion_tokens=completion_tokens,
        )
