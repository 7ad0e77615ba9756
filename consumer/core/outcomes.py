"""The outcome of a finished response: whether a record is published, and why not."""

from typing import Final

from msgspec import Struct

from consumer.core.adapters.registry import Adapters, judge
from consumer.core.adapters.unsupported import unsupported_engine
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.reassembly.response import Response
from consumer.core.records import Origin, record_of
from schemas import (
    IncompleteReason,
    MalformedReason,
    NoStatsReason,
    PublishedRecord,
    RequestOutcome,
)

_NO_STATS: Final = RequestOutcome.NO_STATS  # Not looked up for each event: see CONTRIBUTING.md.
_UNRECOGNISED: Final = RequestOutcome.UNRECOGNISED_STATS
_ABORT: Final = "abort"  # The finish reason that vLLM and SGLang give.


class RequestResult(Struct, frozen=True, gc=False):
    """The one outcome of a request.

    Attributes:
        outcome: what became of it.
        reason: why, where the outcome has reasons.
        response: the response, with its place in the log.
        record: the record, if the outcome is `published`.
        claims: engines whose adapter claimed the statistics, or the one without an adapter.
        failures: engines whose adapter raised, with the name of the exception.
        detail: what exactly is wrong with the statistics, where the adapter states it.
        differing: names of the mean or the rate that the engine states differently from its counts.

    """

    outcome: RequestOutcome
    reason: NoStatsReason | MalformedReason | IncompleteReason | None
    response: Response
    record: PublishedRecord | None = None
    claims: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    detail: str | None = None
    differing: tuple[str, ...] = ()


def decide_outcome(response: Response, adapters: Adapters, origin: Origin) -> RequestResult:
    """Decide the outcome of a response; the adapters read its statistics, if it has any."""
    facts = response.facts
    if facts is None:
        return RequestResult(RequestOutcome.INCOMPLETE, response.incomplete, response)
    if response.failed:
        return RequestResult(RequestOutcome.FAILED_RESPONSE, None, response)
    if not facts.stats:
        return _without_numbers(response, facts)
    if facts.too_large:
        return RequestResult(RequestOutcome.MALFORMED_STATS, MalformedReason.TOO_LARGE, response)
    parsed = facts.parsed()
    judgement = judge(adapters, parsed)
    outcome, reason, acceptance = judgement.outcome, judgement.reason, judgement.record
    if outcome is _UNRECOGNISED and unsupported_engine(facts.stats, None) is not None:
        return _without_numbers(response, facts)
    if outcome is _NO_STATS:
        if response.incomplete is not None:
            return RequestResult(RequestOutcome.INCOMPLETE, response.incomplete, response)
        if facts.finish_reason == _ABORT:
            reason = NoStatsReason.ABORTED
    record = None if acceptance is None else record_of(response, acceptance, parsed, origin)
    return RequestResult(
        outcome,
        reason,
        response,
        record,
        judgement.claims,
        judgement.failures,
        judgement.detail,
        judgement.differing,
    )


def _without_numbers(response: Response, facts: ResponseFacts) -> RequestResult:
    """Return the outcome of a response without numbers that an adapter could read."""
    if response.incomplete is not None:
        return RequestResult(RequestOutcome.INCOMPLETE, response.incomplete, response)
    engine = unsupported_engine(facts.stats or (), facts.fingerprint)
    if engine is None:
        return RequestResult(_NO_STATS, _why_no_stats(facts), response)
    reason = NoStatsReason.UNSUPPORTED_ENGINE
    return RequestResult(_NO_STATS, reason, response, claims=(engine,), detail=engine)


def _why_no_stats(facts: ResponseFacts) -> NoStatsReason:
    if facts.without_stats:
        return NoStatsReason.ENDPOINT_WITHOUT_STATS
    if facts.finish_reason == _ABORT:
        return NoStatsReason.ABORTED
    if facts.streamed and facts.usage is None:
        return NoStatsReason.STREAM_WITHOUT_USAGE_CHUNK
    return NoStatsReason.ABSENT
