"""Which adapters there are, and which of them speaks for a response."""

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any, Final, cast

from msgspec import Struct

from consumer.core.adapters.protocol import (
    ENTRY_POINT_GROUP,
    UNATTRIBUTABLE,
    Refusal,
    SpecDecodeAdapter,
)
from schemas import (
    AcceptanceRecord,
    MalformedReason,
    NoStatsReason,
    ParsedResponse,
    RequestOutcome,
    violated_identity,
    with_derived,
)

_PUBLISHED: Final = RequestOutcome.PUBLISHED  # Dear to look up (CPython 3.11).

Adapters = Sequence[type[SpecDecodeAdapter]]


class AdapterError(Exception):
    """An adapter plugin cannot be loaded, or is not an adapter."""


class Judgement(Struct, frozen=True, gc=False):
    """What the adapters make of one response.

    Attributes:
        outcome: what became of the numbers.
        reason: why, where the outcome has reasons.
        record: the record, if the outcome is `published`.
        claims: engines whose adapter claimed the response.
        failures: engines whose adapter raised, with the name of the exception; an answer that the
            protocol rules out counts as a TypeError.
        detail: what exactly is wrong, where the adapter says it.

    """

    outcome: RequestOutcome
    reason: NoStatsReason | MalformedReason | None = None
    record: AcceptanceRecord | None = None
    claims: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    detail: str | None = None


def load_adapters() -> tuple[type[SpecDecodeAdapter], ...]:
    """Load every installed adapter, in the order of their entry-point names.

    Raises:
        AdapterError: a plugin does not import, or lacks a part of the protocol.

    """
    adapters: list[type[SpecDecodeAdapter]] = []
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        try:
            adapter: Any = entry.load()
        except Exception as error:
            raise AdapterError(f"adapter {entry.name!r} ({entry.value}): {error}") from error
        if not isinstance(adapter, SpecDecodeAdapter):
            raise AdapterError(
                f"adapter {entry.name!r} ({entry.value}) lacks one of engine, places, can_adapt, "
                "adapt"
            )
        if isinstance(adapter.places, str):  # It would be taken for a place per character.
            raise AdapterError(
                f"adapter {entry.name!r} ({entry.value}): places is a string, not a tuple of them"
            )
        adapters.append(cast("type[SpecDecodeAdapter]", adapter))
    return tuple(adapters)


def places_of(adapters: Adapters) -> tuple[str, ...]:
    """Return the union of the places that the adapters declare, sorted."""
    return tuple(sorted({place for adapter in adapters for place in adapter.places}))


def judge(adapters: Adapters, response: ParsedResponse) -> Judgement:
    """Let the one adapter that claims the response read it.

    The response has statistics at a declared place. Nothing that an adapter raises gets out.
    """
    if response.choices > 1:
        return Judgement(RequestOutcome.UNATTRIBUTABLE)
    claiming, failures = _claims(adapters, response)
    claims = tuple([adapter.engine for adapter in claiming])
    if len(claiming) != 1:
        outcome = RequestOutcome.AMBIGUOUS_STATS if claiming else RequestOutcome.UNRECOGNISED_STATS
        return Judgement(outcome, claims=claims, failures=failures)
    try:
        outcome, reason, record, detail = _weigh(claiming[0].adapt([response]), claims[0])
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything.
        failures += ((claims[0], type(error).__name__),)
        outcome, reason, record, detail = (
            RequestOutcome.MALFORMED_STATS,
            MalformedReason.ADAPTER_FAILED,
            None,
            None,
        )
    return Judgement(outcome, reason, record, claims, failures, detail)


def _weigh(
    answer: object, engine: str
) -> tuple[
    RequestOutcome, NoStatsReason | MalformedReason | None, AcceptanceRecord | None, str | None
]:
    """Turn an answer into what its judgement says; raise on one that the protocol rules out."""
    if isinstance(answer, AcceptanceRecord):
        if (reason := violated_identity(answer)) is not None:
            return RequestOutcome.MALFORMED_STATS, reason, None, None
        # Whatever is published must encode, and its engine is a label of the metrics.
        if answer.engine == engine and isinstance(answer.draft_tokens_measured, bool):
            return _PUBLISHED, None, with_derived(answer), None
    elif answer is None:
        return RequestOutcome.NO_STATS, NoStatsReason.ABSENT, None, None
    elif answer == UNATTRIBUTABLE:
        return RequestOutcome.UNATTRIBUTABLE, None, None, None
    elif (
        isinstance(answer, Refusal)
        and answer.outcome is RequestOutcome.MALFORMED_STATS
        and isinstance(answer.reason, MalformedReason)
        # No lone surrogate is printable: it would not encode.
        and (answer.detail is None or str.isprintable(answer.detail))
    ):
        return answer.outcome, answer.reason, None, answer.detail
    raise TypeError(f"adapter of {engine!r} answered with {type(answer).__name__}")


def _claims(
    adapters: Adapters, response: ParsedResponse
) -> tuple[list[type[SpecDecodeAdapter]], tuple[tuple[str, str], ...]]:
    claiming: list[type[SpecDecodeAdapter]] = []
    failures: tuple[tuple[str, str], ...] = ()
    for adapter in adapters:
        try:
            if adapter.can_adapt([response]):
                claiming.append(adapter)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything.
            failures += ((adapter.engine, type(error).__name__),)
    return claiming, failures
