"""vLLM: `metrics.speculative_decoding`, with `--per-request-spec-decode-metrics`.

The shape of vLLM 0.29 to 0.33 (vllm-project/vllm PR 48915), the same on chat, completions and
`/inference/v1/generate`. In streams the usage chunk carries it, and members that are null
elsewhere are omitted. With n > 1 or several prompts the server sends null instead. Builds before
the merge have `speculative_decoding_stats` in each choice, with a sparse histogram.
"""

from typing import Any, ClassVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal, malformed
from consumer.core.adapters.wire_counts import WireCount, has_a_bucket_for_each, sparse
from schemas import AcceptanceRecord, MalformedReason


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
    acceptance_histogram: list[WireCount] | dict[int, WireCount]
    num_spec_steps: WireCount
    num_accepted_draft_tokens: WireCount
    num_draft_tokens: WireCount
    num_spec_tokens: WireCount | None = None
    per_step_accepted: list[WireCount] | None = None
    per_step_drafted: list[WireCount] | None = None


class VLLMAdapter(OneObjectAdapter):
    """Reads vLLM's per-request metrics, which count what the verifier accepted."""

    engine: ClassVar[str] = "vllm"
    places: ClassVar[tuple[str, ...]] = (
        "metrics.speculative_decoding",
        "choices[].speculative_decoding_stats",
    )
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__
    title: ClassVar[str] = "vLLM (0.29 and later)"
    switch_on: ClassVar[str] = (
        "server: `--per-request-spec-decode-metrics summary`, or `detailed` for the "
        'per-step arrays; streams also need `"stream_options": {"include_usage": true}` in '
        "the request, or `--enable-force-include-usage`; n = 1, one prompt"
    )
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_SpeculativeDecoding)

    @classmethod
    def record(
        cls, stats: _SpeculativeDecoding, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record, even of zero verify steps, since vLLM reports them."""
        if not has_a_bucket_for_each(stats.num_spec_tokens, stats.acceptance_histogram):
            return malformed(MalformedReason.HISTOGRAM_LENGTH)
        return AcceptanceRecord(
            engine=cls.engine,
            mean_acceptance_length=stats.mean_acceptance_length,
            draft_acceptance_rate=stats.draft_acceptance_rate,
            acceptance_histogram=sparse(stats.acceptance_histogram),
            num_accepted_draft_tokens=stats.num_accepted_draft_tokens,
            num_draft_tokens=stats.num_draft_tokens,
            num_spec_steps=stats.num_spec_steps,
            num_spec_tokens=stats.num_spec_tokens,
            completion_tokens=completion_tokens,
            per_step_accepted=stats.per_step_accepted,
            per_step_drafted=stats.per_step_drafted,
        )
