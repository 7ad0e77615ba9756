"""LM Studio: `*_draft_tokens_count` in `stats` or `usage`, wherever a draft model runs.

Which of the two depends on version and endpoint: `stats` since 0.3.10, `usage` of `/api/v0` in
0.4.24. The total is the sum of accepted, rejected and ignored drafts. There are no verify steps.
"""

from typing import Any, ClassVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal
from consumer.core.adapters.wire_counts import WireCount
from schemas import AcceptanceRecord


class _Signature(Struct):
    total_draft_tokens_count: Raw
    accepted_draft_tokens_count: Raw


class _Counts(Struct):
    total_draft_tokens_count: WireCount
    accepted_draft_tokens_count: WireCount


class LMStudioAdapter(OneObjectAdapter):
    """Reads LM Studio's counts of drafted and accepted tokens."""

    engine: ClassVar[str] = "lmstudio"
    places: ClassVar[tuple[str, ...]] = (
        "stats.*_draft_tokens_count",
        "usage.*_draft_tokens_count",
    )
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__
    title: ClassVar[str] = "LM Studio (0.3.10 and later)"
    switch_on: ClassVar[str] = "nothing: any model with a draft model"
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_Counts)

    @classmethod
    def record(
        cls, counts: _Counts, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None if nothing was drafted."""
        if not counts.total_draft_tokens_count and not counts.accepted_draft_tokens_count:
            return None
        return AcceptanceRecord(
            engine=cls.engine,
            num_accepted_draft_tokens=counts.accepted_draft_tokens_count,
            num_draft_tokens=counts.total_draft_tokens_count,
            completion_tokens=completion_tokens,
        )
