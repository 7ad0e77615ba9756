"""The fleet: requests that arrive, and their messages in the order in which they are due."""

import heapq
import math
from collections.abc import Iterator
from itertools import count
from random import Random

from consumer.demo.fleet.kinds import Noise, TrafficKind, new_deck
from consumer.demo.fleet.messages import FleetMessage


class Fleet:
    """The messages of a fleet, in the order in which they are due; endless until `close`.

    Args:
        seed: of everything that is random.
        rate: requests per second.
        start: when the first request may arrive, milliseconds since 1970.

    Raises:
        ValueError: the rate is not a positive number.

    """

    def __init__(self, *, seed: int, rate: float, start: int) -> None:
        if not 0 < rate < math.inf:
            raise ValueError(f"a fleet cannot serve {rate} requests per second")
        self._rng = Random(seed)  # noqa: S311 - made-up data needs no cryptography.
        self._rate = rate
        self._next_arrival = float(start)
        self._open = True
        self._deck: list[TrafficKind | Noise] = []
        self._due: list[tuple[int, int, FleetMessage]] = []
        self._serial = count()

    def close(self) -> None:
        """Let no more requests arrive; what has begun still comes to its end."""
        self._open = False

    def __iter__(self) -> Iterator[FleetMessage]:
        return self

    def __next__(self) -> FleetMessage:
        while self._open and (not self._due or self._next_arrival <= self._due[0][0]):
            self._arrive()
        if not self._due:
            raise StopIteration
        return heapq.heappop(self._due)[2]

    def _arrive(self) -> None:
        at = int(self._next_arrival)
        self._next_arrival += self._rng.expovariate(self._rate) * 1000
        for message in self._draw().messages(self._rng, at):
            heapq.heappush(self._due, (message.timestamp, next(self._serial), message))

    def _draw(self) -> TrafficKind | Noise:
        """Draw from a shuffled deck, so that rare kinds do not stay away for long."""
        if not self._deck:
            self._deck = new_deck()
            self._rng.shuffle(self._deck)
        return self._deck.pop()
