"""Whether this process is alive, and whether it is ready: what probes are told, and why.

Alive is who still looks whether it is to stop: every loop of the service that may wait does so, see
`Stop`, and one that hangs does not. Brokers have no part in that. Ready is who has taken its place
in the group and is answered by brokers; lag has no part in that.
"""

import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Gauge

from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.stop import Stop

GAUGES: Final = {
    "acceptance_loop_last_turn_age_seconds": "Seconds for which the main loop has not turned.",
    "acceptance_ready": "Whether /readyz says yes: 1 or 0.",
}
_SAMPLE_S: Final = 1.0
# Longer than any wait in which nobody looks, but for the commit of what is in hand.
_MAX_WAIT_S: Final = 60.0
_LAGGING_S: Final = 30.0  # Longer than a rebalance in good order takes.
# A member that is new is given partitions only after the others have handed them back.
_STANDBY_S: Final = 30.0
# Brokers answer at least each heartbeat, and each fetch, though there is nothing to read.
_SILENT_S: Final = 20.0


class _Broker(Struct):
    state: str
    rxidle: int  # Microseconds since it answered, or -1.


class _Statistics(Struct):
    brokers: dict[str, _Broker]


_decode: Final = msgspec.json.Decoder(_Statistics).decode


class Health:
    """What the loop says of itself, and what follows for probes.

    It belongs to the thread that makes it, whose stack is logged if it hangs.

    Args:
        stop: who looks at it turns.
        shutdown_timeout: seconds that the commit of what is in hand may take.
        clock: for intervals.
        log: where lines go.

    """

    def __init__(self, stop: Stop, shutdown_timeout: float, clock: Clock, log: Logger) -> None:
        self._stop = stop
        self._bound = shutdown_timeout + _MAX_WAIT_S
        self._clock = clock
        self._log = log
        self._thread = threading.get_ident()
        self._looks = stop.looks
        self._still = 0.0
        self._stalled = False
        self._member_since: float | None = None
        self._partitions = 0
        self._rereading = 0
        self._begun = False
        self._connected = False
        self._answered_at: float | None = None

    # What the loop says

    def placed(self, *, member: bool, partitions: int = 0, rereading: int = 0) -> None:
        """Take note of this member's place in its group.

        Args:
            member: whether it is one.
            partitions: how many it has.
            rereading: how many of them are not live yet.

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
            self._begun = True

    def statistics(self, text: str) -> None:
        """Take note of what librdkafka's statistics say of the connections to brokers."""
        try:
            brokers = _decode(text).brokers.values()
        except msgspec.MsgspecError:
            return  # Of a librdkafka that this version does not know; it must not end a poll.
        connected = [one for one in brokers if one.state == "UP"]
        idle = [one.rxidle for one in connected if one.rxidle >= 0]
        self._connected = bool(connected)
        if idle:
            self._answered_at = self._clock.monotonic() - min(idle) / 1e6

    # What is asked

    @property
    def turn_age(self) -> float:
        """Seconds for which the loop has not turned, to the second."""
        return self._still

    @property
    def alive(self) -> bool:
        """Whether the loop turns."""
        return self._still < self._bound

    def reasons(self) -> list[str]:
        """Return why this process is not ready; it is, if there is no reason."""
        if self._stop.reason is not None:
            return [f"stopping: {self._stop.reason}"]
        reasons = []
        if self._still >= _LAGGING_S:
            reasons.append(f"the loop has not turned for {self._still:.0f} s")
        if self._member_since is None:
            reasons.append("not a member of the group yet, or no more")
        elif not self._begun and not self._partitions:
            reasons.append("the group has given no partitions yet")
        elif not self._begun:
            reasons.append(f"{self._rereading} of {self._partitions} partitions are read again")
        return reasons + self._broker_reasons()

    def _broker_reasons(self) -> list[str]:
        if self._answered_at is None:
            return ["no broker has answered yet"]
        silence = self._clock.monotonic() - self._answered_at
        if silence >= _SILENT_S:
            return [f"no broker has answered for {silence:.0f} s"]
        return [] if self._connected else ["no broker is connected"]

    def register(self, registry: CollectorRegistry) -> None:
        """Let metrics tell the same."""
        values = (lambda: self.turn_age), (lambda: float(not self.reasons()))
        for (name, explanation), value in zip(GAUGES.items(), values, strict=True):
            Gauge(name, explanation, registry=registry).set_function(value)

    # The watchdog

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice a loop that hangs, from a thread of its own."""
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
        """Look once whether the loop has turned; called every second.

        Seconds are counted and not measured: while the whole process is stopped, nothing hangs.
        """
        looks = self._stop.looks
        self._still = 0.0 if looks != self._looks else self._still + _SAMPLE_S
        self._looks = looks
        if self._stalled == self.alive:
            self._stalled = not self.alive
            if self._stalled:
                self._log.error(LogEvent.LOOP_STALLED, seconds=self._still, stack=self._stack())
            else:
                self._log.warning(LogEvent.LOOP_RESUMED)

    def _stack(self) -> list[str]:
        """Return where the loop hangs, without local variables, which may be payload."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - public, named so.
        return [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_stack(frame)]
