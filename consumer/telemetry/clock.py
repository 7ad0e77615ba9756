"""The one module that reads clocks. Everything else is handed a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the shell takes its time from; the core is given none."""

    def monotonic(self) -> float:
        """Return seconds that only ever grow: for durations and deadlines."""
        ...

    def wall(self) -> int:
        """Return milliseconds since 1970: for what people and Kafka read."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def monotonic(self) -> float:
        """Return the system's monotonic seconds."""
        return time.monotonic()

    def wall(self) -> int:
        """Return the system's milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Hold up this thread."""
        time.sleep(seconds)
