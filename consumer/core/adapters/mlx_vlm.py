"""mlx-vlm: llama.cpp's `timings` with `draft_kind` and `draft_rounds`, its verify steps.

Since 0.7.10 (Blaizzy/mlx-vlm PR 1788) every response with a drafter has them, a stream on its usage
chunk; without one they are null. The counters are those of the drafter during the request: exact
with one request in flight, shared by concurrent ones. mlxcel (lablup/mlxcel PR 1588) writes the
same members, of which nothing tells the two apart.
"""

from typing import Any, ClassVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal
from consumer.core.adapters.wire_counts import WireCount
from schemas import AcceptanceRecord


class _Signature(Struct):
    draft_rounds: Raw


class _Timings(Struct):
    draft_rounds: WireCount
    draft_n: WireCount
    draft_n_accepted: WireCount


class MlxVlmAdapter(OneObjectAdapter):
    """Reads mlx-vlm's counts of the drafter."""

    engine: ClassVar[str] = "mlx_vlm"
    places: ClassVar[tuple[str, ...]] = ("timings.draft*",)
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__
    title: ClassVar[str] = "mlx-vlm (0.7.10), mlxcel"
    switch_on: ClassVar[str] = (
        'nothing; in streams `"stream_options": {"include_usage": true}`; concurrent requests '
        "share the counts"
    )
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_Timings)

    @classmethod
    def record(
        cls, timings: _Timings, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None if the drafter had no round."""
        if not any((timings.draft_rounds, timings.draft_n, timings.draft_n_accepted)):
            return None
        return AcceptanceRecord(
            engine=cls.engine,
            num_accepted_draft_tokens=timings.draft_n_accepted,
            num_draft_tokens=timings.draft_n,
            num_spec_steps=timings.draft_rounds,
            completion_tokens=completion_tokens,
        )
