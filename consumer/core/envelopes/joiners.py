"""Bodies that a format does not hold in one piece, put together."""

from typing import Any

from consumer.core.bodies.json_text import loads_tolerantly, raw_json


def aiperf_body(record: bytes) -> bytes:
    """Return the body from a record of AIPerf's raw export.

    Each of its `responses` is the text of a response, or the fields of one server-sent event; a
    request that failed has an `error` instead.
    """
    members = loads_tolerantly(record)
    if not isinstance(members, dict):
        return b""
    responses, error = _objects(members.get("responses")), members.get("error")
    if not responses and error:
        return bytes(raw_json({"error": error}))
    return "".join(map(_aiperf_part, responses)).encode("utf-8", "replace")


def _aiperf_part(part: dict[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    return "".join(map(_sse_line, _objects(part.get("packets")))) + "\n"


def _sse_line(packet: dict[str, Any]) -> str:
    name = "" if packet.get("name") == "comment" else packet.get("name")
    value = packet.get("value")
    return f"{name}\n" if value is None else f"{name}: {value}\n"


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def sglang_body(meta_info: bytes) -> bytes:
    """Return the response of SGLang's own API whose `meta_info` an entry holds."""
    return b'{"meta_info":%b}' % meta_info
