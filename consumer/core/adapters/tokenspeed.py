"""TokenSpeed: `meta_info.spec_accepted_tokens` and `spec_draft_tokens` of every finished request.

lightseekorg/tokenspeed PR 1443, merged in September 2026. The engine states the drafts as steps by
its static width, and as accepted the tokens that neither prefill nor the steps themselves gave, so
that a stop in the last step lowers them. SGLang, from which it stems, shares only `spec_verify_ct`.
"""

from typing import Any, ClassVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal
from consumer.core.adapters.wire_counts import WireCount
from schemas import AcceptanceRecord


class _Signature(Struct):
    spec_accepted_tokens: Raw
    spec_draft_tokens: Raw


class _SpecMembers(Struct):
    spec_verify_ct: WireCount
    spec_accepted_tokens: WireCount
    spec_draft_tokens: WireCount


class TokenSpeedAdapter(OneObjectAdapter):
    """Reads TokenSpeed's counts; its number of proposed drafts is nominal."""

    engine: ClassVar[str] = "tokenspeed"
    places: ClassVar[tuple[str, ...]] = ("meta_info.spec*", "choices[].meta_info.spec*")
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__
    title: ClassVar[str] = "TokenSpeed"
    switch_on: ClassVar[str] = "nothing: native `/generate`"
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_SpecMembers)

    @classmethod
    def record(
        cls, members: _SpecMembers, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None if the request had no verify steps."""
        counts = members.spec_verify_ct, members.spec_accepted_tokens, members.spec_draft_tokens
        if not any(counts):
            return None
        return AcceptanceRecord(
            engine=cls.engine,
            num_accepted_draft_tokens=members.spec_accepted_tokens,
            num_draft_tokens=members.spec_draft_tokens,
            num_spec_steps=members.spec_verify_ct,
            completion_tokens=completion_tokens,
            draft_tokens_measured=False,
        )
