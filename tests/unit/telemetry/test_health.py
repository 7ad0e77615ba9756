"""What probes are told, by what the loop says and does not say."""

import threading
import time
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.stop import Stop
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import Log

SHUTDOWN_TIMEOUT_S = 20.0


class Probed:
    """A process without a service, which says what the test wants."""

    def __init__(self) -> None:
        self.clock, self.log, self.stop = ManualClock(), Log(), Stop()
        self.health = Health(self.stop, SHUTDOWN_TIMEOUT_S, self.clock, self.log)

    def brokers(self, *brokers: tuple[str, float]) -> None:
        """Tell the state of connections, and how many seconds ago each was answered."""
        self.health.statistics(
            msgspec.json.encode(
                {
                    "name": "rdkafka#consumer-1",
                    "brokers": {
                        f"b:{number}/1": {"state": state, "rxidle": round(idle * 1e6), "tx": 7}
                        for number, (state, idle) in enumerate(brokers)
                    },
                }
            ).decode()
        )


def _ready() -> Probed:
    probed = Probed()
    probed.brokers(("UP", 0))
    probed.health.placed(member=True, partitions=2)
    assert probed.health.reasons() == []
    return probed


# Alive


def _turn(probed: Probed, seconds: int) -> None:
    for _ in range(seconds):
        assert not probed.stop.requested
        probed.health.sample()


def _hang(probed: Probed, seconds: int) -> None:
    for _ in range(seconds):
        probed.health.sample()


def test_who_looks_whether_it_is_to_stop_is_alive_though_no_broker_answers() -> None:
    probed = Probed()
    _turn(probed, 1_000)
    assert probed.health.alive
    assert probed.log.lines == []
    assert probed.health.reasons() != []


def test_a_loop_may_wait_for_a_commit_as_long_as_a_stop_may_take() -> None:
    probed = Probed()
    _turn(probed, 1)
    _hang(probed, round(SHUTDOWN_TIMEOUT_S) + 59)
    assert probed.health.alive
    _hang(probed, 1)
    assert not probed.health.alive


def test_a_loop_that_hangs_is_told_once_with_the_place_and_no_payload() -> None:
    probed = Probed()
    made, over = threading.Event(), threading.Event()

    def hang_here(secret: str) -> str:
        probed.health = Health(probed.stop, SHUTDOWN_TIMEOUT_S, probed.clock, probed.log)
        made.set()
        over.wait()
        return secret

    thread = threading.Thread(target=hang_here, args=("canary-1f",))
    thread.start()
    made.wait()
    _hang(probed, 1_000)
    [line] = probed.log.lines
    over.set()
    thread.join()
    assert (line["level"], line["event"], line["seconds"]) == ("error", LogEvent.LOOP_STALLED, 80.0)
    assert any("test_health.py" in frame and "hang_here" in frame for frame in line["stack"])
    assert "canary" not in str(line)


def test_a_loop_that_turns_again_is_told_and_may_hang_again() -> None:
    probed = Probed()
    for _ in range(2):
        _hang(probed, 100)
        _turn(probed, 1)
    assert [line["event"] for line in probed.log.lines] == [
        LogEvent.LOOP_STALLED,
        LogEvent.LOOP_RESUMED,
    ] * 2
    assert probed.health.alive


def test_a_process_that_was_stopped_as_a_whole_has_not_hung() -> None:
    probed = Probed()
    _turn(probed, 1)
    probed.clock.advance(10_000)
    _hang(probed, 1)
    assert probed.health.alive
    assert probed.log.lines == []


def test_the_watchdog_looks_by_itself_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.telemetry.health._SAMPLE_S", 0.01)
    monkeypatch.setattr("consumer.telemetry.health._MAX_WAIT_S", 0.1)
    log = Log()
    with Health(Stop(), 0.0, ManualClock(), log).watched():
        for _ in range(500):
            if log.lines:
                break
            time.sleep(0.01)
    assert [line["event"] for line in log.lines] == [LogEvent.LOOP_STALLED]


