"""Tells a stalled Kafka call from one that waits for an unreachable broker.

`send_offsets_to_transaction` of librdkafka 2.16 ignores its timeout, and may wait for ever for a
coordinator that was away (confluentinc/librdkafka#5456 and #5511). Only new clients help, and only
once a broker is reachable: clients that were made earlier have been seen to hang as well.
"""

import math
from collections.abc import Callable
from typing import Final

from consumer.kafka.errors import UnansweredError
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger

_ASK_AFTER_S: Final = 5.0
_ASK_EVERY_S: Final = 2.0
_ANSWER_S: Final = 1.0
_LOG_EVERY_S: Final = 30.0


class StallGuard:
    """Limit the time of one operation at a time, not counting times without a broker.

    Args:
        timeout_s: how long an operation may take while brokers are reachable.
        is_reachable: tells whether a broker answers within so many seconds.
        clock: for intervals.
        log: where waiting for a broker is logged.

    """

    def __init__(
        self, timeout_s: float, is_reachable: Callable[[float], bool], clock: Clock, log: Logger
    ) -> None:
        self._timeout_s = timeout_s
        self._is_reachable = is_reachable
        self._clock = clock
        self._log = log
        self._ask_at = -math.inf
        self._since = -math.inf
        self._log_at = -math.inf

    def begin(self) -> None:
        """Note that an operation begins."""
        self._since = self._clock.monotonic()
        self._ask_at = self._since + _ASK_AFTER_S

    def check(self, operation: str) -> None:
        """Check the time of the operation; to be called often until it ends.

        Raises:
            UnansweredError: the operation takes too long.

        """
        if self._clock.monotonic() < self._ask_at:
            return
        reachable = self.is_broker_reachable()
        now = self._clock.monotonic()
        self._ask_at = now + _ASK_EVERY_S
        if not reachable:
            self._since = now
        elif now - self._since >= self._timeout_s:
            raise UnansweredError(
                f"{operation}: timed out after {self._timeout_s:.0f} s although the brokers are "
                "reachable"
            )

    def is_broker_reachable(self) -> bool:
        """Return whether a broker answers; log now and then that none does."""
        if self._is_reachable(_ANSWER_S):
            return True
        now = self._clock.monotonic()
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            self._log.warning(
                LogEvent.KAFKA_ERROR, error="no broker answers", action="waiting for a broker"
            )
        return False
