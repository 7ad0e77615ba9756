"""A clock that moves only when a test moves it."""


class ManualClock:
    """A `consumer.telemetry.clock.Clock` for tests; both of its times move together."""

    def __init__(self, wall: int = 1_767_225_600_000, monotonic: float = 1_000.0) -> None:
        self._wall = wall
        self._monotonic = monotonic

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> int:
        return self._wall

    def advance(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall += round(seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
