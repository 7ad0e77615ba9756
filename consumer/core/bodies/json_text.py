"""JSON as producers write it, which is not always JSON.

The strict decoder is fast. What it refuses and the field still sends (NaN, lone surrogates, raw
control characters, broken UTF-8) is read by the slow and tolerant functions here.
"""

import json
import math
from typing import Any, Final

import msgspec
from msgspec import Raw

from consumer.core.bodies.density import has_dense_objects, has_dense_values
from schemas import BadPayloadReason, IncompleteReason

ABSENT: Final = Raw()
NULL: Final = b"null"
TRUE: Final = b"true"
FALSE: Final = b"false"
_MAX_ODD_BYTES: Final = 4 << 20  # Of JSON that the strict decoder refuses.
_MAX_MEMBERS: Final = 10_000  # Of an object.
_MAX_ODD_MEMBERS: Final = 1000  # Of an object that the strict decoder refuses.
_CUT_OFF: Final = "Input data was truncated"  # The message of msgspec's error.

_decode_strictly: Final = msgspec.json.Decoder().decode
decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode


def raw_members(text: bytes) -> dict[str, Raw] | list[Raw] | BadPayloadReason:
    """Return the members of a JSON object, or the entries of an array, as raw JSON."""
    if has_dense_objects(text):
        return BadPayloadReason.TOO_DENSE
    try:
        if text.startswith(b"["):
            return msgspec.json.decode(text, type=list[Raw])
        members = decode_members(text)
        return members if len(members) <= _MAX_MEMBERS else BadPayloadReason.TOO_DENSE
    except msgspec.MsgspecError:
        value = loads_tolerantly(text)
    except RecursionError:
        return BadPayloadReason.TOO_DEEP
    if isinstance(value, dict | list) and len(value) > _MAX_ODD_MEMBERS:
        return BadPayloadReason.TOO_DENSE
    if isinstance(value, dict):
        return {without_surrogates(name): raw_json(member) for name, member in value.items()}
    if isinstance(value, list):
        return [raw_json(entry) for entry in value]
    return value if isinstance(value, BadPayloadReason) else BadPayloadReason.UNRECOGNISED_SHAPE


def loads_tolerantly(text: bytes) -> Any | BadPayloadReason:
    """Parse JSON as the field writes it.

    NaN and infinities become null, broken UTF-8 becomes replacement characters, control characters
    in strings are accepted, integers of any length are kept, of equal keys the last one wins. Lone
    surrogates stay, and must be replaced before anything is written.
    """
    if len(text) > _MAX_ODD_BYTES:
        return BadPayloadReason.INVALID_JSON
    if has_dense_values(text):
        return BadPayloadReason.TOO_DENSE
    try:
        return _decode_tolerantly(text.decode("utf-8", "replace"))
    except RecursionError:
        return BadPayloadReason.TOO_DEEP
    except ValueError:
        return BadPayloadReason.INVALID_JSON


def loads(text: bytes) -> Any | BadPayloadReason:
    """Parse JSON, at full speed where it is JSON, and else as `loads_tolerantly`."""
    if has_dense_objects(text):
        return BadPayloadReason.TOO_DENSE
    try:
        return _decode_strictly(text)
    except msgspec.MsgspecError:
        return loads_tolerantly(text)
    except RecursionError:
        return BadPayloadReason.TOO_DEEP


def raw_json(value: Any) -> Raw:
    """Write a value that was read tolerantly, without lone surrogates; absent if that fails."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError):
        return ABSENT
    return Raw(text.encode("utf-8", "replace"))


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which no encoder would write."""
    return text.encode("utf-8", "replace").decode()


def is_set(raw: Raw) -> bool:
    """Return whether a raw member is present and not null."""
    return raw is not ABSENT and bytes(memoryview(raw)[:5]) not in (b"", NULL)


def is_cut_off(error: msgspec.MsgspecError) -> bool:
    """Return whether a text ended too early, which no tolerance can repair."""
    return str(error) == _CUT_OFF


def why_not_json(text: bytes) -> BadPayloadReason | IncompleteReason:
    """Distinguish a text that was cut off from one that was never JSON."""
    try:
        msgspec.json.decode(text, type=Raw)
    except msgspec.DecodeError as error:
        if is_cut_off(error):
            return IncompleteReason.TRUNCATED
    except RecursionError:
        return BadPayloadReason.TOO_DEEP
    return BadPayloadReason.INVALID_JSON


def _integer(digits: str) -> int | float:
    """Read an integer; one above CPython's limit of digits is not a count, and becomes a float."""
    try:
        return int(digits)
    except ValueError:
        return float(digits[:300])


def _float(digits: str) -> float | None:
    """Read a number with a point or exponent; null if it overflows."""
    number = float(digits)
    return number if math.isfinite(number) else None


# Made once, since making it takes as long as reading a small text.
_decode_tolerantly: Final = json.JSONDecoder(
    strict=False, parse_int=_integer, parse_float=_float, parse_constant=lambda _: None
).decode
