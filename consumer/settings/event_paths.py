"""Checks the setting `paths`: a mapping that can never match an event is refused."""

from collections.abc import Iterator, Mapping
from typing import Final

_BODIES: Final = ("body", "body_base64")
_SAY_SOMETHING: Final = (*_BODIES, "final", "status")  # An event without them has no meaning.
_NOT_PLACES: Final = ("each", "base64_if")


def path_problems(paths: Mapping[str, str], envelope: str) -> Iterator[str]:
    """Return an iterator over what is wrong with a mapping.

    Args:
        paths: the setting `paths`.
        envelope: the setting `envelope`.

    """
    if not paths:
        return
    if envelope not in ("auto", "native"):
        yield f"is never used with the envelope {envelope}; remove one of the two settings"
    if not any(member in paths for member in _SAY_SOMETHING):
        yield "has no member that holds a response; add body or body_base64"
    elif not any(member in paths for member in ("request_id", *_BODIES)):
        yield "has no member that names a request; add request_id or body"
    if "base64_if" in paths and "body" not in paths:
        yield "has base64_if, but no body that may be base64; add body"
    yield from _contradictions(paths)


def _contradictions(paths: Mapping[str, str]) -> Iterator[str]:
    for place, body in enumerate(_BODIES):
        for member, path in paths.items():
            if member not in (*_BODIES[: place + 1], *_NOT_PLACES) and path == paths.get(body):
                yield f"has the path {path} for both {member} and {body}"
    request_id = paths.get("request_id", "")
    for member, path in paths.items():
        if request_id and path.startswith(f"{request_id}."):
            yield f"leads {member} through {request_id}, which is text, since it is the request_id"
