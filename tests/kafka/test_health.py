"""Probes of a real service report its membership, its brokers and its loop."""

import json
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kafka.harness import SECONDS, Bench, Json, ServiceProcess, eventually, stream
from tests.kafka.server.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

_EVERY_S = 0.05
_ANYWHERE = {"http_address": "127.0.0.1:0"}
# Read again in fetches of one full batch of 10,000 messages at most, 0.6 s apart: in some six
# seconds, however fast the machine is, while brokers are known to answer after three.
_STRETCH = 100_000
_FETCHES = "fetch.message.max.bytes=90000,queued.min.messages=1,fetch.queue.backoff.ms=600"
_PROTOCOLS = [
    pytest.param({}, id="classic"),
    pytest.param({"kafka_group_protocol": "consumer"}, id="consumer"),
]


def _ask(service: ServiceProcess, path: str, timeout: float = 5.0) -> tuple[int, Json]:
    address = service.wait_for("http_server_started")["address"]
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def _metrics(service: ServiceProcess) -> dict[str, float]:
    """Return the samples without labels."""
    address = service.wait_for("http_server_started")["address"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5.0) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {one.name: one.value for family in families for one in family.samples if not one.labels}


def _while_it_rereads(service: ServiceProcess) -> dict[str, float] | None:
    samples = _metrics(service)
    return samples if samples["acceptance_rereading_partitions"] else None


def _send_long_stretch(bench: Bench) -> list[bytes]:
    """Send what a start reads again for long, and return what ends the request that is open."""
    first, *rest = stream("long")
    bench.send(first, "long", partition=0)
    for _ in range(_STRETCH):
        bench.send(None, partition=0)
    bench.flush()
    return rest


class Probe:
    """Asks for readiness and life all the time, and remembers each change."""

    def __init__(self, service: ServiceProcess) -> None:
        self.seen: list[tuple[float, list[str]]] = []  # When, and why it was not ready.
        self.not_alive = 0
        self._service = service
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                _, ready = _ask(self._service, "/readyz")
                self.not_alive += _ask(self._service, "/healthz")[0] != 200
            except (OSError, HTTPException, AssertionError):
                if self._service.process.poll() is not None:
                    return
                continue  # It is slow, or just ending.
            reasons = [re.sub(r" \d+ s$", "", one) for one in ready["reasons"]]
            assert ready["ready"] is not bool(reasons)
            if not self.seen or self.seen[-1][1] != reasons:
                self.seen.append((time.monotonic(), reasons))

    def changes(self, since: float = 0.0) -> list[list[str]]:
        return [reasons for at, reasons in self.seen if at >= since]

    @property
    def ready(self) -> bool:
        return bool(self.seen) and self.seen[-1][1] == []

    def wait_until(self, *, ready: bool, within: float) -> float:
        """Wait for a change, and return the seconds that it took."""
        began = time.monotonic()
        eventually(lambda: bool(self.seen) and self.ready is ready, f"ready={ready}", within)
        return time.monotonic() - began

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def own_kafka(kafka: KafkaCluster) -> Iterator[KafkaCluster]:  # noqa: ARG001 - it skips without Kafka.
    """Return a broker that no other test needs."""
    with KafkaCluster() as cluster:
        yield cluster


def test_ready_follows_the_broker_and_not_the_traffic(
    own_kafka: KafkaCluster, tmp_path: Path
) -> None:
    """An idle topic stays ready; a broker that is killed, frozen or back is noticed, and a stop."""
    bench = Bench(own_kafka, tmp_path, 2).create()
    may_leave = tmp_path / "may-leave"
    bench.meddle(_WAITS_TO_LEAVE.format(file=str(may_leave)))
    try:
        service = bench.start(**_ANYWHERE)
        probe = Probe(service)
        probe.wait_until(ready=True, within=30)
        service.wait_for("partitions_assigned")
        idle_since = time.monotonic()
        time.sleep(25)
        assert probe.changes(idle_since) == [], "nothing came, and nothing is wrong"

        own_kafka.kill_broker(0)
        took = probe.wait_until(ready=False, within=10)
        print(f"killed broker: not ready after {took:.1f} s")
        own_kafka.start_broker(0)
        took = probe.wait_until(ready=True, within=30)
        print(f"broker is back: ready after {took:.1f} s")

        broker = own_kafka._brokers[0].process
        assert broker is not None
        broker.send_signal(signal.SIGSTOP)
        took = probe.wait_until(ready=False, within=40)
        print(f"frozen broker: not ready after {took:.1f} s")
        broker.send_signal(signal.SIGCONT)
        took = probe.wait_until(ready=True, within=60)
        print(f"broker goes on: ready after {took:.1f} s")

        assert probe.not_alive == 0, "brokers have no part in that"
        service.process.send_signal(signal.SIGTERM)
        eventually(lambda: probe.changes()[-1] == ["stopping: SIGTERM"], "not ready: it stops")
        may_leave.touch()
        assert service.wait() == 0
        probe.end()
        assert service.lines("loop_stalled") == []
    finally:
        bench.dispose()


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_rebalance_keeps_ready_members_ready_and_a_standby_is_ready(
    make_bench: Callable[..., Bench], protocol: dict[str, str]
) -> None:
    bench = make_bench(partitions=2)
    bench.meddle("import consumer.telemetry.health; consumer.telemetry.health._STANDBY_S = 8.0")
    settings = _ANYWHERE | protocol
    probes = []
    for number in range(3):
        probes.append(Probe(bench.start(**settings)))
        probes[-1].wait_until(ready=True, within=30)
        bench.send_whole(f"r{number}")
        time.sleep(2)
    eventually(
        lambda: sum(bool(one.lines("partitions_assigned")) for one in bench.services) >= 2,
        "two that have partitions",
    )
    for probe in probes:
        probe.end()
        changes = probe.changes()
        assert changes.count([]) == 1, changes
        assert changes[-1] == []
        assert probe.not_alive == 0


