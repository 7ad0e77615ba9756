"""Repeat a call to Kafka while its error may pass, and log now and then that it fails."""

import math
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from consumer.kafka.errors import NoBrokerError, Stopped, cause_of, is_transient
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger

T = TypeVar("T")

_LOG_EVERY_S: Final = 10.0


class Retry:
    """Repeats calls.

    Args:
        is_stopped: returns whether to give up.
        clock: for pauses and limits.
        log: gets a line about a call that fails again and again.
        pause_s: seconds between two calls.
        log_after_s: seconds of failures before the first line.
        log_every_s: seconds between two lines about one call.

    """

    def __init__(
        self,
        is_stopped: Callable[[], bool],
        clock: Clock,
        log: Logger,
        *,
        pause_s: float,
        log_after_s: float = 0.0,
        log_every_s: float = _LOG_EVERY_S,
    ) -> None:
        self._is_stopped = is_stopped
        self._clock = clock
        self._log = log
        self._pause_s = pause_s
        self._log_after_s = log_after_s
        self._log_every_s = log_every_s

    def call(self, ask: Callable[[], T], max_s: float = math.inf, **fields: object) -> T:
        """Return the answer to a call.

        Args:
            ask: the call.
            max_s: seconds after which an error counts though it may pass.
            fields: of the log line; `action` where more is known than that the call is repeated.

        Raises:
            KafkaException: the error does not pass, or has not passed in time.
            NoBrokerError: no broker has answered in time.
            Stopped: the caller is to give up.

        """
        began = self._clock.monotonic()
        log_at = began + self._log_after_s
        while not self._is_stopped():
            try:
                return ask()
            except (KafkaException, NoBrokerError) as error:
                reason, passes = str(error), True
                if isinstance(error, KafkaException):
                    reason, passes = cause_of(error).str(), is_transient(cause_of(error))
                now = self._clock.monotonic()
                if not passes or now - began >= max_s:
                    raise
            if now >= log_at:
                log_at = now + self._log_every_s
                self._log.warning(
                    LogEvent.KAFKA_ERROR, error=reason, **{"action": "trying again", **fields}
                )
            self._clock.sleep(self._pause_s)
        raise Stopped
