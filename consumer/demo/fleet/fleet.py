"""The fleet: requests that arrive, and their messages in the order in which they are due."""

import heapq
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import Final

from consumer.demo.fleet.kinds import REQUEST_KINDS
from consumer.demo.fleet.messages import FleetMessage
from consumer.demo.fleet.noise import NOISE
from consumer.demo.fleet.requests import Request

REQUESTS_PER_ROUND: Final = sum(kind.weight for kind in REQUEST_KINDS) + len(NOISE)
"""Every kind of request and of noise occurs among this many."""


class Fleet:
    """The messages of a fleet, in the order in which they are due; endless until `close`.

    Args:
        seed: decides everything that is random.
        rate: requests per second.
        start: when the first request may arrive, milliseconds since 1970.

    Raises:
        ValueError: the rate is not a positive number.

    """

    def __init__(self, *, seed: int, rate: float, start: int) -> None:
        if not 0 < rate < math.inf:
            raise ValueError(f"{rate} requests per second is not a positive number")
        self._rng = Random(seed)  # noqa: S311 - made-up data needs no cryptography.
        self._rate = rate
        self._next_arrival = float(start)
        self._open = True
        self._round: list[Callable[[Random, int], list[FleetMessage]]] = []
        self._due: list[tuple[int, int, FleetMessage]] = []
        self._numbers = count()

    def close(self) -> None:
        """Let no more requests arrive; the fleet still finishes the open ones."""
        self._open = False

    def due_by(self, timestamp: float) -> Iterator[FleetMessage]:
        """Yield the next messages that are due by a timestamp."""
        while self._has_message() and self._due[0][0] <= timestamp:
            yield next(self)

    def __iter__(self) -> Iterator[FleetMessage]:
        return self

    def __next__(self) -> FleetMessage:
        if not self._has_message():
            raise StopIteration
        return heapq.heappop(self._due)[2]

    def _has_message(self) -> bool:
        """Let all requests arrive that may have the next message; return whether there is one."""
        while self._open and (not self._due or self._next_arrival <= self._due[0][0]):
            self._arrive()
        return bool(self._due)

    def _arrive(self) -> None:
        at = int(self._next_arrival)
        self._next_arrival += self._rng.expovariate(self._rate) * 1000
        if not self._round:  # Shuffled rounds, so that no rare kind stays away for long.
            self._round = [kind.messages for kind in REQUEST_KINDS for _ in range(kind.weight)]
            self._round += [partial(_noise, make) for make in NOISE]
            self._rng.shuffle(self._round)
        for message in self._round.pop()(self._rng, at):
            heapq.heappush(self._due, (message.timestamp, next(self._numbers), message))


def _noise(make: Callable[[Request], FleetMessage], rng: Random, at: int) -> list[FleetMessage]:
    return [make(Request.draw(rng, "vllm", at))]
