"""A turn of the main loop: how long it may read, and which messages make it slow."""

from typing import Final

from consumer.core.message import Message
from consumer.kafka.context import Context
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import EventTotal

MAX_MESSAGES: Final = 2000
_MAX_TURN_S: Final = 1.0
_GOOD_TURN_S: Final = 0.25
_MIN_MESSAGES: Final = 16
_SLOW_S: Final = 0.25  # A harmless response of max_inflated_bytes takes less.


class Turn:
    """Watches the time while messages are read.

    Args:
        context: clock, log and stop.
        metrics: counts slow messages.

    Attributes:
        messages: how many messages to ask for, so that a turn is neither long nor empty.

    """

    def __init__(self, context: Context, metrics: Metrics) -> None:
        self._context = context
        self._metrics = metrics
        self._monotonic = context.clock.monotonic
        self._began = self._read_at = self._monotonic()
        self.messages = MAX_MESSAGES

    def begin(self) -> None:
        """Begin a turn."""
        self._began = self._read_at = self._monotonic()

    def end(self, read: int) -> None:
        """End a turn in which some messages were read."""
        took = self._monotonic() - self._began
        if took > _GOOD_TURN_S:
            self.messages = max(_MIN_MESSAGES, int(read * _GOOD_TURN_S / took))
        elif self.messages < MAX_MESSAGES and read >= self.messages:
            self.messages = min(MAX_MESSAGES, 2 * self.messages)

    def is_over(self, message: Message) -> bool:
        """Return whether the turn must end after a message; log the message if it was slow."""
        now = self._monotonic()
        took, self._read_at = now - self._read_at, now
        if took > _SLOW_S:
            self._metrics.count(EventTotal.SLOW_MESSAGES, 1)
            self._context.log.warning(
                LogEvent.MESSAGE_SLOW,
                topic=message.topic(),
                partition=message.partition(),
                offset=message.offset(),
                size=len(message.value() or b""),
                seconds=round(took, 3),
            )
        return now - self._began > _MAX_TURN_S
