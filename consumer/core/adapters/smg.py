"""The gateway smg: `accepted_prediction_tokens` and `rejected_prediction_tokens` in `usage`.

smg-project/smg PR 2481 fills them with the drafts of the engine behind it. OpenAI gives the same
members to another feature, Predicted Outputs, so that this adapter is not installed: the setting
`prediction_tokens` adds it. Drafts may be nominal, since those of SGLang are. There are no steps.
"""

from typing import Any, ClassVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal
from consumer.core.adapters.wire_counts import WireCount
from schemas import AcceptanceRecord


class _Signature(Struct):
    accepted_prediction_tokens: Raw
    rejected_prediction_tokens: Raw


class _PredictionTokens(Struct):
    accepted_prediction_tokens: WireCount
    rejected_prediction_tokens: WireCount


class SmgAdapter(OneObjectAdapter):
    """Reads what smg says of the engine's drafts."""

    engine: ClassVar[str] = "smg"
    places: ClassVar[tuple[str, ...]] = ("usage.completion_tokens_details.*_prediction_tokens",)
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__
    title: ClassVar[str] = "any engine behind smg"
    switch_on: ClassVar[str] = "the setting `prediction_tokens=drafts` of this service"
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_PredictionTokens)

    @classmethod
    def record(
        cls, tokens: _PredictionTokens, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None if nothing was drafted."""
        accepted, rejected = tokens.accepted_prediction_tokens, tokens.rejected_prediction_tokens
        if not accepted and not rejected:
            return None
        return AcceptanceRecord(
            engine=cls.engine,
            num_accepted_draft_tokens=accepted,
            num_draft_tokens=accepted + rejected,
            completion_tokens=completion_tokens,
            draft_tokens_measured=False,
        )
