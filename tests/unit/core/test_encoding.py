"""Compression that was left on a body: undone by its magic bytes, never beyond the cap."""

import gzip
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.core.bodies.encoding import inflate, is_compressed
from schemas import BadPayloadReason

LIMIT = 1 << 20
TEXT = b'data: {"id":"c1"}\n\n' * 50
PACKED = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "zlib": zlib.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
}


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("label", [None, "", "identity", "br", "application/json"])
def test_magic_bytes_decide_and_the_label_does_not(packed: bytes, label: str | None) -> None:
    assert is_compressed(packed)
    assert inflate(packed, label, LIMIT) == TEXT


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_a_body_that_was_cut_is_corrupt_and_not_short(packed: bytes) -> None:
    """Segments try to inflate what has come so far: a part must not pass for the whole."""
    for end in (2, 4, len(packed) // 2, len(packed) - 1):
        assert inflate(packed[:end], "gzip", LIMIT) in (
            BadPayloadReason.CORRUPT_ENCODING,
            BadPayloadReason.UNSUPPORTED_ENCODING,  # Cut inside the magic bytes.
        )


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_all_members_and_frames_are_read(name: str) -> None:
    assert inflate(PACKED[name] * 3, None, LIMIT) == TEXT * 3


def test_zeros_after_a_gzip_member_are_padding() -> None:
    assert inflate(PACKED["gzip"] + b"\0" * 9, None, LIMIT) == TEXT


def test_a_label_is_believed_where_there_is_no_magic() -> None:
    packer = zlib.compressobj(wbits=-15)
    raw = packer.compress(TEXT) + packer.flush()
    assert inflate(raw, " Deflate ", LIMIT) == TEXT
    assert inflate(raw, None, LIMIT) == raw


def test_an_encoding_that_cannot_be_undone_is_named() -> None:
    assert inflate(b"\x0b\x80\x00", "br", LIMIT) is BadPayloadReason.UNSUPPORTED_ENCODING


@pytest.mark.parametrize(
    "body",
    [b"id: 1\ndata: x", b"\xef\xbb\xbfdata: x", b'{"a":"\xc3\xa4"}', b"x" + "ä".encode() * 60, b""],
)
@pytest.mark.parametrize("label", ["gzip", "br", "deflate"])
def test_plain_text_under_the_label_of_a_compression_stays_as_it_is(
    body: bytes, label: str
) -> None:
    """Gateways inflate a body and leave its header on."""
    assert inflate(body, label, LIMIT) == body


@pytest.mark.parametrize("level", [1, 19])
def test_a_zstd_bomb_stops_at_the_cap(level: int) -> None:
    bomb = zstandard.compress(b"\0" * (1 << 28), level)
    tracemalloc.start()
    assert inflate(bomb, None, LIMIT) is BadPayloadReason.INFLATED_TOO_LARGE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("wbits", [15, 31])
def test_a_deflate_bomb_stops_at_the_cap(wbits: int) -> None:
    packer = zlib.compressobj(wbits=wbits)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(64)) + packer.flush()
    tracemalloc.start()
    assert inflate(bomb, None, LIMIT) is BadPayloadReason.INFLATED_TOO_LARGE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "empty", [gzip.compress(b"", mtime=0), zstandard.compress(b"")], ids=["gzip", "zstd"]
)
def test_a_million_empty_members_do_not_hold_the_service_up(empty: bytes) -> None:
    assert inflate(empty * 50_000, None, LIMIT) is BadPayloadReason.CORRUPT_ENCODING


def test_the_cap_is_inclusive() -> None:
    for packed in PACKED.values():
        assert inflate(packed, None, len(TEXT)) == TEXT
        assert inflate(packed, None, len(TEXT) - 1) is BadPayloadReason.INFLATED_TOO_LARGE


@settings(deadline=None, max_examples=100)
@given(
    magic=st.sampled_from([b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x78\x9c", b""]),
    rest=st.binary(max_size=80),
    label=st.none() | st.sampled_from(["gzip", "deflate", "br", "zstd"]) | st.text(max_size=4),
)
@example(magic=b"\x1f\x8b", rest=b"", label=None)
def test_no_bytes_make_it_raise(magic: bytes, rest: bytes, label: str | None) -> None:
    out = inflate(magic + rest, label, 1000)
    assert isinstance(out, BadPayloadReason) or len(out) <= max(1000, len(magic + rest))
