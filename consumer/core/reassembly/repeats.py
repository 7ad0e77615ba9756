"""Repeats of whole responses, in a bounded memory that a restart forgets."""

from collections import OrderedDict
from typing import Final

from consumer.core.message import EventPlace
from consumer.core.response_event import Event

_MAX_REPEATS: Final = 4096


class RepeatMemory:
    """The whole responses seen last.

    Attributes:
        possible_repeats: how many responses may repeat one that a restart has forgotten.

    """

    def __init__(self) -> None:
        self.possible_repeats = 0
        self._first_places: OrderedDict[int, EventPlace] = OrderedDict()
        self._unsure_until: int | None = None  # Stream time until which a restart may matter.

    def remember(self, event: Event, place: EventPlace) -> bool:
        """Remember a whole response; return whether it was seen at another place before.

        The digest is Python's own: as fast as reading the bytes, and never leaves the process.
        """
        digest = hash((event.source, event.request_id, event.raw))
        first = self._first_places.setdefault(digest, place)
        if len(self._first_places) > _MAX_REPEATS:
            self._first_places.popitem(last=False)
        return first != place

    def note_restart(self, until: int) -> None:
        """Note a restart, and the stream time until which a response may repeat an earlier one."""
        self._unsure_until = until

    def count(self, now: int) -> None:
        """Count a whole response, if it may repeat one that a restart has forgotten."""
        if self._unsure_until is None:
            return
        if now < self._unsure_until:
            self.possible_repeats += 1
        else:
            self._unsure_until = None
