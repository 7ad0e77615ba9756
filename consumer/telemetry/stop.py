"""The wish that the service stop, as everybody who waits for something sees it.

Who looks shows thereby that it does not hang.
"""

import signal
from types import FrameType


class Stop:
    """Whether the service is to stop, and why.

    Attributes:
        reason: name of the signal that asked for it, or None.
        looks: how often `requested` was read.

    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.looks = 0

    @property
    def requested(self) -> bool:
        """Whether somebody has asked for it; for the main loop and what it calls."""
        self.looks += 1
        return self.reason is not None

    def listen(self) -> None:
        """Take signals: the first asks for a stop in good order, the second does as signals do."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def request(self, reason: str) -> None:
        """Ask for it."""
        self.reason = reason

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.request(signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)
