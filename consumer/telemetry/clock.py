"""The only module that reads clocks. All others are given a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time; the core has none."""

    def monotonic(self) -> float:
        """Return seconds that never decrease: for durations and deadlines."""
        ...

    def wall(self) -> int:
        """Return milliseconds since 1970: for people and for Kafka."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The clocks of the machine."""

    monotonic = staticmethod(time.monotonic)  # Not one more call: it is read for each event.

    def wall(self) -> int:
        """Return the system's milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)
