"""What every part of the service is given."""

from msgspec import Struct

from consumer.settings.settings import Settings
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import Logger
from consumer.telemetry.stop import Stop


class Context(Struct, frozen=True):
    """The surroundings of one process.

    Attributes:
        settings: the settings.
        clock: for intervals and timestamps.
        log: where lines go.
        stop: whether the service is to stop.

    """

    settings: Settings
    clock: Clock
    log: Logger
    stop: Stop
