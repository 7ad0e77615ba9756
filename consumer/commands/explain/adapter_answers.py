"""What each adapter answers about a response, and why."""

from collections import Counter
from typing import Final

import msgspec
from msgspec import Struct

from consumer.core.adapters.protocol import SpecDecodeAdapter
from consumer.core.adapters.registry import Adapters
from schemas import ParsedResponse

_MAX_MEMBERS: Final = 32
_MAX_NAME: Final = 64


class PlaceContent(Struct, frozen=True):
    """A declared place of an adapter, and names of the members there if it is filled."""

    place: str
    filled: bool
    members: tuple[str, ...] = ()


class AdapterAnswer(Struct, frozen=True):
    """What one adapter answers about a response.

    Attributes:
        name: its engine, with its module where several adapters are of one engine.
        engine: its engine.
        places: the places that it reads.
        claims: whether it claims the response.
        raised: name of the exception that it raised.
        missing: the adapter's own keys that none of its places has; None if it has no `own_keys`.

    """

    name: str
    engine: str
    places: tuple[PlaceContent, ...]
    claims: bool
    raised: str | None = None
    missing: tuple[str, ...] | None = ()


def ask_adapters(adapters: Adapters, response: ParsedResponse) -> tuple[AdapterAnswer, ...]:
    """Ask each adapter whether it claims a response; without statistics, none claims it."""
    of_engine = Counter(adapter.engine for adapter in adapters)
    return tuple(
        _ask(
            adapter,
            adapter.engine
            if of_engine[adapter.engine] == 1
            else f"{adapter.engine} ({adapter.__module__})",
            response,
        )
        for adapter in adapters
    )


def _ask(adapter: type[SpecDecodeAdapter], name: str, response: ParsedResponse) -> AdapterAnswer:
    members = {place: _members(response.stats.get(place)) for place in adapter.places}
    places = tuple(
        PlaceContent(place, place in response.stats, names[:_MAX_MEMBERS])
        for place, names in members.items()
    )
    try:
        claims = bool(response.stats) and bool(adapter.can_adapt([response]))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything.
        raised = type(error).__name__
        return AdapterAnswer(name, adapter.engine, places, claims=False, raised=raised)
    present = {member for names in members.values() for member in names}
    own: tuple[str, ...] | None = getattr(adapter, "own_keys", None)
    if claims:
        return AdapterAnswer(name, adapter.engine, places, claims)
    missing = None if own is None else tuple(key for key in own if key not in present)
    return AdapterAnswer(name, adapter.engine, places, claims, missing=missing)


def _members(raw: bytes | None) -> tuple[str, ...]:
    """Return the names of the members at a place: values may be content, names are not."""
    try:
        value = msgspec.json.decode(raw or b"null")
    except (msgspec.MsgspecError, RecursionError):
        return ()
    if isinstance(value, list) and value:
        value = value[0]
    return tuple(name[:_MAX_NAME] for name in value) if type(value) is dict else ()
