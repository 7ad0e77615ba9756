"""Limits how often one reason may cause a log line, or another output."""

from msgspec import Struct

from consumer.telemetry.clock import Clock


class _Window(Struct):
    start_s: float
    admitted: int = 0
    suppressed: int = 0


class RateLimiter:
    """Admits the first events per reason and period, and counts the ones that it suppresses."""

    def __init__(self, clock: Clock, *, max_admitted: int = 10, period_s: float = 60.0) -> None:
        self._clock = clock
        self._max_admitted = max_admitted
        self._period_s = period_s
        self._windows: dict[str, _Window] = {}

    def admit(self, reason: str) -> int | None:
        """Return how many events were suppressed before this one; None to suppress it too."""
        now = self._clock.monotonic()
        window = self._windows.get(reason)
        if window is None:
            window = self._windows[reason] = _Window(now)
        elif now - window.start_s >= self._period_s:
            window.start_s, window.admitted = now, 0
        if window.admitted == self._max_admitted:
            window.suppressed += 1
            return None
        window.admitted += 1
        suppressed, window.suppressed = window.suppressed, 0
        return suppressed
