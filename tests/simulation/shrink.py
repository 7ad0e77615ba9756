"""Make a broken world small: `make shrink SEED=7647`.

It leaves out messages and faults as long as the world is still broken, and prints what is left: the
messages, what happened in order, and what is wrong at the end.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from tests.simulation.world import FAULTS, World, simulated
from tests.support.kafka_in_memory.log import Message

_MAX_SHOWN = 200

Make = Callable[[int], World]
Plans = tuple[tuple[Message, ...], ...]


class Broken(Struct):
    """A world that is broken.

    Attributes:
        plans: its messages, by partition.
        off: faults that are left out.
        error: what is wrong.
        story: what happened, in order, each with the time in seconds.

    """

    plans: Plans
    off: frozenset[str]
    error: str
    story: list[tuple[float, str]]


class _Story(Counter[str]):
    """Hazards that remember when each occurred."""

    def __init__(self, world: World) -> None:
        super().__init__(world.hazards)
        self._world = world
        self.events: list[tuple[float, str]] = []

    def __setitem__(self, name: str, times: int) -> None:
        if hasattr(self, "events") and times > self[name]:
            self.events.append((self._world.clock.monotonic(), name))
        super().__setitem__(name, times)


def shrink(make: Make, seed: int) -> Broken | None:
    """Return a small world that breaks as the one of a seed does; None if that does not break."""
    plans: Plans = tuple(map(tuple, make(seed).plans))
    smallest = _broken(make, seed, plans, frozenset())
    if smallest is None:
        return None
    found: Broken | None = smallest
    while found is not None:
        smallest = found
        found = next(
            (
                other
                for plans, off in _smaller(smallest)
                if (other := _broken(make, seed, plans, off)) is not None
            ),
            None,
        )
    return smallest


def _broken(make: Make, seed: int, plans: Plans, off: frozenset[str]) -> Broken | None:
    """Return a world of these messages and faults if it is broken."""
    world = make(seed)
    world.plans[:] = [list(plan) for plan in plans]
    world.off = off
    story = world.hazards = _Story(world)
    try:
        world.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is wrong.
        return Broken(plans, off, f"{type(error).__name__}: {error}", story.events)
    return None


def _smaller(one: Broken) -> Iterator[tuple[Plans, frozenset[str]]]:
    """Return an iterator over worlds with one fault or some messages less, large steps first."""
    for fault in FAULTS:
        if fault not in one.off:
            yield one.plans, one.off | {fault}
    size = max(map(len, one.plans))
    while size:
        for number, plan in enumerate(one.plans):
            for first in range(0, len(plan), size):
                fewer = plan[:first] + plan[first + size :]
                yield (*one.plans[:number], fewer, *one.plans[number + 1 :]), one.off
        size //= 2


def described(one: Broken) -> str:
    """Return a broken world as a story."""
    lines = [f"broken: {one.error}", "", "messages:"]
    for number, plan in enumerate(one.plans):
        for message in plan:
            value: Any = message.value()
            shown = "no value" if value is None else value[:_MAX_SHOWN].decode("utf-8", "replace")
            lines.append(f"  partition {number} {message.timestamp()[1]} {shown}")
    lines += ["", f"faults left out: {', '.join(sorted(one.off)) or 'none'}", "", "what happened:"]
    lines += [f"  {seconds:8.2f} s  {what}" for seconds, what in one.story]
    return "\n".join(lines)


def main() -> int:
    """Shrink the world of a seed, and print its story; return 1 if the world is not broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.shrink")
    parser.add_argument("seed", type=int, help="a seed that `make simulate` reports as broken")
    with simulated() as make:
        found = shrink(make, parser.parse_args().seed)
    print("this world keeps its promise" if found is None else described(found))
    return found is None


if __name__ == "__main__":
    sys.exit(main())
