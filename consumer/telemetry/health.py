"""Liveness and readiness of the process, for probes.

The process is alive while the main loop, and each wait within it, checks in time whether to stop
(see `Stop`); unreachable brokers do not matter. It is ready once it is a member of its group, its
partitions are restored, and a broker answers; lag does not matter.
"""

import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from consumer.telemetry.client_statistics import ClientStatistics
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.stop import Stop

GAUGES: Final = {
    "acceptance_loop_last_turn_age_seconds": "Seconds since the main loop last responded.",
    "acceptance_ready": "1 if /readyz reports that the process is ready, else 0.",
}
_SAMPLE_S: Final = 1.0
# Longer than any wait without a check, except for the commit of the current batch.
_MAX_WAIT_S: Final = 60.0
_MAX_READY_WAIT_S: Final = 30.0  # Longer than a regular rebalance takes.
# A new member gets partitions only after the other members have released them.
_STANDBY_S: Final = 30.0
# Brokers answer each heartbeat, and each fetch even if there is nothing to read.
_MAX_SILENCE_S: Final = 20.0


class Health:
    """Collects what the loop and its consumer report, and answers probes.

    It belongs to the thread that creates it; the log shows the stack of this thread if it hangs.

    Args:
        stop: the loop shows by its checks that it responds.
        shutdown_timeout_s: seconds that the commit of the current batch may take.
        clock: for intervals.
        log: receives the log lines.

    """

    def __init__(self, stop: Stop, shutdown_timeout_s: float, clock: Clock, log: Logger) -> None:
        self._stop = stop
        self._max_turn_age_s = shutdown_timeout_s + _MAX_WAIT_S
        self._clock = clock
        self._log = log
        self._thread = threading.get_ident()
        self._checks = stop.checks
        self._turn_age_s = 0.0
        self._stalled = False
        self._member_since: float | None = None
        self._partitions = 0
        self._rereading = 0
        self._was_ready = False
        self._connected = False
        self._answered_at: float | None = None

    # Reports

    def set_membership(self, *, member: bool, partitions: int = 0, rereading: int = 0) -> None:
        """Report the membership of this process in its group.

        Args:
            member: whether it is a member.
            partitions: number of its partitions.
            rereading: how many of them the service still re-reads.

        """
        now = self._clock.monotonic()
        self._partitions, self._rereading = partitions, rereading
        if not member:
            self._member_since = None
            return
        if self._member_since is None:
            self._member_since = now
        is_standby = not partitions and now - self._member_since >= _STANDBY_S
        if is_standby or (partitions and not rereading):
            self._was_ready = True

    def add_statistics(self, statistics: ClientStatistics) -> None:
        """Report the connections of the consumer to brokers."""
        connected = [one for one in statistics.brokers.values() if one.state == "UP"]
        idle_us = [one.rxidle for one in connected if one.rxidle >= 0]
        self._connected = bool(connected)
        if idle_us:
            self._answered_at = self._clock.monotonic() - min(idle_us) / 1e6

    # Answers

    @property
    def turn_age_s(self) -> float:
        """Whole seconds since the main loop last responded."""
        return self._turn_age_s

    @property
    def alive(self) -> bool:
        """Whether the main loop responds."""
        return self._turn_age_s < self._max_turn_age_s

    def reasons(self) -> list[str]:
        """Return why this process is not ready; an empty list if it is."""
        if self._stop.reason is not None:
            return [f"stopping: {self._stop.reason}"]
        reasons = []
        if self._turn_age_s >= _MAX_READY_WAIT_S:
            reasons.append(f"the main loop has not responded for {self._turn_age_s:.0f} s")
        if self._member_since is None:
            reasons.append("not a member of the consumer group")
        elif not self._was_ready and not self._partitions:
            reasons.append("no partitions are assigned yet")
        elif not self._was_ready:
            reasons.append(f"re-reading {self._rereading} of {self._partitions} partitions")
        return reasons + self._broker_reasons()

    def _broker_reasons(self) -> list[str]:
        if self._answered_at is None:
            return ["no broker has answered yet"]
        silence_s = self._clock.monotonic() - self._answered_at
        if silence_s >= _MAX_SILENCE_S:
            return [f"no broker has answered for {silence_s:.0f} s"]
        return [] if self._connected else ["no broker is connected"]

    def register(self, registry: CollectorRegistry) -> None:
        """Add the gauges to a registry."""
        values = (lambda: self.turn_age_s), (lambda: float(not self.reasons()))
        for (name, explanation), value in zip(GAUGES.items(), values, strict=True):
            Gauge(name, explanation, registry=registry).set_function(value)

    # The watchdog

    @contextmanager
    def watchdog(self) -> Iterator[None]:
        """Detect from another thread that the main loop hangs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_SAMPLE_S):
                self.sample()

        threading.Thread(target=watch, name="watchdog", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def sample(self) -> None:
        """Check once whether the main loop has responded; called every second.

        The calls are counted and no time is measured: a suspended process does not hang.
        """
        checks = self._stop.checks
        self._turn_age_s = 0.0 if checks != self._checks else self._turn_age_s + _SAMPLE_S
        self._checks = checks
        if self._stalled == self.alive:
            self._stalled = not self.alive
            if self._stalled:
                self._log.error(
                    LogEvent.LOOP_STALLED, seconds=self._turn_age_s, stack=self._stack()
                )
            else:
                self._log.warning(LogEvent.LOOP_RESUMED)

    def _stack(self) -> list[str]:
        """Return where the loop hangs, without local variables, which may be payload."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - its public name.
        return [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_stack(frame)]
