"""Wrong clocks: which healthy streams does a rule of stream time close, and how late is it?

A model of one partition: streams that go on, streams that end without an end marker, and runs of
messages whose timestamps are wrong. It holds the rule of the service beside the rules tried before
it: `make clocks`.
"""

import argparse
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final, Protocol

from msgspec import Struct

from consumer.core.message import TIMESTAMP_CREATE_TIME
from consumer.core.stream_time import BlockState, StreamTime
from tests.simulation.clock_rules import REJECTED

IDLE_MS: Final = 120_000
MESSAGES: Final = 6_000
_BEGIN_MS: Final = 1_767_225_600_000
_YEAR_MS: Final = 365 * 86_400_000
_RATES: Final = (0.05, 0.2, 0.5, 1.0, 5.0, 50.0, 1_000.0)  # Messages a second.
_ERRORS_MS: Final = (100_000, 480_000, 3_000_000, 86_400_000, _YEAR_MS, 31 * _YEAR_MS)
_KINDS: Final = ("steady", "ramp", "scattered", "several producers")
_OUTAGES_MS: Final = (0, 0, 3_600_000)
_MAX_OPEN: Final = 1_500


class Rule(Protocol):
    """A rule of stream time."""

    @property
    def now(self) -> int | None:
        """Return stream time in milliseconds; None while it is not known."""

    def observe(self, offset: int, timestamp: int) -> bool:
        """Add the timestamp of a message; return whether a block ended before it."""

    def mark(self) -> Callable[[], int | None]:
        """Return what gives the stream time of the message observed last, None as yet."""


class OwnRule:
    """The rule of the service."""

    def __init__(self) -> None:
        self._time = StreamTime(BlockState(0))

    @property
    def now(self) -> int:
        """Return stream time in milliseconds."""
        return self._time.now

    def observe(self, offset: int, timestamp: int) -> bool:
        """Add the timestamp of a message; return whether a block ended before it."""
        return self._time.observe(offset, (TIMESTAMP_CREATE_TIME, timestamp))

    def mark(self) -> Callable[[], int | None]:
        """Return what gives the stream time of the message observed last, None as yet."""
        block = self._time.start
        return lambda: block.until


class Log(Struct):
    """A log, and the truth about it.

    Attributes:
        true: when each message was really written, in milliseconds since 1970.
        stamps: the timestamps that its producers gave.
        streams: of each message, the stream that it belongs to.

    """

    true: list[int]
    stamps: list[int]
    streams: list[int]


class Found(Struct):
    """What a rule does to a log.

    Attributes:
        closed: how many streams it closes although they go on before they are idle for too long.
        streams: how many streams there are.
        late: the most messages that pass before it closes a stream that is idle for too long.

    """

    closed: int
    streams: int
    late: int


