"""An adapter for a made-up engine, which reports `x_engine.draft_report` at the response's root."""

from typing import ClassVar, Final

import msgspec

from consumer.core.adapters.protocol import Refusal, malformed
from schemas import AcceptanceRecord, MalformedReason, ParsedResponse

_PLACE: Final = "x_engine.draft_report"


class _DraftReport(msgspec.Struct):
    rounds: int
    drafts_kept: int
    drafts_tried: int


class XEngineAdapter:
    """Reads the three counts of the made-up engine."""

    engine: ClassVar[str] = "x_engine"
    places: ClassVar[tuple[str, ...]] = (_PLACE,)

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Claim whatever is at the engine's own place."""
        return any(_PLACE in response.stats for response in responses)

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None of a request without rounds."""
        response = responses[-1]
        try:
            report = msgspec.json.decode(response.stats[_PLACE], type=_DraftReport)
        except msgspec.DecodeError:
            return malformed(MalformedReason.WRONG_TYPE)
        if report.rounds == 0:
            return None
        return AcceptanceRecord(
            engine=cls.engine,
            mean_acceptance_length=1 + report.drafts_kept / report.rounds,
            num_accepted_draft_tokens=report.drafts_kept,
            num_draft_tokens=report.drafts_tried,
            num_spec_steps=report.rounds,
            completion_tokens=response.usage.completion_tokens if response.usage else None,
        )
