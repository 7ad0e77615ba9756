"""A stop is asked for once in good order, and the second time as signals do."""

import os
import signal
from collections.abc import Iterator

import pytest

from consumer.telemetry.stop import Stop

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def stop() -> Iterator[Stop]:
    """Return one that listens, and put back what was there before."""
    before = [signal.getsignal(number) for number in NUMBERS]
    stop = Stop()
    stop.listen()
    yield stop
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)


def test_nobody_has_asked_for_it_at_first(stop: Stop) -> None:
    assert (stop.requested, stop.reason) == (False, None)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_asks_for_it_and_is_its_reason(stop: Stop, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    assert (stop.requested, stop.reason) == (True, number.name)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_second_signal_does_what_signals_do(stop: Stop, number: signal.Signals) -> None:
    """A person who presses Ctrl-C again does not want to wait."""
    assert signal.getsignal(number) != signal.SIG_DFL
    os.kill(os.getpid(), number)
    assert stop.requested
    assert signal.getsignal(number) is signal.SIG_DFL


def test_it_can_be_asked_for_without_a_signal() -> None:
    stop = Stop()
    stop.request("the demo is over")
    assert (stop.requested, stop.reason) == (True, "the demo is over")
