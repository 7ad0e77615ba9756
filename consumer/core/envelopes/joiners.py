"""Bodies that a format does not hold in one piece, put together."""

from typing import Any

from consumer.core.bodies.json_text import loads_tolerantly


def aiperf_body(responses: bytes) -> bytes:
    """Return the body from the `responses` of AIPerf's raw export.

    Each is the text of a response, or the fields of one server-sent event.
    """
    return "".join(map(_aiperf_part, _objects(loads_tolerantly(responses)))).encode(
        "utf-8", "replace"
    )


def _aiperf_part(part: dict[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    fields = _objects(part.get("packets"))
    return "".join(f"{field.get('name')}: {field.get('value')}\n" for field in fields) + "\n"


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def sglang_body(meta_info: bytes) -> bytes:
    """Return the response of SGLang's own API whose `meta_info` an entry holds."""
    return b'{"meta_info":%b}' % meta_info
