"""What bounds the state of a partition, with the defaults."""

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Limits that shape what is known; a checkpoint holds only under the same ones.

    Attributes:
        idle_timeout_ms: stream time without a new event after which an open request is closed.
        duplicate_window_ms: stream time for which a request stays known beyond `idle_timeout_ms`.
        max_reread: messages behind the position at which a request that began there is closed if it
            is open, and forgotten if its last event lies there as well.
        max_segment_bytes: maximum bytes held of one request's raw segments.
        max_inflated_bytes: maximum bytes of a value or body once it is decompressed.
        max_entries: maximum number of entries of one message.
        max_choices: maximum number of choices of one response.

    """

    idle_timeout_ms: int = 120_000
    duplicate_window_ms: int = 60_000
    max_reread: int = 2_000_000
    max_segment_bytes: int = 1 << 20
    max_inflated_bytes: int = 16 << 20
    max_entries: int = 10_000
    max_choices: int = 1_024
