"""The installed adapters, and the choice of the one that reads a response."""

from collections.abc import Sequence
from functools import lru_cache
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
    differing_statements,
    violated_identity,
    with_derived,
)

_PUBLISHED: Final = RequestOutcome.PUBLISHED  # Not looked up for each event: see CONTRIBUTING.md.

Adapters = Sequence[type[SpecDecodeAdapter]]
Failures = tuple[tuple[str, str], ...]  # Engine of the adapter, and name of the exception.


class AdapterError(Exception):
    """An adapter plugin cannot be loaded, or is not an adapter."""


class Judgement(Struct, frozen=True, gc=False):
    """The result of the adapters on one response.

    Attributes:
        outcome: outcome of the request, as far as its numbers decide it.
        reason: why, where the outcome has reasons.
        record: the record, if the outcome is `published`.
        claims: engines whose adapter claimed the response.
        failures: engines whose adapter raised, with the name of the exception; an answer that the
            protocol does not allow counts as a TypeError.
        detail: what exactly is wrong, where the adapter states it.
        differing: names of the mean or the rate, where the engine states another than its counts
            give; the record has the latter.

    """

    outcome: RequestOutcome
    reason: NoStatsReason | MalformedReason | None = None
    record: AcceptanceRecord | None = None
    claims: tuple[str, ...] = ()
    failures: Failures = ()
    detail: str | None = None
    differing: tuple[str, ...] = ()


def load_adapters() -> tuple[type[SpecDecodeAdapter], ...]:
    """Load every installed adapter, in the order of their entry-point names.

    Raises:
        AdapterError: a plugin does not import, or lacks a part of the protocol.

    """
    adapters: list[type[SpecDecodeAdapter]] = []
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        name = f"adapter {entry.name!r} ({entry.value})"
        try:
            adapter: Any = entry.load()
        except Exception as error:
            raise AdapterError(f"{name}: {error}") from error
        if not isinstance(adapter, SpecDecodeAdapter):
            raise AdapterError(f"{name} lacks one of engine, places, can_adapt, adapt")
        if isinstance(adapter.places, str):  # Each of its characters would become a place.
            raise AdapterError(f"{name}: places is a string, but must be a tuple of strings")
        adapters.append(cast("type[SpecDecodeAdapter]", adapter))
    return tuple(adapters)


def places_of(adapters: Adapters) -> tuple[str, ...]:
    """Return the union of the places that the adapters declare, sorted."""
    return tuple(sorted({place for adapter in adapters for place in adapter.places}))


def judge(adapters: Adapters, response: ParsedResponse) -> Judgement:
    """Let the one adapter that claims the response read its statistics.

    No exception of an adapter gets out.
    """
    if response.choices > 1:
        return Judgement(RequestOutcome.UNATTRIBUTABLE)
    claiming, failures = _claims(adapters, response)
    claims = tuple([adapter.engine for adapter in claiming])
    if len(claiming) != 1:
        outcome = RequestOutcome.AMBIGUOUS_STATS if claiming else RequestOutcome.UNRECOGNISED_STATS
        return Judgement(outcome, claims=claims, failures=failures)
    try:
        return _judgement(claiming[0].adapt([response]), claims, failures)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything.
        failures += ((claims[0], type(error).__name__),)
        outcome, reason = RequestOutcome.MALFORMED_STATS, MalformedReason.ADAPTER_FAILED
        return Judgement(outcome, reason, claims=claims, failures=failures)


def _claims(
    adapters: Adapters, response: ParsedResponse
) -> tuple[list[type[SpecDecodeAdapter]], Failures]:
    claiming: list[type[SpecDecodeAdapter]] = []
    failures: Failures = ()
    for adapter in _asked(tuple(adapters), tuple(response.stats)):
        try:
            if adapter.can_adapt([response]):
                claiming.append(adapter)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything.
            failures += ((adapter.engine, type(error).__name__),)
    return claiming, failures


@lru_cache(256)
def _asked(adapters: tuple[type[SpecDecodeAdapter], ...], places: tuple[str, ...]) -> Adapters:
    """Return the adapters that read one of the filled places, as few of them do."""
    return tuple(adapter for adapter in adapters if not set(places).isdisjoint(adapter.places))


def _judgement(answer: object, claims: tuple[str, ...], failures: Failures) -> Judgement:
    """Return what follows from an adapter's answer; raise if the protocol does not allow it."""
    engine = claims[0]
    if isinstance(answer, AcceptanceRecord):
        if (reason := violated_identity(answer)) is not None:
            return Judgement(RequestOutcome.MALFORMED_STATS, reason, None, claims, failures)
        # A published record must encode, and its engine is a label of the metrics.
        if answer.engine == engine and isinstance(answer.draft_tokens_measured, bool):
            record = with_derived(answer)
            differing = () if record is answer else differing_statements(answer, record)
            return Judgement(_PUBLISHED, None, record, claims, failures, None, differing)
    elif answer is None:
        return Judgement(RequestOutcome.NO_STATS, NoStatsReason.ABSENT, None, claims, failures)
    elif answer == UNATTRIBUTABLE:
        return Judgement(RequestOutcome.UNATTRIBUTABLE, None, None, claims, failures)
    elif (
        isinstance(answer, Refusal)
        and answer.outcome is RequestOutcome.MALFORMED_STATS
        and isinstance(answer.reason, MalformedReason)
        # A lone surrogate, which would not encode, is not printable.
        and (answer.detail is None or str.isprintable(answer.detail))
    ):
        return Judgement(answer.outcome, answer.reason, None, claims, failures, answer.detail)
    raise TypeError(f"adapter of {engine!r} answered with {type(answer).__name__}")
