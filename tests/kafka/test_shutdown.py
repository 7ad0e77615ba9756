"""An orderly stop commits unfinished work and leaves the group."""

import signal

import pytest

from tests.kafka.harness import Bench, request_ids, stream, whole

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_commits_unfinished_work_and_logs_the_totals(
    bench: Bench, number: signal.Signals
) -> None:
    # Only the shutdown can have committed within this interval.
    service = bench.start(commit_interval="60s")
    service.wait_for("partitions_assigned")
    for value in (whole("r"), stream("open")[0], b"{broken"):
        bench.send(value, partition=1)
    bench.flush()
    service.wait_for("bad_payload", partition=1, offset=2)
    service.process.send_signal(number)
    assert service.wait() == 0

    bench.wait_until_committed()  # A commit returns before brokers have marked it everywhere.
    assert request_ids(bench.records()) == ["r"]
    assert len(bench.letters()) == 1
    lines = [line for line in service.lines() if line["event"] != "librdkafka_log"]
    assert [line["event"] for line in lines[-6:]] == [
        "service_started",
        "partitions_assigned",
        "bad_payload",
        "shutdown_requested",
        "partitions_revoked",
        "service_stopped",
    ]
    requested, _, stopped = lines[-3:]
    assert requested["reason"] == number.name
    assert (stopped["code"], stopped["error"]) == (0, None)
    assert stopped["totals"] == {
        "message accepted": 2,
        "message bad_payload(invalid_json)": 1,
        "request published": 1,
    }


def test_a_stopped_member_leaves_the_group_at_once(bench: Bench) -> None:
    session = {"kafka_session_timeout_ms": "45000"}
    service = bench.start(**session)
    service.wait_for("partitions_assigned")
    assert service.stop() == 0
    [group] = bench.admin.describe_consumer_groups([bench.group]).values()
    assert group.result().members == []


def test_a_signal_before_an_assignment_stops_the_service(bench: Bench) -> None:
    service = bench.start()
    service.wait_for("service_started")
    assert service.stop() == 0
    assert service.totals() == {}


def test_the_first_line_holds_version_and_settings_with_secrets_masked(bench: Bench) -> None:
    canary = "canary-1d5e"
    bench.variables["ACCEPTANCE_KAFKA_SASL_PASSWORD"] = canary
    service = bench.start(labels="cluster=a", kafka_sasl_username="me")
    line = service.wait_for("service_started")
    assert line["version"]
    settings = line["settings"]
    assert settings["topics"] == [bench.input]
    assert settings["labels"] == {"cluster": "a"}
    assert settings["kafka"]["sasl.password"] == "[masked]"
    assert service.stop() == 0
    assert canary not in service.log.read_text(encoding="utf-8")
