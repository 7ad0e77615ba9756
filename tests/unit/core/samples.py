"""The sample files as Kafka messages."""

from base64 import b64decode
from typing import Final

import msgspec

from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    CapturedMessage,
    Headers,
)
from tests.paths import SAMPLES
from tests.unit.core.made import message, native_segment

_LINES: Final = (".jsonl", ".log")
_MARKED: Final = {"sse.br.bin": b"br", "sse.deflate_raw.bin": b"deflate"}


def names() -> list[str]:
    """Return the sample files by their path below the folder of samples, without captures."""
    found = (
        path
        for folder in ("engines", "fleet", "formats")
        for path in (SAMPLES / folder).rglob("*")
        if path.is_file() and path.name != "index.json"
    )
    return sorted(path.relative_to(SAMPLES).as_posix() for path in found)


def messages(name: str) -> list[CapturedMessage]:
    """Return a sample as its producer would send it."""
    path = SAMPLES / name
    raw = path.read_bytes()
    folder = path.parent.name
    if folder == "records":
        return [_record(raw)]
    if path.suffix in _LINES or (folder in ("lines", "chunks") and path.suffix != ".bin"):
        lines = [line for line in raw.splitlines() if line.strip()]
        return [message(line, offset) for offset, line in enumerate(lines)]
    if folder == "chunks":  # A network chunk: half a stream.
        return [message(native_segment(raw))]
    encoding = _MARKED.get(path.name)
    headers: Headers = [("Content-Encoding", encoding)] if encoding else []
    return [message(raw, headers=headers)]


def _record(raw: bytes) -> CapturedMessage:
    record = msgspec.json.decode(raw)
    value, key = record["value_b64"], record["key_b64"]
    log_append = record["timestamp_type"] == "LOG_APPEND_TIME"
    return CapturedMessage(
        at_topic=record["topic"],
        at_offset=record["offset"],
        the_key=None if key is None else b64decode(key),
        the_value=None if value is None else b64decode(value),
        the_headers=[(name, b64decode(text)) for name, text in record["headers"]],
        timestamp_type=TIMESTAMP_LOG_APPEND_TIME if log_append else TIMESTAMP_CREATE_TIME,
        timestamp_ms=record["timestamp"],
    )
