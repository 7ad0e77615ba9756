"""A first signal requests a stop, a second one has its default effect."""

import os
import signal
from collections.abc import Iterator

import pytest

from consumer.telemetry.stop import Stop

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def stop() -> Iterator[Stop]:
    """Handle signals, and restore the handlers afterwards."""
    before = [signal.getsignal(number) for number in NUMBERS]
    stop = Stop()
    stop.handle_signals()
    yield stop
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)


def test_at_first_no_stop_is_requested(stop: Stop) -> None:
    assert (stop.requested, stop.reason) == (False, None)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_requests_a_stop_and_is_its_reason(stop: Stop, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    assert (stop.requested, stop.reason) == (True, number.name)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_second_signal_has_its_default_effect(stop: Stop, number: signal.Signals) -> None:
    """A user who presses Ctrl-C again does not want to wait."""
    assert signal.getsignal(number) != signal.SIG_DFL
    os.kill(os.getpid(), number)
    assert stop.requested
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_stop_can_be_requested_without_a_signal() -> None:
    stop = Stop()
    stop.request("the demo is over")
    assert (stop.requested, stop.reason) == (True, "the demo is over")
