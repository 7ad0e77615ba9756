"""The properties of the clients, and the timeouts that follow from them."""

import pytest

from consumer.kafka.client_config import (
    admin_config,
    consumer_config,
    max_poll_interval_s,
    producer_config,
    session_timeout_s,
    transaction_timeout_s,
)
from consumer.kafka.clients import make_consumer
from consumer.settings.settings import Settings

SETTINGS = Settings(bootstrap_servers="127.0.0.1:9092", topics=("input",), group="g")


def test_only_the_service_commits_and_resets_offsets() -> None:
    config = consumer_config(SETTINGS)
    assert config == config | {
        "group.id": "g",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
    }


def test_all_replicas_acknowledge_records_and_keys_are_partitioned_as_in_java() -> None:
    config = producer_config(SETTINGS)
    assert config == config | {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
    }


def test_without_transactions_a_record_waits_for_its_broker_as_long_as_it_takes() -> None:
    config = producer_config(Settings(group="g", delivery="at_least_once"))
    assert config["message.timeout.ms"] == 0
    assert "transactional.id" not in config


def test_with_transactions_a_message_times_out_with_its_transaction() -> None:
    config = producer_config(SETTINGS)
    assert "message.timeout.ms" not in config
    assert "transactional.id" in config


def test_a_transaction_ends_before_the_session_of_its_consumer() -> None:
    """Else the next owner of its partitions waits for it, and reads nothing meanwhile."""
    assert transaction_timeout_s(SETTINGS) < session_timeout_s(SETTINGS) == 45


@pytest.mark.parametrize(("given", "expected"), [(None, "g-pod-3"), ("mine", "mine")])
def test_an_instance_keeps_its_transactional_id_over_restarts(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    """With it brokers abort the open transaction of a process that was killed."""
    monkeypatch.setattr("socket.gethostname", lambda: "pod-3")
    settings = Settings(group="g", transactional_id=given)
    assert producer_config(settings)["transactional.id"] == expected


@pytest.mark.parametrize(("given", "seconds"), [({}, 15), ({"transaction.timeout.ms": "5000"}, 5)])
def test_the_settings_may_change_the_transaction_timeout(
    given: dict[str, str], seconds: float
) -> None:
    assert transaction_timeout_s(Settings(kafka_producer=given)) == seconds


@pytest.mark.parametrize(("given", "seconds"), [({}, 300), ({"max.poll.interval.ms": "60000"}, 60)])
def test_the_settings_may_change_the_poll_interval(given: dict[str, str], seconds: float) -> None:
    assert max_poll_interval_s(Settings(kafka_consumer=given)) == seconds


def test_each_client_gets_its_own_properties_of_the_settings() -> None:
    settings = Settings(
        bootstrap_servers="b",
        topics=("t",),
        kafka={"client.id": "mine", "linger.ms": "7"},
        kafka_consumer={"fetch.wait.max.ms": "9"},
        kafka_producer={"linger.ms": "8"},
    )
    consumer, producer = consumer_config(settings), producer_config(settings)
    assert (consumer["client.id"], consumer["fetch.wait.max.ms"]) == ("mine", "9")
    assert (producer["client.id"], producer["linger.ms"]) == ("mine", "8")
    assert admin_config(settings)["client.id"] == "mine"
    assert "fetch.wait.max.ms" not in producer


@pytest.mark.parametrize("given", ["kafka", "kafka_consumer"])
def test_the_new_group_protocol_gets_no_properties_that_it_rejects(given: str) -> None:
    protocol = {"group.protocol": "consumer", "session.timeout.ms": "6000"}
    settings = Settings(bootstrap_servers="b", topics=("t",), **{given: protocol})  # type: ignore[arg-type]
    config = consumer_config(settings)
    assert config["group.protocol"] == "consumer"
    for name in ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"):
        assert name not in config
    make_consumer(settings).close()


@pytest.mark.parametrize(
    ("given", "expected"), [({}, 3_000), ({"statistics.interval.ms": "0"}, "0")]
)
def test_statistics_come_every_three_seconds_unless_the_settings_change_that(
    given: dict[str, str], expected: object
) -> None:
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka=given)
    for config in (consumer_config(settings), producer_config(settings)):
        assert config["statistics.interval.ms"] == expected


@pytest.mark.parametrize(
    ("given", "limit", "expected"),
    [({}, 5_000, 5_000), ({}, 2_000_000, 1_000_000), ({"batch.size": "9"}, 5_000, "9")],
)
def test_a_batch_is_not_larger_than_its_topic_allows_unless_the_settings_change_that(
    given: dict[str, str], limit: int, expected: object
) -> None:
    assert producer_config(Settings(kafka_producer=given), limit)["batch.size"] == expected
