"""Changes JSON by its structure, which a fuzzer of bytes rarely keeps whole."""

import json
from random import Random
from typing import Any, Final

_HOSTILE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 7, 2**63, 10**30, 0.5, 1e308, "", "7", "true", "[DONE]"),
    *([], {}, [[]], [{}], {"": {}}, "data: {}\n\n", "2026-01-01 00:00:00,5", 1_767_225_600.5),
    *("\ud800", "\x00", "{}", "[]", '{"a":', "x" * 2000, "YQ==", 1_767_225_600_000),
)
_MAX_PLACES: Final = 300

Place = tuple[Any, Any]
"""An object or array, and the key or index of one of its members."""


def mutated(value: bytes, seed: int) -> bytes | None:
    """Return a value with one change to its JSON; None if it is not JSON."""
    try:
        root = [json.loads(value)]
    except (ValueError, RecursionError):
        return None
    random = Random(seed)
    places: list[Place] = [(root, 0)]
    for container, key in places:
        inner = container[key]
        if len(places) < _MAX_PLACES and isinstance(inner, dict | list):
            places += (
                (inner, name) for name in (inner if isinstance(inner, dict) else range(len(inner)))
            )
    _change(random, *random.choice(places), *random.choice(places))
    try:
        return json.dumps(root[0], ensure_ascii=random.random() < 0.5).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None


def _change(random: Random, container: Any, key: Any, other: Any, other_key: Any) -> None:
    """Change one member: replace, wrap, exchange, rename, repeat or remove it."""
    old = container[key]
    match random.randrange(8):
        case 0 | 1:
            container[key] = random.choice(_HOSTILE)
        case 2:
            container[key] = json.dumps(old)
        case 3:
            container[key] = random.choice(([old], [old, old], {"message": old}, {"payload": old}))
        case 4 if isinstance(old, str) and old[:1] in ("{", "[", '"'):
            container[key] = _parsed(old)
        case 4 | 5:
            container[key] = json.loads(json.dumps(other[other_key]))
        case 6 if isinstance(container, dict) and isinstance(other, dict):
            container[other_key] = container.pop(key)
        case 6 | 7 if len(container) > 1:
            del container[key]
        case _:
            container[key] = str(old)[:50]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text[:-1]
