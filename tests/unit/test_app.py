"""How the service starts, continues and ends: what it waits for, replaces and logs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from confluent_kafka import KafkaError

from consumer import app
from consumer.kafka.administrator import Administrator, Cluster, TopicNamesAsIds
from consumer.kafka.assignment import Telemetry
from consumer.kafka.consume_loop import ConsumeLoop
from consumer.kafka.context import Context
from consumer.kafka.errors import (
    ClientsLostError,
    ClusterError,
    DeliveryError,
    FencedError,
    KafkaFailureError,
    NoBrokerError,
    Stopped,
    UnansweredError,
)
from consumer.settings.settings import Settings
from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import EventTotal
from consumer.telemetry.stop import Stop
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import pipeline
from tests.unit.kafka.fakes import Log, failure

CLUSTER = Cluster("id", describes_topics=True, record_limit=1, letter_limit=1, partitions={})
LOST = ClientsLostError("producer: lost")
UNANSWERED = UnansweredError("hangs")


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

    def is_reachable(self, _timeout: float) -> bool:
        return True


def _context(clock: ManualClock, log: Log | None = None) -> Context:
    return Context(Settings(), clock, log or Log(), Stop())


def _administrator(cluster: _Cluster) -> Administrator:
    return cast("Administrator", cluster)


# The start


def test_the_service_waits_for_a_late_broker_and_logs_that_once() -> None:
    clock, log = ManualClock(), Log()
    cluster = _administrator(_Cluster(clock, attempts=20))
    assert app._first_answer(cluster, _context(clock, log)) == CLUSTER
    [line] = log.of(LogEvent.KAFKA_ERROR)
    assert (line["level"], line["action"]) == ("warning", "waiting for a broker")


def test_the_service_gives_up_an_absent_broker_after_a_minute() -> None:
    clock, log = ManualClock(), Log()
    began = clock.monotonic()
    with pytest.raises(NoBrokerError):
        app._first_answer(_administrator(_Cluster(clock, attempts=1_000)), _context(clock, log))
    assert 60 <= clock.monotonic() - began < 65


def test_a_stop_ends_the_waiting() -> None:
    context = _context(ManualClock())
    cluster = _Cluster(ManualClock(), attempts=1_000)
    context.stop.request("SIGTERM")
    with pytest.raises(Stopped):
        app._first_answer(_administrator(cluster), context)
    assert cluster.attempts == 1_000


# Clients that are replaced


def _service(settings: Settings, administrator: Administrator, cluster: Cluster) -> app.Service:
    context = Context(settings, ManualClock(), Log(), Stop())
    health = Health(context.stop, settings.shutdown_timeout, context.clock, context.log)
    return app.Service(context, pipeline(), administrator, cluster, health, Metrics())


class _Loop:
    def __init__(self, end: BaseException | None, *, delivered: bool, started: bool = True) -> None:
        self.has_joined, self.has_delivered = started, delivered
        self._end = end

    def run(self) -> None:
        if self._end is not None:
            raise self._end


class Runs:
    """A service whose clients are lost as often as the test wants.

    Args:
        ends: what each service ends with, one after the other, and whether it has delivered.
        takes: seconds that each of them runs.
        started: whether they get as far as to ask for partitions.
        away: how often in a row no broker answers after clients are lost.

    """

    def __init__(
        self,
        *ends: tuple[BaseException | None, bool],
        takes: float = 0.0,
        started: bool = True,
        away: int = 0,
    ) -> None:
        self.clock, self.log, self.stop = ManualClock(), Log(), Stop()
        self.starts: list[float] = []
        self._ends = ends
        self._takes = takes
        self._started = started
        self._away = away
        self.service = app.Service(
            Context(Settings(), self.clock, self.log, self.stop),
            pipeline(),
            cast("Administrator", self),
            CLUSTER,
            Health(self.stop, 20.0, self.clock, self.log),
            Metrics(),
        )
        self.service._make_loop = self._made  # type: ignore[method-assign]
        self.service._telemetry.metrics.count(EventTotal.REREAD_MESSAGES, 7)

    def is_reachable(self, timeout: float) -> bool:
        self.clock.advance(timeout)
        self._away -= 1
        return self._away < 0

    def _made(self) -> ConsumeLoop:
        number = len(self.starts)
        self.starts.append(self.clock.monotonic())
        self.clock.advance(self._takes)
        end, delivered = self._ends[min(number, len(self._ends) - 1)]
        return cast("ConsumeLoop", _Loop(end, delivered=delivered, started=self._started))

    @property
    def pauses(self) -> list[float]:
        return [after - before for before, after in zip(self.starts, self.starts[1:], strict=False)]


def test_lost_clients_are_replaced_and_this_is_logged() -> None:
    runs = Runs((LOST, False), (None, False))
    assert runs.service.run() == 0
    assert len(runs.starts) == 2
    [line] = runs.log.of(LogEvent.CLIENTS_REBUILT)
    assert line == line | {"level": "error", "error": "producer: lost", "consecutive_failures": 1}


@pytest.mark.parametrize(
    ("ends", "starts", "code"),
    [
        pytest.param([(LOST, False)], 6, 1, id="the operator has to see that it gets nowhere"),
        pytest.param(
            [*[(LOST, True)] * 100, (None, True)],
            101,
            0,
            id="failures of the network between deliveries do not add up",
        ),
        pytest.param(
            [*[(LOST, False)] * 5, (LOST, True), *[(LOST, False)] * 4, (None, False)],
            11,
            0,
            id="a delivery begins the count again",
        ),
        pytest.param(
            [*[(UNANSWERED, False)] * 100, (None, True)],
            101,
            0,
            id="an outage of a part of the cluster may last longer than one would count to",
        ),
    ],
)
def test_only_consecutive_losses_without_a_delivery_end_the_service(
    ends: list[tuple[BaseException | None, bool]], starts: int, code: int
) -> None:
    runs = Runs(*ends, takes=20)
    assert runs.service.run() == code
    assert len(runs.starts) == starts
    [line] = runs.log.of(LogEvent.SERVICE_STOPPED)
    assert line["error"] == ("producer: lost" if code else None)
    rebuilt = {line["consecutive_failures"] for line in runs.log.of(LogEvent.CLIENTS_REBUILT)}
    assert rebuilt == (set(range(1, 6)) if (LOST, False) in ends else {1})


def test_each_loss_makes_the_pause_before_new_clients_longer() -> None:
    runs = Runs((LOST, False))
    runs.service.run()
    assert runs.pauses == pytest.approx([3, 5, 9, 17, 31], abs=0.2)  # With a second per answer.


def test_a_first_start_that_finds_no_coordinator_is_given_up_after_a_minute() -> None:
    """The settings of the brokers may be wrong: it would never find one."""
    runs = Runs((UNANSWERED, False), takes=20, started=False)
    began = runs.clock.monotonic()
    assert runs.service.run() == 1
    assert 60 <= runs.clock.monotonic() - began < 80
    [line] = runs.log.of(LogEvent.SERVICE_STOPPED)
    assert line["error"].startswith("no transaction coordinator answers (hangs): check")
    assert line["error"].endswith("set delivery to at_least_once")


def test_new_clients_are_made_when_a_broker_answers_and_not_before() -> None:
    """They would hang, or not find their coordinator, when it comes back."""
    runs = Runs((LOST, True), (None, False), away=600)
    assert runs.service.run() == 0
    [pause] = runs.pauses
    assert 600 < pause < 700
    lines = runs.log.of(LogEvent.KAFKA_ERROR)
    assert {line["action"] for line in lines} == {"waiting for a broker"}
    assert len(lines) == pytest.approx(pause / 30, abs=2), "logged now and then"


def test_a_stop_ends_the_waiting_for_a_broker() -> None:
    runs = Runs((LOST, True), away=1_000)
    is_reachable = runs.is_reachable

    def stop_soon(timeout: float) -> bool:
        runs.stop.request("SIGTERM")
        return is_reachable(timeout)

    runs.service._guard._is_reachable = stop_soon
    assert runs.service.run() == 0
    assert len(runs.starts) == 1


def test_a_stop_while_it_waits_makes_no_new_clients() -> None:
    runs = Runs((LOST, False))
    began = runs.clock.monotonic()
    sleep = runs.clock.sleep

    def stop_soon(seconds: float) -> None:
        sleep(seconds)
        runs.stop.request("SIGTERM")

    runs.clock.sleep = stop_soon  # type: ignore[method-assign]
    assert runs.service.run() == 0
    assert runs.clock.monotonic() - began == pytest.approx(0.1)
    assert len(runs.starts) == 1


def test_totals_and_the_limits_of_lines_outlive_the_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Outcomes are counted once for the whole process, whatever becomes of its clients."""
    given: list[Telemetry] = []

    def made(_context: object, _clients: object, telemetry: Telemetry, *_: object) -> _Loop:
        given.append(telemetry)
        return _Loop(LOST if len(given) == 1 else None, delivered=False)

    monkeypatch.setattr(app, "ConsumeLoop", made)
    monkeypatch.setattr(app, "_STEP_S", 10)
    settings = Settings(bootstrap_servers="127.0.0.1:1", delivery="at_least_once")
    service = _service(settings, _administrator(_Cluster(ManualClock(), 0)), CLUSTER)
    assert service.run() == 0
    assert given[0] is given[1]


