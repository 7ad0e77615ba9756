"""The only broker is away for half a minute: who waits, who gives up, and that nothing is lost.

That is longer than a transaction may take, so that one is open that brokers give up.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness import (
    Bench,
    ServiceProcess,
    eventually,
    record_ids,
    request_ids,
    stream,
    whole,
)
from tests.kafka_server.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

_AWAY_S = 30.0


@pytest.fixture
def own_kafka(kafka: KafkaCluster) -> Iterator[KafkaCluster]:  # noqa: ARG001 - it says whether to skip.
    """Return a broker that no other test needs."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.mark.xfail(
    strict=False,
    reason="open fault: in one run of ten a call of librdkafka does not come back in time",
)
def test_a_broker_that_is_away_is_waited_for_and_a_stop_meanwhile_is_in_time(
    own_kafka: KafkaCluster, tmp_path: Path
) -> None:
    benches = [Bench(own_kafka, tmp_path, 2).create() for _ in range(4)]
    try:
        _run(own_kafka, *benches)
    finally:
        for bench in benches:
            bench.dispose()


def _run(kafka: KafkaCluster, staying: Bench, stopped: Bench, hurried: Bench, late: Bench) -> None:
    """Let four groups live through the same outage, since it takes its time."""
    first, *rest = stream("open")
    services: list[ServiceProcess] = []
    for bench, session in ((staying, "10000"), (stopped, "1500"), (hurried, "1500")):
        # Who stops while the broker is away cannot leave the group: its session has to end.
        settings = {"shutdown_timeout": "5s", "kafka_session_timeout_ms": session}
        services.append(bench.start(**settings))
        bench.send(first, "open", partition=0)
        for number in range(20):
            bench.send(whole(f"r{number}"), f"r{number}")
        bench.flush()
        bench.records(lambda got: len(got) == 20)
    # Read and not yet committed when the broker goes.
    for bench in (staying, stopped, hurried):
        for number in range(20, 40):
            bench.send(whole(f"r{number}"), f"r{number}")
        bench.flush()
    kafka.kill_broker(0)
    gone = time.monotonic()

    waiting = late.start()
    waiting.wait_for("kafka_error", follows="waiting for a broker")
    told = time.monotonic()
    services[1].process.send_signal(signal.SIGTERM)
    for _ in range(2):
        services[2].process.send_signal(signal.SIGTERM)
        services[2].wait_for("shutdown_requested")
    assert services[2].wait(3) in (0, -signal.SIGTERM)
    assert services[1].wait(15) == 0
    assert time.monotonic() - told < 5 + 3, "longer than shutdown_timeout"
    unready = late.start()
    unready.wait_for("kafka_error", follows="waiting for a broker")
    assert unready.stop() == 0

    eventually(lambda: time.monotonic() - gone > _AWAY_S, "the end of the outage", 2 * _AWAY_S)
    kafka.start_broker(0)

    waiting.wait_for("partitions_assigned")
    late.read_up()
    for bench, service in (
        (staying, services[0]),
        (stopped, stopped.start()),
        (hurried, hurried.start()),
    ):
        for value in rest:
            bench.send(value, "open", partition=0)
        bench.flush()
        bench.read_up()
        assert service.stop() == 0
        got = bench.records()
        assert set(request_ids(got)) == {"open", *(f"r{number}" for number in range(40))}
        assert len(set(record_ids(got))) == 41 + bench.partitions
        # A single broker that is killed and comes back sometimes leaves an output partition without
        # the mark that aborts the open transaction; then the next commit reveals its records too.
        # With replicas this was never seen: tests/soak asks for each record once.
        by_id = {one.json["record_id"]: one.json for one in got}
        assert all(one.json == by_id[one.json["record_id"]] for one in got)
    assert len(services[0].lines("librdkafka")) < 60
    assert waiting.stop() == 0