# Ready


def test_a_process_is_ready_when_its_partitions_are_live_and_a_broker_answers() -> None:
    probed = Probed()
    assert probed.health.reasons() == [
        "not a member of the group yet, or no more",
        "no broker has answered yet",
    ]
    probed.brokers(("UP", 0.1), ("DOWN", -1e-6))
    probed.health.placed(member=True)
    assert probed.health.reasons() == ["the group has given no partitions yet"]
    probed.health.placed(member=True, partitions=3, rereading=2)
    assert probed.health.reasons() == ["2 of 3 partitions are read again"]
    probed.health.placed(member=True, partitions=3)
    assert probed.health.reasons() == []


def test_who_was_ready_once_stays_so_while_more_partitions_are_read_again() -> None:
    probed = _ready()
    probed.health.placed(member=True, partitions=3, rereading=3)
    assert probed.health.reasons() == []
    probed.health.placed(member=True)
    assert probed.health.reasons() == []


def test_a_standby_is_ready_once_the_group_has_had_the_time_to_give_it_partitions() -> None:
    probed = Probed()
    for _ in range(30):
        probed.brokers(("UP", 3))
        probed.health.placed(member=True)
        assert probed.health.reasons() == ["the group has given no partitions yet"]
        probed.clock.advance(1)
    probed.health.placed(member=True)
    assert probed.health.reasons() == []


def test_a_member_that_was_expelled_is_not_ready_until_it_has_joined_again() -> None:
    probed = _ready()
    probed.health.placed(member=False)
    assert probed.health.reasons() == ["not a member of the group yet, or no more"]
    probed.health.placed(member=True, partitions=1, rereading=1)
    assert probed.health.reasons() == []


def test_brokers_that_are_gone_and_come_back() -> None:
    probed = _ready()
    probed.brokers(("DOWN", 1), ("TRY_CONNECT", -1e-6))
    assert probed.health.reasons() == ["no broker is connected"]
    probed.brokers(("DOWN", 1), ("UP", 0.2))
    assert probed.health.reasons() == []


def test_brokers_that_are_connected_and_do_not_answer() -> None:
    probed = _ready()
    probed.clock.advance(30)
    probed.brokers(("UP", 19))
    assert probed.health.reasons() == []
    probed.brokers(("UP", 20))
    assert probed.health.reasons() == ["no broker has answered for 20 s"]


@pytest.mark.parametrize("text", ["", "[]", '{"name":"a"b"}', '{"brokers":{"b":{"state":7}}}'])
def test_statistics_of_another_shape_end_no_poll(text: str) -> None:
    probed = _ready()
    probed.health.statistics(text)
    assert probed.health.reasons() == []


def test_a_client_that_says_nothing_of_its_brokers_any_more() -> None:
    probed = _ready()
    probed.clock.advance(20)
    assert probed.health.reasons() == ["no broker has answered for 20 s"]


def test_a_loop_that_lags_is_not_ready_before_it_counts_as_hanging() -> None:
    probed = _ready()
    _turn(probed, 1)
    _hang(probed, 30)
    assert probed.health.alive
    assert probed.health.reasons() == ["the loop has not turned for 30 s"]
    _turn(probed, 1)
    assert probed.health.reasons() == []


def test_who_is_told_to_stop_is_not_ready() -> None:
    probed = _ready()
    probed.stop.request("SIGTERM")
    assert probed.health.reasons() == ["stopping: SIGTERM"]


def test_metrics_tell_the_same() -> None:
    def value(name: str) -> Any:
        return registry.get_sample_value(name)

    probed, registry = _ready(), CollectorRegistry()
    probed.health.register(registry)
    assert value("acceptance_ready") == 1
    _hang(probed, 12)
    assert value("acceptance_loop_last_turn_age_seconds") == 12
    probed.stop.request("SIGTERM")
    assert value("acceptance_ready") == 0