@pytest.mark.parametrize("answers", [True, False])
def test_where_the_cluster_does_not_tell_topic_ids_names_stand_for_them(*, answers: bool) -> None:
    administrator = _administrator(_Cluster(ManualClock(), 0))
    cluster = Cluster("id", answers, record_limit=1, letter_limit=1, partitions={})
    service = _service(Settings(), administrator, cluster)
    assert (service._topic_ids is administrator) is answers
    assert isinstance(service._topic_ids, TopicNamesAsIds) is not answers


# The end


@pytest.mark.parametrize(
    ("error", "code", "logged"),
    [
        (None, 0, None),
        (ClusterError("of a newer version"), 2, "of a newer version"),
        (DeliveryError("topic 'x': refused"), 1, "topic 'x': refused"),
        (FencedError("another process"), 1, "another process"),
        (KafkaFailureError("forbidden"), 1, "forbidden"),
        (failure(KafkaError.GROUP_AUTHORIZATION_FAILED), 1, "as the test says"),
        (ZeroDivisionError("a bug"), 1, "ZeroDivisionError"),
    ],
)
def test_the_last_line_says_why_and_what_was_done(
    error: Exception | None, code: int, logged: str | None
) -> None:
    runs = Runs((error, False))
    assert runs.service.run() == code
    assert len(runs.starts) == 1, "nothing but lost clients is tried again"
    [line] = runs.log.of(LogEvent.SERVICE_STOPPED)
    assert line["level"] == ("error" if code else "info")
    assert (line["code"], line["totals"]) == (code, {"reread_messages": 7})
    assert (logged or "") in (line["error"] or "")


