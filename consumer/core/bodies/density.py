"""Whether a text has more JSON values or lines than a response of its size can have.

Making an object takes a hundred times as long as passing over a byte, so that a kilobyte of empty
objects, inflated to megabytes, could stop the service. The structure is counted before any object
is made: first with the strings, which costs next to nothing, and then without, if there is much.
"""

from typing import Final

SMALL: Final = 8192  # Bytes of a text that is not worth counting in.
_BYTES_PER_OBJECT: Final = 16  # Log probabilities and attributes of OTLP take 20 and more.
_BYTES_PER_ITEM: Final = 8  # Token ids and their log probabilities take 9 and more.
_BYTES_PER_LINE: Final = 12  # The shortest chunk takes 17 for each of its two lines.
_BYTES_PER_ENTRY: Final = 32  # A short log record, which may stand beside responses.
_FEW: Final = 200  # Entries that a value of any size may have.
_NOT_STRUCTURE: Final = bytes({*range(256)} - {*b'{[",'})


def has_dense_objects(text: bytes) -> bool:
    """Return whether a JSON text has too many objects."""
    if len(text) <= SMALL or not _has_objects(text, len(text)):
        return False
    return _has_objects(_structure(text), len(text))


def has_dense_values(text: bytes) -> bool:
    """Return whether a JSON text has too many values of any kind."""
    if len(text) <= SMALL or not _has_values(text, len(text)):
        return False
    return _has_values(_structure(text), len(text))


def has_dense_lines(text: bytes) -> bool:
    """Return whether server-sent events have too many lines."""
    if len(text) <= SMALL:
        return False
    lines = text.count(b"\n") or text.count(b"\r")
    return lines * _BYTES_PER_LINE > len(text)


def most_entries(text: bytes) -> int:
    """Return how many events a text can hold at most, by its size."""
    return _FEW + len(text) // _BYTES_PER_ENTRY


def _has_objects(text: bytes, size: int) -> bool:
    return text.count(b"{") * _BYTES_PER_OBJECT > size


def _has_values(text: bytes, size: int) -> bool:
    values = text.count(b"{") + text.count(b"[")
    return values * _BYTES_PER_OBJECT > size or text.count(b",") * _BYTES_PER_ITEM >= size


def _structure(text: bytes) -> bytes:
    """Return the braces, brackets and commas outside the strings of JSON."""
    if text.find(b"\\") >= 0:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(None, _NOT_STRUCTURE)
    if marks.find(b'"') < 0:
        return marks
    # Quotes side by side have nothing between them: whether the rest is in a string stays the same.
    return b"".join(marks.replace(b'""', b"").split(b'"')[::2])
