"""A Kafka message as the core sees it.

The core reads messages through the methods of the client's own class: nothing is copied per event,
and headers, which cost as much as consuming, are read only where they matter.
"""

import re
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

Header = tuple[str, bytes | str | None]
Headers = list[Header]
EventPlace = tuple[int, int]  # Offset of a message, and index of an event inside it.

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2
# W3C Trace Context: no id is all zeros, and versions after 00 may be longer.
_IDS: Final = r"-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_TRACE: Final = re.compile(
    rf"00{_IDS}|(?!00|ff)[0-9a-f]{{2}}{_IDS}(?:-[\x21-\x7e]{{0,200}})?", re.ASCII
)


class Message(Protocol):
    """The methods of `confluent_kafka.Message` that the core uses."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp and milliseconds since 1970 (-1 where there is none)."""
        ...


def headers_of(read: Callable[[], Headers | None]) -> Headers | None:
    """Return a message's headers; None if the client cannot read them.

    The client raises for a name that is not UTF-8, and returns null pointers if it is asked for the
    headers of that message again (confluent-kafka 2.16).
    """
    try:
        return read() or []
    except (SystemError, UnicodeError):
        return None


def trace_of(headers: Headers) -> str | None:
    """Return the `traceparent` of a message, if it is valid."""
    trace = header(headers, "traceparent")
    return trace if trace is not None and _TRACE.fullmatch(trace) else None


def header(headers: Headers, name: str) -> str | None:
    """Return the first header of a name in any case, as text; None if there is none."""
    for key, value in headers:
        if key.lower() == name:
            return header_text(value)
    return None


def header_text(value: bytes | str | None) -> str | None:
    """Return a header's value as text that can be encoded."""
    if isinstance(value, str):
        value = value.encode("utf-8", "replace")
    return None if value is None else value.decode("utf-8", "replace")


class CapturedMessage(Struct, frozen=True, kw_only=True):
    """A message from a capture file or a test."""

    at_topic: str = "capture"
    at_partition: int = 0
    at_offset: int = 0
    the_key: bytes | None = None
    the_value: bytes | None = None
    the_headers: Headers | None = None
    timestamp_type: int = TIMESTAMP_NOT_AVAILABLE
    timestamp_ms: int = -1

    def topic(self) -> str:
        return self.at_topic

    def partition(self) -> int:
        return self.at_partition

    def offset(self) -> int:
        return self.at_offset

    def key(self) -> bytes | None:
        return self.the_key

    def value(self) -> bytes | None:
        return self.the_value

    def headers(self) -> Headers | None:
        return self.the_headers

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_type, self.timestamp_ms
