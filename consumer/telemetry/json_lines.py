"""JSON on one line, for logs and standard output."""

import json
import re
from typing import Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode
# Delete, the C1 controls, line separators and marks of direction, which a terminal or viewer obeys.
# The encoder escapes the C0 controls.
_CONTROLS: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def json_line(value: object) -> str:
    """Return a value as JSON in which no character controls what displays it."""
    try:
        line = _encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # A lone surrogate; an integer above 64 bits.
        line = json.dumps(value, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
