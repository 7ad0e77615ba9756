"""Answers to probes, from the reports of the loop and its consumer."""

import threading
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from consumer.telemetry.client_statistics import BrokerStatistics, ClientStatistics
from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.stop import Stop
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import Log

SHUTDOWN_TIMEOUT_S = 20.0


class Process:
    """A process without a service, which reports what the test wants."""

    def __init__(self) -> None:
        self.clock, self.log, self.stop = ManualClock(), Log(), Stop()
        self.health = Health(self.stop, SHUTDOWN_TIMEOUT_S, self.clock, self.log)

    def brokers(self, *brokers: tuple[str, float]) -> None:
        """Report the state of connections, and how many seconds ago each was answered."""
        self.health.add_statistics(
            ClientStatistics(
                "consumer",
                brokers={
                    f"b:{number}/1": BrokerStatistics(state=state, rxidle=round(idle_s * 1e6))
                    for number, (state, idle_s) in enumerate(brokers)
                },
            )
        )

    def turn(self, seconds: int) -> None:
        for _ in range(seconds):
            assert not self.stop.requested
            self.health.sample()

    def hang(self, seconds: int) -> None:
        for _ in range(seconds):
            self.health.sample()

    @property
    def events(self) -> list[Any]:
        return [line["event"] for line in self.log.lines]


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def ready(process: Process) -> Process:
    process.brokers(("UP", 0))
    process.health.set_membership(member=True, partitions=2)
    assert process.health.reasons() == []
    return process


# Alive


def test_a_loop_that_checks_for_a_stop_is_alive_without_a_broker(process: Process) -> None:
    process.turn(1_000)
    assert process.health.alive
    assert process.log.lines == []
    assert process.health.reasons() != []


def test_a_loop_may_wait_for_a_commit_as_long_as_a_stop_may_take(process: Process) -> None:
    process.turn(1)
    process.hang(round(SHUTDOWN_TIMEOUT_S) + 59)
    assert process.health.alive
    process.hang(1)
    assert not process.health.alive


def test_a_loop_that_hangs_is_logged_once_with_its_stack_and_no_payload(process: Process) -> None:
    made, over = threading.Event(), threading.Event()

    def hang_here(secret: str) -> str:
        process.health = Health(process.stop, SHUTDOWN_TIMEOUT_S, process.clock, process.log)
        made.set()
        over.wait()
        return secret

    thread = threading.Thread(target=hang_here, args=("canary-1f",))
    thread.start()
    made.wait()
    process.hang(1_000)
    [line] = process.log.lines
    over.set()
    thread.join()
    assert (line["level"], line["event"], line["seconds"]) == ("error", LogEvent.LOOP_STALLED, 80.0)
    assert any("test_health.py" in frame and "hang_here" in frame for frame in line["stack"])
    assert "canary" not in str(line)


def test_a_loop_may_resume_and_hang_again(process: Process) -> None:
    for _ in range(2):
        process.hang(100)
        process.turn(1)
    assert process.events == [LogEvent.LOOP_STALLED, LogEvent.LOOP_RESUMED] * 2
    assert process.health.alive


def test_a_process_that_was_suspended_has_not_hung(process: Process) -> None:
    process.turn(1)
    process.clock.advance(10_000)
    process.hang(1)
    assert process.health.alive
    assert process.log.lines == []


def test_the_watchdog_samples_by_itself_and_ends(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.telemetry.health._SAMPLE_S", 0.01)
    monkeypatch.setattr("consumer.telemetry.health._MAX_WAIT_S", 0.1)
    with Health(Stop(), 0.0, ManualClock(), process.log).watchdog():
        for _ in range(500):
            if process.log.lines:
                break
            time.sleep(0.01)
    assert process.events == [LogEvent.LOOP_STALLED]


# Ready


def test_a_process_is_ready_when_its_partitions_are_live_and_a_broker_answers(
    process: Process,
) -> None:
    assert process.health.reasons() == [
        "not a member of the consumer group",
        "no broker has answered yet",
    ]
    process.brokers(("UP", 0.1), ("DOWN", -1e-6))
    for membership, reasons in (
        ({}, ["no partitions are assigned yet"]),
        ({"partitions": 3, "rereading": 2}, ["re-reading 2 of 3 partitions"]),
        ({"partitions": 3}, []),
    ):
        process.health.set_membership(member=True, **membership)
        assert process.health.reasons() == reasons


def test_a_ready_process_stays_ready_while_it_rereads_more_partitions(ready: Process) -> None:
    for membership in ({"partitions": 3, "rereading": 3}, {}):
        ready.health.set_membership(member=True, **membership)
        assert ready.health.reasons() == []


def test_a_standby_is_ready_once_the_group_had_time_to_assign_partitions(process: Process) -> None:
    for _ in range(30):
        process.brokers(("UP", 3))
        process.health.set_membership(member=True)
        assert process.health.reasons() == ["no partitions are assigned yet"]
        process.clock.advance(1)
    process.health.set_membership(member=True)
    assert process.health.reasons() == []


def test_an_expelled_member_is_not_ready_until_it_has_joined_again(ready: Process) -> None:
    ready.health.set_membership(member=False)
    assert ready.health.reasons() == ["not a member of the consumer group"]
    ready.health.set_membership(member=True, partitions=1, rereading=1)
    assert ready.health.reasons() == []


def test_brokers_may_disconnect_and_return(ready: Process) -> None:
    ready.brokers(("DOWN", 1), ("TRY_CONNECT", -1e-6))
    assert ready.health.reasons() == ["no broker is connected"]
    ready.brokers(("DOWN", 1), ("UP", 0.2))
    assert ready.health.reasons() == []


def test_brokers_may_be_connected_without_an_answer(ready: Process) -> None:
    ready.clock.advance(30)
    ready.brokers(("UP", 19))
    assert ready.health.reasons() == []
    ready.brokers(("UP", 20))
    assert ready.health.reasons() == ["no broker has answered for 20 s"]


def test_a_client_may_stop_to_report_statistics(ready: Process) -> None:
    ready.clock.advance(20)
    assert ready.health.reasons() == ["no broker has answered for 20 s"]


def test_a_slow_loop_is_not_ready_before_it_counts_as_hanging(ready: Process) -> None:
    ready.turn(1)
    ready.hang(30)
    assert ready.health.alive
    assert ready.health.reasons() == ["the main loop has not responded for 30 s"]
    ready.turn(1)
    assert ready.health.reasons() == []


def test_a_stopping_process_is_not_ready_and_the_gauges_agree(ready: Process) -> None:
    def value(name: str) -> Any:
        return registry.get_sample_value(name)

    registry = CollectorRegistry()
    ready.health.register(registry)
    assert value("acceptance_ready") == 1
    ready.hang(12)
    assert value("acceptance_loop_last_turn_age_seconds") == 12
    ready.stop.request("SIGTERM")
    assert ready.health.reasons() == ["stopping: SIGTERM"]
    assert value("acceptance_ready") == 0
