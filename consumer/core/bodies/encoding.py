"""Compressions that a gateway or logger left on a body, undone with a cap on the result."""

import zlib
from typing import Final

import zstandard

from schemas import BadPayloadReason

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_DEFLATE: Final = 0x78
_ZLIB: Final = bytes([_DEFLATE])
MAGIC_BYTES: Final = 4  # Length of the longest one.
_ZLIB_WINDOW: Final = zlib.MAX_WBITS
_GZIP_WINDOW: Final = zlib.MAX_WBITS | 16
_RAW_WINDOW: Final = -zlib.MAX_WBITS
_ZSTD_WINDOW: Final = 2**27
_ZLIB_PIECE: Final = 1 << 16  # Each gzip member that ends in a piece copies the rest of it.
_ZSTD_PIECE: Final = 256  # These bytes inflate to at most eight MiB before the cap is checked.
_MAX_PARTS: Final = 1000  # More gzip members or zstd frames than that are an attack.
_HEAD: Final = 64
_BINARY: Final = bytes({*range(32), 127} - set(b"\t\r\n"))


def inflate(body: bytes, label: str | None, limit: int) -> bytes | BadPayloadReason:
    """Return the body without its compression, or why it cannot be decompressed.

    Producers mislabel bodies, so the magic bytes decide. Only a format without magic bytes is
    recognised by its label (`content-encoding`).

    Args:
        body: the bytes as logged.
        label: the content encoding that the event states, if any.
        limit: maximum size of the result, in bytes.

    """
    if label is None and body.startswith(b"{"):
        return body  # As most bodies; no compression begins with a brace.
    if body.startswith(_GZIP):
        return _unzip(body, _GZIP_WINDOW, limit)
    if body.startswith(_ZSTD):
        return _unzstd(body, limit)
    if _has_zlib_magic(body):
        return _unzip(body, _ZLIB_WINDOW, limit)
    label = (label or "").strip().lower()
    if label in ("", "identity") or _is_text(body):
        return body
    if label == "deflate":
        return _unzip(body, _RAW_WINDOW, limit)
    return BadPayloadReason.UNSUPPORTED_ENCODING


def is_compressed(body: bytes) -> bool:
    """Return whether a body begins with the magic bytes of a compression, or with some of them."""
    if len(body) < MAGIC_BYTES and (_GZIP.startswith(body) or _ZSTD.startswith(body)):
        return True
    return body.startswith((_GZIP, _ZSTD)) or _has_zlib_magic(body) or body == _ZLIB


def _has_zlib_magic(body: bytes) -> bool:
    """Recognise the two bytes of RFC 1950: deflate, and a valid check sum."""
    return len(body) > 1 and body[0] == _DEFLATE and (_DEFLATE << 8 | body[1]) % 31 == 0


def _is_text(body: bytes) -> bool:
    """Return whether a body begins like text: UTF-8 without control characters."""
    head = body[:_HEAD]
    if len(head) > len(head.translate(None, _BINARY)):
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(body) > _HEAD and error.start > _HEAD - 4  # The last character is cut.
    return True


def _unzip(body: bytes, window: int, limit: int) -> bytes | BadPayloadReason:
    """Inflate one zlib stream, or all members of a gzip file."""
    out, at = bytearray(), 0
    try:
        for _ in range(_MAX_PARTS):
            inflater = zlib.decompressobj(window)
            while not inflater.eof and at < len(body):
                piece = body[at : at + _ZLIB_PIECE]
                out += inflater.decompress(piece, limit + 1 - len(out))
                if len(out) > limit:
                    return BadPayloadReason.INFLATED_TOO_LARGE
                at += len(piece) - len(inflater.unused_data)
            if not inflater.eof:
                return BadPayloadReason.CORRUPT_ENCODING
            if not body.startswith(_GZIP, at):
                return bytes(out)
    except zlib.error:
        pass
    return BadPayloadReason.CORRUPT_ENCODING


def _unzstd(body: bytes, limit: int) -> bytes | BadPayloadReason:
    """Inflate zstd frames piece by piece, since a frame may state a wrong size."""
    out, at = bytearray(), 0
    try:
        for _ in range(_MAX_PARTS):
            inflater = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            while not inflater.eof and at < len(body):
                piece = body[at : at + _ZSTD_PIECE]
                out += inflater.decompress(piece)
                if len(out) > limit:
                    return BadPayloadReason.INFLATED_TOO_LARGE
                at += len(piece) - len(inflater.unused_data)
            if not inflater.eof:
                return BadPayloadReason.CORRUPT_ENCODING
            if not body.startswith(_ZSTD, at):
                return bytes(out)
    except zstandard.ZstdError:
        pass
    return BadPayloadReason.CORRUPT_ENCODING
