"""How the service starts and ends: who is waited for, which exit code, what is said."""

import os
import signal
from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import KafkaError

from consumer import service
from consumer.clients import Administrator, Cluster, ClusterError, NoBrokerError
from consumer.committer import DeliveryError
from consumer.logs import Event
from consumer.runtime import KafkaFailureError, Service
from tests.kafka_fakes import Log, failure
from tests.manual_clock import ManualClock

CLUSTER = Cluster("id", answers_admin=True, record_limit=1, letter_limit=1)


@pytest.fixture
def stop() -> Iterator[service._Stop]:
    """Return the handler of signals, and put back what was there before."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield service._Stop()
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class _Cluster:
    """Answers after so many attempts, each of which takes its time."""

    def __init__(self, clock: ManualClock, attempts: int) -> None:
        self.attempts = attempts
        self._clock = clock

    def inspect(self, timeout: float) -> Cluster:
        self._clock.advance(timeout)
        self.attempts -= 1
        if self.attempts >= 0:
            raise NoBrokerError("no broker of 'b' answers")
        return CLUSTER


def _administrator(cluster: _Cluster) -> Administrator:
    return cast("Administrator", cluster)


# The start


def test_a_broker_that_comes_late_is_waited_for_and_this_is_said_once(stop: service._Stop) -> None:
    clock, log = ManualClock(), Log()
    cluster = _administrator(_Cluster(clock, attempts=20))
    assert service._reached(cluster, stop, clock, log) == CLUSTER
    [line] = log.of(Event.KAFKA_ERROR)
    assert (line["level"], line["follows"]) == ("warning", "waiting for a broker")


def test_a_broker_that_does_not_come_is_given_up_after_a_minute(stop: service._Stop) -> None:
    clock, log = ManualClock(), Log()
    begun = clock.monotonic()
    with pytest.raises(NoBrokerError):
        service._reached(_administrator(_Cluster(clock, attempts=1_000)), stop, clock, log)
    assert 60 <= clock.monotonic() - begun < 65


def test_a_signal_ends_the_waiting(stop: service._Stop) -> None:
    clock, log = ManualClock(), Log()
    cluster = _Cluster(clock, attempts=1_000)
    os.kill(os.getpid(), signal.SIGTERM)
    assert service._reached(_administrator(cluster), stop, clock, log) is None
    assert cluster.attempts == 1_000


def test_a_signal_that_comes_before_the_service_is_there_is_not_forgotten(
    stop: service._Stop,
) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    reasons: list[str] = []
    stop.on_request(reasons.append)
    assert reasons == ["SIGINT"]


def test_a_second_signal_does_what_signals_do(stop: service._Stop) -> None:
    reasons: list[str] = []
    stop.on_request(reasons.append)
    os.kill(os.getpid(), signal.SIGTERM)
    assert reasons == ["SIGTERM"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# The end


class _Service:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def run(self) -> None:
        if self._error is not None:
            raise self._error

    def totals(self) -> dict[str, int]:
        return {"message accepted": 7}


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, None),
        (ClusterError("of a newer version"), 2, "of a newer version"),
        (DeliveryError("topic 'x': refused"), 1, "topic 'x': refused"),
        (KafkaFailureError("fenced"), 1, "fenced"),
        (failure(KafkaError.GROUP_AUTHORIZATION_FAILED), 1, "as the test says"),
        (ZeroDivisionError("a bug"), 1, "ZeroDivisionError"),
    ],
)
def test_the_last_line_says_why_and_what_was_done(
    error: Exception | None, code: int, said: str | None
) -> None:
    log = Log()
    assert service._run(cast("Service", _Service(error)), log) == code
    [line] = log.of(Event.SERVICE_STOPPED)
    assert line["level"] == ("error" if code else "info")
    assert (line["code"], line["totals"]) == (code, {"message accepted": 7})
    assert (said or "") in (line["error"] or "")
