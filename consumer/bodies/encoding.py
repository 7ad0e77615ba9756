"""Undo a compression that a gateway or logger left on a body, with a cap on what comes out."""

import zlib
from typing import Final

import zstandard

from schemas import BadPayloadReason

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_DEFLATE: Final = 0x78
_ZLIB_WINDOW: Final = zlib.MAX_WBITS
_GZIP_WINDOW: Final = zlib.MAX_WBITS | 16
_RAW_WINDOW: Final = -zlib.MAX_WBITS


def inflate(body: bytes, label: str | None, limit: int) -> bytes | BadPayloadReason:
    """Return the body without its compression, or why that cannot be done.

    Labels lie, so the magic bytes decide where there are any; a label (`content-encoding`) is
    believed only for formats without magic.

    Args:
        body: the bytes as logged.
        label: the content encoding that the event states, if any.
        limit: most bytes that may come out.

    """
    if body.startswith(_GZIP):
        return _unzip(body, _GZIP_WINDOW, limit)
    if body.startswith(_ZSTD):
        return _unzstd(body, limit)
    if _has_zlib_magic(body):
        return _unzip(body, _ZLIB_WINDOW, limit)
    if label is None or label in ("", "identity") or _is_text(body):
        return body
    if label == "deflate":
        return _unzip(body, _RAW_WINDOW, limit)
    return BadPayloadReason.UNSUPPORTED_ENCODING


def is_compressed(body: bytes) -> bool:
    """Tell whether a body begins with the magic bytes of a compression."""
    return body.startswith((_GZIP, _ZSTD)) or _has_zlib_magic(body)


def _has_zlib_magic(body: bytes) -> bool:
    """Recognise the two bytes of RFC 1950: deflate, and a check sum that fits."""
    return len(body) > 1 and body[0] == _DEFLATE and (_DEFLATE << 8 | body[1]) % 31 == 0


def _is_text(body: bytes) -> bool:
    return body[:1] in (b"{", b"[", b"d", b"e", b":") and body[:64].isascii()


def _unzip(body: bytes, window: int, limit: int) -> bytes | BadPayloadReason:
    inflater = zlib.decompressobj(window)
    try:
        out = inflater.decompress(body, limit + 1)
    except zlib.error:
        return BadPayloadReason.CORRUPT_ENCODING
    if len(out) > limit:
        return BadPayloadReason.INFLATED_TOO_LARGE
    return out if inflater.eof else BadPayloadReason.CORRUPT_ENCODING


def _unzstd(body: bytes, limit: int) -> bytes | BadPayloadReason:
    try:
        # The stream reader inflates piece by piece; the size that the frame states may lie.
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(body) as reader:
            out = reader.read(limit + 1)
            while len(out) <= limit and (more := reader.read(limit + 1 - len(out))):
                out += more
    except zstandard.ZstdError:
        return BadPayloadReason.CORRUPT_ENCODING
    return BadPayloadReason.INFLATED_TOO_LARGE if len(out) > limit else out
