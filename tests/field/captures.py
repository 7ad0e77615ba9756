"""What real software wrote to Kafka, kept in tests/samples/field.

The unit tests read the captures, so that CI shows without the software that its messages are read.
"""

import json
import socket
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct, convert, to_builtins

from consumer.commands.captures.files import read_capture
from consumer.core.message import TIMESTAMP_LOG_APPEND_TIME, CapturedMessage
from consumer.telemetry.clock import SystemClock
from tests.field.answers import Json, Numbers
from tests.paths import SAMPLES

FIELD_SAMPLES: Final = SAMPLES / "field"

_INDEX: Final = FIELD_SAMPLES / "index.json"


class Capture(Struct, frozen=True, kw_only=True):
    """A row of the index: who wrote a capture, and what has to come of it."""

    name: str
    program: str
    version: str
    date: str
    settings: dict[str, str]
    """Settings of the service, where the defaults do not do."""
    records: list[Numbers]
    without_record: int = 0
    """How many requests end without a record."""
    dead_letters: list[str]

    @property
    def path(self) -> Path:
        return FIELD_SAMPLES / f"{self.name}.jsonl"

    def messages(self) -> list[CapturedMessage]:
        """Return what the software wrote."""
        return list(read_capture(str(self.path), "records"))


def today() -> str:
    """Return the date of a capture."""
    return datetime.fromtimestamp(SystemClock().wall() / 1000, UTC).date().isoformat()


def captures() -> list[Capture]:
    """Return the index."""
    return convert(json.loads(_INDEX.read_text()), list[Capture]) if _INDEX.exists() else []


def keep(capture: Capture, messages: Sequence[CapturedMessage], directory: Path) -> None:
    """Write a capture and its row, without names of this machine."""
    FIELD_SAMPLES.mkdir(exist_ok=True)
    hidden = {socket.gethostname().encode(): b"host", str(directory).encode(): b"/var/log"}
    lines = [json.dumps(_line(message, hidden)) + "\n" for message in messages]
    capture.path.write_text("".join(lines))
    rows = {row.name: row for row in captures()} | {capture.name: capture}
    index = [to_builtins(rows[name]) for name in sorted(rows)]
    _INDEX.write_text(json.dumps(index, indent=1) + "\n")


def _line(message: CapturedMessage, hidden: dict[bytes, bytes]) -> Json:
    def encoded(value: bytes | str | None) -> str | None:
        if value is None:
            return None
        value = value.encode() if isinstance(value, str) else value
        for name, instead in hidden.items():
            value = value.replace(name, instead)
        return b64encode(value).decode()

    log_append = message.timestamp_type == TIMESTAMP_LOG_APPEND_TIME
    return {
        "topic": "field",
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp_ms,
        "timestamp_type": "LOG_APPEND_TIME" if log_append else "CREATE_TIME",
        "key_b64": encoded(message.key()),
        "headers": [[name, encoded(value)] for name, value in message.headers() or []],
        "value_b64": encoded(message.value()),
    }
