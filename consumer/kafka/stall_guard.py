"""What hangs, told from what waits for a broker, by asking whether one answers.

`send_offsets_to_transaction` of librdkafka 2.16 ignores its timeout, and may wait for ever for a
coordinator that was away (confluentinc/librdkafka#5456 and #5511). Only new clients help, and only
once there is a broker for them: clients that were made too early have been seen to hang as well.
"""

import math
from collections.abc import Callable
from typing import Final

from consumer.kafka.errors import UnansweredError
from consumer.telemetry.clock import Clock
from consumer.telemetry.logging_setup import LogEvent, Logger

_ASK_AFTER_S: Final = 5.0
_ASK_EVERY_S: Final = 2.0
_ANSWER_S: Final = 1.0
_LOG_EVERY_S: Final = 30.0


class StallGuard:
    """Patience with one thing at a time, which does not wear out while no broker answers.

    Args:
        seconds: how long a thing may take while brokers answer.
        answers: tells whether a broker answers within so many seconds.
        clock: for intervals.
        log: where lines go.

    """

    def __init__(
        self, seconds: float, answers: Callable[[float], bool], clock: Clock, log: Logger
    ) -> None:
        self._seconds = seconds
        self._answers = answers
        self._clock = clock
        self._log = log
        self._ask_at = -math.inf
        self._since = -math.inf
        self._tell_at = -math.inf

    def begin(self) -> None:
        """Note that something sets out."""
        self._since = self._clock.monotonic()
        self._ask_at = self._since + _ASK_AFTER_S

    def check(self, what: str) -> None:
        """Look whether what has set out should be back; called often while it is not.

        Raises:
            UnansweredError: it should.

        """
        if self._clock.monotonic() < self._ask_at:
            return
        answered = self.broker_answers()
        now = self._clock.monotonic()
        self._ask_at = now + _ASK_EVERY_S
        if not answered:
            self._since = now
        elif now - self._since >= self._seconds:
            raise UnansweredError(f"{what}: not done in {self._seconds:.0f} s, and brokers answer")

    def broker_answers(self) -> bool:
        """Tell whether a broker answers; say now and then that one is waited for."""
        if self._answers(_ANSWER_S):
            return True
        now = self._clock.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + _LOG_EVERY_S
            self._log.warning(
                LogEvent.KAFKA_ERROR, error="no broker answers", follows="waiting for a broker"
            )
        return False