def log_with_burst(seed: int, longest: int) -> Log:
    """Return a log in which a run of messages, of a random length up to this, is wrong."""
    random = Random(seed)
    rate = random.choice(_RATES)
    true = _true_times(random, rate, random.choice(_OUTAGES_MS))
    stamps = [at + random.randrange(-500, 500) for at in true]
    length = random.choice((random.randint(1, longest), longest)) if longest else 0
    begin = random.choice((0, random.randrange(MESSAGES - length)))
    error_ms = random.choice(_ERRORS_MS) * random.choice((1, -1))
    kind = random.choice(_KINDS)
    for number in range(length):
        stamps[begin + number] += {
            "steady": error_ms,
            "ramp": error_ms * (number + 1) // length,
            "scattered": int(error_ms * random.random()),
            "several producers": random.choice((error_ms, error_ms // 3, -error_ms // 2)),
        }[kind]
    return Log(true, stamps, _streams(random, true, rate))


def log_with_share(seed: int, share: float) -> Log:
    """Return a log in which this share of the producers, chosen by message, is wrong for ever."""
    random = Random(seed)
    rate = random.choice(_RATES)
    true = _true_times(random, rate, random.choice(_OUTAGES_MS))
    error_ms = random.choice(_ERRORS_MS) * random.choice((1, -1))
    stamps = [at + error_ms * (random.random() < share) for at in true]
    return Log(true, stamps, _streams(random, true, rate))


def _true_times(random: Random, rate: float, outage_ms: int) -> list[int]:
    times, at = [], float(_BEGIN_MS)
    for number in range(MESSAGES):
        at += random.expovariate(rate) * 1000 + outage_ms * (number == MESSAGES // 2)
        times.append(int(at))
    return times


def _streams(random: Random, true: list[int], rate: float) -> list[int]:
    """Give each message a stream; streams pause for up to nine tenths of the timeout."""
    most = min(_MAX_OPEN, max(3, int(rate * IDLE_MS / 1000 * random.choice((0.1, 0.4)))))
    last: dict[int, int] = {}
    streams: list[int] = []
    count = 0
    for at in true:
        oldest = next(iter(last), None)
        if oldest is not None and at - last[oldest] > 0.9 * IDLE_MS:
            del last[oldest]  # It has ended, without an end marker.
            oldest = next(iter(last), None)
        if oldest is not None and (at - last[oldest] > 0.5 * IDLE_MS or len(last) >= most):
            stream = oldest if random.random() < 0.9 else random.choice(list(last))
        else:
            stream, count = count, count + 1
        last.pop(stream, None)
        last[stream] = at
        if random.random() < 0.01:
            del last[random.choice(list(last))]
        streams.append(stream)
    return streams


def check(rule: Rule, log: Log) -> Found:
    """Let a rule decide which streams are idle, and hold it against the truth."""
    messages_of: dict[int, list[int]] = {}
    for number, stream in enumerate(log.streams):
        messages_of.setdefault(stream, []).append(number)
    marks: dict[int, tuple[int, Callable[[], int | None]]] = {}
    closed: set[int] = set()
    late = 0
    for number, (stamp, stream) in enumerate(zip(log.stamps, log.streams, strict=True)):
        if rule.observe(number, stamp) and (now := rule.now) is not None:
            for one, (last, mark) in list(marks.items()):
                time = mark()
                if time is None or now - time <= IDLE_MS:
                    continue
                del marks[one]
                due = bisect_right(log.true, log.true[last] + IDLE_MS)
                late = max(late, number - due)
                rest = messages_of[one]
                following = rest[bisect_right(rest, last) :]
                if following and following[0] < due:
                    closed.add(one)
        marks[stream] = number, rule.mark()
    for last, _ in marks.values():
        late = max(late, len(log.true) - bisect_right(log.true, log.true[last] + IDLE_MS))
    return Found(len(closed), len(messages_of), late)


def main() -> None:
    """Print what each rule does to many logs of each kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.clocks")
    parser.add_argument("--logs", type=int, default=300, help="how many of each kind")
    logs = parser.parse_args().logs
    kinds: Mapping[str, Callable[[int], Log]] = {
        f"a burst of up to {longest:,} messages": partial(log_with_burst, longest=longest)
        for longest in (0, 20, 70, 256, 1_000, 3_000)
    } | {
        f"{share:.0%} of the messages": partial(log_with_share, share=share)
        for share in (0.1, 0.25, 0.4, 0.5, 0.6)
    }
    rules: tuple[Callable[[], Rule], ...] = (OwnRule, *REJECTED)
    print(f"{logs} logs of {MESSAGES:,} messages each\n")
    print("| wrong | rule | logs with closed streams | streams closed | latest, messages |")
    print("| --- | --- | --- | --- | --- |")
    for name, make in kinds.items():
        made = [make(seed) for seed in range(logs)]
        for rule in rules:
            found = [check(rule(), log) for log in made]
            sums: Counter[str] = Counter()
            for one in found:
                sums["logs"] += one.closed > 0
                sums["closed"] += one.closed
                sums["streams"] += one.streams
            late = max(one.late for one in found)
            of_all = f"{sums['closed']:,} of {sums['streams']:,}"
            title = getattr(rule, "__name__", "")
            print(f"| {name} | {title} | {sums['logs']} | {of_all} | {late:,} |")


if __name__ == "__main__":
    main()
