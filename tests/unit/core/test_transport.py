"""Compressions and frames around a value."""

import gzip
import struct
import zlib

import pytest
import zstandard

from consumer.core.envelopes.transport import Plain, plain_text
from consumer.core.message import Headers
from consumer.core.response_event import BadEvent
from schemas import BadPayloadReason
from tests.unit.core.made import encode, native, whole

TEXT = native("r1", body=whole())
CONFLUENT = struct.pack(">bI", 0, 12)
GLUE = b"\x03\x00" + bytes(range(16))


def plain(value: bytes, headers: Headers | None = None) -> bytes:
    found = plain_text(value, headers or [], 1 << 16)
    assert isinstance(found, Plain), found
    return found.text


def refused(value: bytes, headers: Headers | None = None) -> BadEvent:
    found = plain_text(value, headers or [], 1 << 16)
    assert isinstance(found, BadEvent)
    return found


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, zstandard.compress])
def test_a_compression_is_undone_by_its_magic_bytes(compress: object) -> None:
    assert callable(compress)
    assert plain(compress(TEXT)) == TEXT
    assert plain(gzip.compress(compress(TEXT))) == TEXT


def test_a_compression_without_magic_bytes_is_undone_by_its_label() -> None:
    deflated = zlib.compress(TEXT, wbits=-15)
    assert plain(deflated, [("Content-Encoding", b"deflate")]) == TEXT


@pytest.mark.parametrize(
    "frame",
    [
        CONFLUENT,
        CONFLUENT + b"\x00",  # Protobuf: the first message.
        CONFLUENT + b"\x04\x02\x00",  # Protobuf: the first message in the second one.
        b"\x00" + bytes(7) + b"\x0c",  # Apicurio.
        GLUE,
    ],
)
@pytest.mark.parametrize("text", [TEXT, b"[1]", b'"x"', b"data: x\n\n", gzip.compress(TEXT)])
def test_a_frame_before_json_or_text_is_taken_off(frame: bytes, text: bytes) -> None:
    assert plain(frame + text) == plain(text)


def test_a_frame_inside_a_compression_is_taken_off() -> None:
    assert plain(gzip.compress(CONFLUENT + TEXT)) == TEXT


@pytest.mark.parametrize(
    ("value", "headers", "detail"),
    [
        (CONFLUENT + b"\x02\x08abcd", [], "schema id 12"),
        (GLUE + b"\x02\x08abcd", [], "schema of AWS Glue"),
        (b"\x02\x08abcd", [("__value_schema_id", b"\x01" + bytes(16))], "header __value_schema_id"),
        (
            b"\x02\x08abcd",
            [("apicurio.value.globalId", bytes(8))],
            "header apicurio.value.globalid",
        ),
    ],
)
def test_avro_and_protobuf_of_a_registry_are_named(
    value: bytes, headers: Headers, detail: str
) -> None:
    found = refused(value, headers)
    assert found.reason is BadPayloadReason.SCHEMA_REGISTRY_FRAME
    assert detail in (found.detail or "")


def test_a_schema_in_a_header_does_not_matter_to_json() -> None:
    assert plain(TEXT, [("__value_schema_id", b"\x01" + bytes(16))]) == TEXT


def test_a_bomb_is_not_blown_up() -> None:
    bomb = gzip.compress(gzip.compress(encode("x" * (1 << 20))))
    assert refused(bomb).reason is BadPayloadReason.INFLATED_TOO_LARGE


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00\x00\x00\x0c", b"\x03", b"\xff" * 30])
def test_other_bytes_stay_as_they_are(value: bytes) -> None:
    assert plain(value) == value