def test_a_service_that_finds_no_broker_ends_as_one_that_may_be_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, log = ManualClock(), Log()
    monkeypatch.setattr(app, "Administrator", lambda _settings: _Cluster(clock, 1_000))
    monkeypatch.setattr(app, "get_logger", lambda: log)
    monkeypatch.setattr(Stop, "handle_signals", lambda _stop: None)
    settings = Settings(bootstrap_servers="127.0.0.1:1", topics=("t",), http_address="off")
    assert app.run(settings, clock) == 1
    [line] = log.of(LogEvent.SERVICE_STOPPED)
    assert line["error"] == "no broker of 'b' answers"


def test_the_watchdog_ends_before_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the watchdog says would come after the line that says why the service has stopped."""
    ended: list[str] = []

    @contextmanager
    def ends(name: str) -> Iterator[None]:
        yield
        ended.append(name)

    monkeypatch.setattr(app, "serving", lambda *_: ends("server"))
    monkeypatch.setattr(Health, "watchdog", lambda _: ends("watchdog"))
    monkeypatch.setattr(app, "_serve", lambda *_: 0)
    monkeypatch.setattr(Stop, "handle_signals", lambda _stop: None)
    assert app.run(Settings(bootstrap_servers="127.0.0.1:1", topics=("t",))) == 0
    assert ended == ["watchdog", "server"]
