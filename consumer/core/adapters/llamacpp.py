"""llama.cpp's server: `timings.draft_n` and `timings.draft_n_accepted`, without any option.

A server with a draft model sends both with every response that drafted (ggml-org/llama.cpp PR
12603), in a stream with its last chunk, with `timings_per_token` as running totals in each chunk.
It states no verify steps. They are not estimated from the tokens: the server's own counter differs
from such an estimate, since a stop cuts the last step and some steps draft nothing. PR 27676 would
add `draft_n_verif_steps`. With n > 1 the numbers are those of the first choice.
"""

from typing import Any, ClassVar

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal
from consumer.core.adapters.wire_counts import WireCount
from schemas import AcceptanceRecord


class _Signature(Struct):
    """The keys of llama.cpp, without the keys that mlx-vlm adds."""

    draft_n: Raw
    draft_n_accepted: Raw
    draft_rounds: UnsetType = UNSET
    draft_kind: UnsetType = UNSET


class _Timings(Struct):
    draft_n: WireCount
    draft_n_accepted: WireCount
    draft_n_verif_steps: WireCount | None = None


class LlamaCppAdapter(OneObjectAdapter):
    """Reads llama.cpp's counts of drafted and accepted tokens."""

    engine: ClassVar[str] = "llamacpp"
    places: ClassVar[tuple[str, ...]] = ("timings.draft*",)
    own_keys: ClassVar[tuple[str, ...]] = ("draft_n", "draft_n_accepted")
    title: ClassVar[str] = "llama.cpp server, ik_llama.cpp"
    switch_on: ClassVar[str] = (
        "nothing: any server with a draft model; on `/v1/responses` only in streams"
    )
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_Timings)

    @classmethod
    def record(
        cls, timings: _Timings, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None if nothing was drafted."""
        if not timings.draft_n and not timings.draft_n_accepted:
            return None
        return AcceptanceRecord(
            engine=cls.engine,
            num_accepted_draft_tokens=timings.draft_n_accepted,
            num_draft_tokens=timings.draft_n,
            num_spec_steps=timings.draft_n_verif_steps,
            completion_tokens=completion_tokens,
        )
