"""FastDeploy: `choices[].speculate_metrics` of the choice that ends, wherever it speculates.

PaddlePaddle/FastDeploy PR 5947. `accepted_tokens_per_head[i]` is the number of verify steps that
gave more than i tokens, the step's own token included: its first entry counts the steps, and the
differences between neighbours are the histogram. Drafts are stated as steps by the static width:
accepted and rejected tokens together are steps * (k + 1). Before that change the list is missing,
and with it the steps: such objects are not claimed.
"""

from itertools import pairwise
from typing import Any, ClassVar

from msgspec import Raw, Struct
from msgspec.json import Decoder

from consumer.core.adapters.one_object import OneObjectAdapter
from consumer.core.adapters.protocol import Refusal, malformed
from consumer.core.adapters.wire_counts import WireCount
from schemas import AcceptanceRecord, MalformedReason


class _Signature(Struct):
    accepted_tokens: Raw
    rejected_tokens: Raw
    accepted_tokens_per_head: Raw


class _SpeculateMetrics(Struct):
    """The object on the wire; `accept_ratio` is ignored, because it divides by tokens."""

    accepted_tokens: WireCount
    rejected_tokens: WireCount
    accepted_tokens_per_head: list[WireCount]
    average_accept_length: float | None = None


class FastDeployAdapter(OneObjectAdapter):
    """Reads FastDeploy's tokens by head; its number of proposed drafts is nominal."""

    engine: ClassVar[str] = "fastdeploy"
    places: ClassVar[tuple[str, ...]] = ("choices[].speculate_metrics",)
    own_keys: ClassVar[tuple[str, ...]] = _Signature.__struct_fields__
    title: ClassVar[str] = "FastDeploy (since PR 5947)"
    switch_on: ClassVar[str] = "nothing: any server that speculates"
    signature: ClassVar[Decoder[Any]] = Decoder(_Signature)
    wire: ClassVar[Decoder[Any]] = Decoder(_SpeculateMetrics)

    @classmethod
    def record(
        cls, metrics: _SpeculateMetrics, completion_tokens: int | None
    ) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None if the request had no verify steps."""
        heads = metrics.accepted_tokens_per_head
        if not any((metrics.accepted_tokens, metrics.rejected_tokens, *heads)):
            return None
        if (
            not heads
            or sum(heads) != metrics.accepted_tokens
            or heads != sorted(heads, reverse=True)
        ):
            return malformed(MalformedReason.HISTOGRAM_ACCEPTED)
        steps = heads[0]
        differences = [more - fewer for more, fewer in pairwise([*heads, 0])]
        return AcceptanceRecord(
            engine=cls.engine,
            mean_acceptance_length=metrics.average_accept_length,
            acceptance_histogram={at: count for at, count in enumerate(differences) if count},
            num_accepted_draft_tokens=metrics.accepted_tokens - steps,
            num_draft_tokens=metrics.accepted_tokens + metrics.rejected_tokens - steps,
            num_spec_steps=steps,
            completion_tokens=completion_tokens,
            draft_tokens_measured=False,
        )
