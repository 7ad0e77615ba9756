"""The request to stop the service, which everything that waits checks.

Each check also shows that the checking thread does not hang.
"""

import signal
from types import FrameType


class Stop:
    """Whether the service is to stop, and why.

    Attributes:
        reason: name of the signal that requested it, or None.
        checks: how often `requested` was read.

    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.checks = 0

    @property
    def requested(self) -> bool:
        """Whether a stop is requested; only for the main loop and the functions that it calls."""
        self.checks += 1
        return self.reason is not None

    def handle_signals(self) -> None:
        """Let a first signal request a stop; a second one has its default effect."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # See `__main__`.

    def request(self, reason: str) -> None:
        """Request a stop."""
        self.reason = reason

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.request(signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)