def test_a_start_that_rereads_for_long_is_alive_and_not_ready_before_it_is_live(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=2)
    rest = _send_long_stretch(bench)
    service = bench.start()
    bench.wait_until_committed()
    assert service.stop() == 0

    service = bench.start(kafka_consumer=_FETCHES, **_ANYWHERE)
    probe = Probe(service)
    during = eventually(lambda: _while_it_rereads(service), "read again")
    assert during["acceptance_rereading_partitions"] == 1
    assert 0 < during["acceptance_reread_remaining_messages"] <= _STRETCH + 1
    assert during["acceptance_ready"] == 0
    probe.wait_until(ready=True, within=SECONDS)
    assert service.lines("reread_finished", partition=0)
    bench.send_events("long", rest, partition=0)
    assert bench.record_of("long").json["source_first_offset"] == 0
    eventually(lambda: not _while_it_rereads(service), "nothing left")
    after = _metrics(service)
    assert after["acceptance_reread_remaining_messages"] == 0
    assert after["acceptance_ready"] == 1
    probe.end()
    assert probe.changes()[-2:] == [["re-reading 1 of 2 partitions"], []]
    assert probe.changes().count([]) == 1
    assert probe.not_alive == 0
    assert service.stop() == 0


def test_a_ready_member_stays_ready_while_it_rereads_a_new_partition(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=1)
    _send_long_stretch(bench)
    first = bench.start()
    bench.wait_until_committed()
    bench.meddle("import consumer.telemetry.health; consumer.telemetry.health._STANDBY_S = 1.0")
    standby = bench.start(kafka_consumer=_FETCHES, **_ANYWHERE)
    probe = Probe(standby)
    probe.wait_until(ready=True, within=30)
    assert first.stop() == 0

    during = eventually(lambda: _while_it_rereads(standby), "read again")
    assert during["acceptance_rereading_partitions"] == 1
    assert during["acceptance_ready"] == 1
    standby.wait_for("reread_finished", partition=0)
    probe.end()
    assert probe.changes()[-1] == []
    assert probe.changes().count([]) == 1
    assert probe.not_alive == 0
    assert standby.stop() == 0


def _stalls_in(service: ServiceProcess, function: str) -> list[Json]:
    return [
        line
        for line in service.lines("loop_stalled")
        if any(frame.endswith(f" {function}") for frame in line["stack"])
    ]


def test_a_loop_that_hangs_is_reported_and_recovers(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench, hang = make_bench(), tmp_path / "hang"
    bench.meddle(_HANGS.format(file=str(hang)))
    service = bench.start(shutdown_timeout="1s", **_ANYWHERE)
    probe = Probe(service)
    probe.wait_until(ready=True, within=30)
    hang.touch()
    [stalled] = eventually(lambda: _stalls_in(service, "close_silent"), "a report of the hang")
    assert stalled["seconds"] == 4.0
    status, life = _ask(service, "/healthz")
    assert (status, life["alive"]) == (503, False)
    assert life["turn_age_seconds"] >= 4.0
    status, ready = _ask(service, "/readyz")
    assert (status, ready["ready"]) == (503, False)
    assert ready["reasons"][0].startswith("the main loop has not responded for")
    hang.unlink()
    service.wait_for("loop_resumed")
    probe.wait_until(ready=True, within=10)
    assert _ask(service, "/healthz")[0] == 200
    assert service.stop() == 0


def test_a_process_that_is_stopped_does_not_answer_and_has_not_hung_when_it_goes_on(
    bench: Bench,
) -> None:
    bench.meddle("import consumer.telemetry.health; consumer.telemetry.health._MAX_WAIT_S = 2.0")
    service = bench.start(shutdown_timeout="1s", **_ANYWHERE)
    eventually(lambda: _ask(service, "/readyz")[0] == 200, "ready")
    before = service.lines("loop_stalled")  # Of a start on a busy machine.
    service.process.send_signal(signal.SIGSTOP)
    with pytest.raises(OSError, match="timed out"):
        _ask(service, "/healthz", timeout=4)
    service.process.send_signal(signal.SIGCONT)
    assert _ask(service, "/healthz")[0] == 200
    assert service.stop() == 0
    assert service.lines("loop_stalled") == before


def test_a_port_in_use_ends_the_start_with_the_reason(bench: Bench) -> None:
    first = bench.start(**_ANYWHERE)
    address = first.wait_for("http_server_started")["address"]
    second = bench.start(http_address=address)
    assert second.wait() == 2
    [line] = second.lines("start_failed")
    assert f"cannot listen at {address}: Address already in use" in line["error"]
    assert first.stop() == 0


_WAITS_TO_LEAVE = """
import pathlib, time
from consumer.kafka.membership import Membership

leave = Membership.leave

def leave_when_it_may(membership):
    while not pathlib.Path({file!r}).exists():
        time.sleep(0.1)
    leave(membership)

Membership.leave = leave_when_it_may
"""

_HANGS = """
import pathlib, time
import consumer.telemetry.health
from consumer.kafka.partition_monitor import PartitionMonitor

consumer.telemetry.health._MAX_WAIT_S = 3.0
consumer.telemetry.health._MAX_READY_WAIT_S = 2.0

def close_silent(monitor, partitions):
    while pathlib.Path({file!r}).exists():
        time.sleep(0.1)

PartitionMonitor.close_silent = close_silent
"""
