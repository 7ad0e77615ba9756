"""Engines that are known by what they write, and whose numbers no adapter reads.

A response of one of them is not a response whose reporting is off: switching it on cannot help.
Fireworks states acceptance by position as a text, SambaNova a rate without counts, both of which
no field of the record holds. Ollama and TGI report nothing; their fingerprint names them. LMDeploy
and OpenVINO Model Server report nothing either, and write nothing by which they could be known.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from consumer.core.adapters.registry import Adapters, places_of

# By place, as adapters declare them.
_BY_PLACE: Final[Mapping[str, str]] = {
    "perf_metrics.speculation*": "fireworks",
    "usage.acceptance_rate": "sambanova",
}
# By the `system_fingerprint` of their OpenAI endpoints.
_BY_FINGERPRINT: Final = (
    ("ollama", re.compile(r"fp_ollama")),
    ("tgi", re.compile(r"\d+\.\d+\.\d+[\w.]*-(native|sha-[0-9a-f]+)")),
)


def known_places(adapters: Adapters) -> tuple[str, ...]:
    """Return the places of the adapters and of the engines without one."""
    return tuple(sorted({*places_of(adapters), *_BY_PLACE}))


def unsupported_engine(places: Collection[str], fingerprint: str | None) -> str | None:
    """Return the engine of a response that no adapter claims.

    Args:
        places: places at which the response has statistics.
        fingerprint: its `system_fingerprint`.

    """
    if places:
        engines = {_BY_PLACE.get(place) for place in places}
        return engines.pop() if len(engines) == 1 else None
    for engine, pattern in _BY_FINGERPRINT:
        if fingerprint is not None and pattern.fullmatch(fingerprint):
            return engine
    return None
