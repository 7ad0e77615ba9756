"""Samples and made-up statistics as the adapters get them.

A stand-in for the body reader, so that the adapters are tested without it: whole JSON values, the
latest per place, and usage wherever the sample has it.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from consumer.core.adapters.registry import Judgement, judge, places_of
from schemas import ParsedResponse, Usage
from tests.paths import SAMPLES
from tests.unit.core.made import ADAPTERS

__all__ = ["ADAPTERS", "judged", "parsed", "response", "sample"]


def response(
    stats: dict[str, Any], *, completion_tokens: int | None = None, choices: int = 1
) -> ParsedResponse:
    """Return a response with the JSON values given at their places; bytes are taken as they are."""
    return ParsedResponse(
        stats={
            place: value if isinstance(value, bytes) else msgspec.json.encode(value)
            for place, value in stats.items()
        },
        usage=Usage(completion_tokens=completion_tokens),
        choices=choices,
    )


def judged(stats: dict[str, Any], *, choices: int = 1) -> Judgement:
    """Return what the adapters make of the JSON values at their places."""
    return judge(ADAPTERS, response(stats, choices=choices))


def sample(name: str) -> ParsedResponse:
    """Return a sample file, such as `vllm/chat_nonstream_summary.json`, as a response."""
    raw = (SAMPLES / "engines" / name).read_bytes()
    if name.endswith(".sse"):
        lines = re.findall(rb"^data: (\{.*\})$", raw, re.MULTILINE)
        return parsed([msgspec.json.decode(line) for line in lines], streamed=True)
    body = msgspec.json.decode(raw)
    return parsed(body if isinstance(body, list) else [body], streamed=False)


def parsed(parts: list[dict[str, Any]], *, streamed: bool) -> ParsedResponse:
    """Return the parts, chunks of a stream or generations of a response, as one response."""
    stats: dict[str, bytes] = {}
    usage: Usage | None = None
    indexes: set[int] = set()
    for number, part in enumerate(parts):
        for place in places_of(ADAPTERS):
            for value in _at(part, place.split(".")):
                stats[place] = msgspec.json.encode(value)
        usage = _usage(part) or usage
        choices = part.get("choices")
        indexes |= {choice["index"] for choice in choices or ()}
        if choices is None and "type" not in part:
            indexes.add(0 if streamed else number)
    return ParsedResponse(stats=stats, usage=usage, choices=len(indexes), streamed=streamed)


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    """Yield what is at the path, and is not null."""
    if not path:
        if value is not None:
            yield value
    elif isinstance(value, dict):
        name, *rest = path
        if name.endswith("[]"):
            for element in value.get(name.removesuffix("[]")) or ():
                yield from _at(element, rest)
        elif "*" in name:
            members = {
                key: member
                for key, member in value.items()
                if fnmatchcase(key, name) and member is not None
            }
            if members:
                yield members
        else:
            yield from _at(value.get(name), rest)


def _usage(part: dict[str, Any]) -> Usage | None:
    stated = part.get("usage") or part.get("meta_info")
    if not stated:
        return None
    return Usage(
        prompt_tokens=stated.get("prompt_tokens"),
        completion_tokens=stated.get("completion_tokens"),
    )
