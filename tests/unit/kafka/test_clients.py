"""The clients' properties, and what is asked before the service starts."""

import re
import threading
import time
import traceback
from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from consumer.demo.embedded_broker import EmbeddedBroker
from consumer.kafka import clients
from consumer.kafka.administrator import Administrator, TopicNamesAsIds
from consumer.kafka.client_config import (
    consumer_config,
    max_poll_interval_s,
    producer_config,
    transaction_timeout_s,
)
from consumer.kafka.clients import is_member
from consumer.kafka.errors import ClusterError, NoBrokerError
from consumer.settings.settings import Settings
from tests.unit.kafka.fakes import failure, group_metadata

SETTINGS = Settings(bootstrap_servers="127.0.0.1:9092", topics=("input",), group="g")


def test_offsets_are_ours_alone_to_commit_and_to_reset() -> None:
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


def test_records_are_acknowledged_by_all_and_keyed_as_java_does() -> None:
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


def test_with_transactions_the_client_gives_up_a_message_with_its_transaction() -> None:
    config = producer_config(SETTINGS)
    assert "message.timeout.ms" not in config
    assert "transactional.id" in config


def test_a_transaction_ends_before_the_session_of_its_consumer() -> None:
    """Else the next owner of its partitions waits for it, and reads nothing meanwhile."""
    session_timeout_of_the_client = 45
    assert transaction_timeout_s(SETTINGS) < session_timeout_of_the_client


def test_an_instance_has_an_id_of_its_own_that_is_the_same_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By it brokers end what a process that was killed has left open."""
    monkeypatch.setattr("socket.gethostname", lambda: "pod-3")
    assert producer_config(SETTINGS)["transactional.id"] == "g-pod-3"


def test_the_id_may_be_given() -> None:
    settings = Settings(group="g", transactional_id="mine")
    assert producer_config(settings)["transactional.id"] == "mine"


@pytest.mark.parametrize(("given", "seconds"), [({}, 15), ({"transaction.timeout.ms": "5000"}, 5)])
def test_the_timeout_of_transactions_may_be_given(given: dict[str, str], seconds: float) -> None:
    assert transaction_timeout_s(Settings(kafka_producer=given)) == seconds


@pytest.mark.parametrize(("given", "seconds"), [({}, 300), ({"max.poll.interval.ms": "60000"}, 60)])
def test_the_poll_interval_is_the_clients_unless_it_is_given(
    given: dict[str, str], seconds: float
) -> None:
    assert max_poll_interval_s(Settings(kafka_consumer=given)) == seconds


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_the_client_takes_our_properties(delivery: str) -> None:
    clients.check_properties(Settings(bootstrap_servers="b", delivery=delivery))  # type: ignore[arg-type]


# Members


def test_a_consumer_that_has_not_joined_is_no_member() -> None:
    """Brokers would take its transactional commit from anybody, unfenced."""
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    try:
        assert not is_member(consumer.consumer_group_metadata())
    finally:
        consumer.close()


@pytest.mark.parametrize("generation", [0, 1, 2**31 - 1])
def test_a_consumer_with_a_generation_is_a_member(generation: int) -> None:
    assert is_member(group_metadata(generation))


@pytest.mark.parametrize("unknown", [b"", b"CGMDv3:\x01\x00\x00\x00g", b"\x01\x00\x00\x00"])
def test_metadata_of_an_unknown_format_is_not_guessed_at(unknown: bytes) -> None:
    """A newer client may write another one; wrongly read, nobody would be fenced any more."""
    with pytest.raises(ValueError, match="unknown format"):
        is_member(unknown)


# Questions about topics


def test_names_stand_for_ids_where_nobody_can_tell_them() -> None:
    answers = TopicNamesAsIds().describe_topics(["a", "b"])
    assert {name: answer.result().topic_id for name, answer in answers.items()} == {
        "a": "a",
        "b": "b",
    }


@pytest.fixture
def embedded() -> Iterator[str]:
    """Return the address of librdkafka's embedded broker, with the topics of the service."""
    with EmbeddedBroker() as broker:
        broker.create_topics(["input", "acceptance-records", "acceptance-dead-letters"])
        yield broker.bootstrap_servers


def test_the_embedded_broker_has_no_transactions_and_the_setting_is_named(embedded: str) -> None:
    """Its producer would wait for a coordinator for ever."""
    settings = Settings(bootstrap_servers=embedded, topics=("input",))
    with pytest.raises(ClusterError, match=r"delivery: the embedded broker.*at_least_once"):
        Administrator(settings).inspect(10)


def test_the_embedded_broker_serves_delivery_at_least_once(embedded: str) -> None:
    settings = Settings(bootstrap_servers=embedded, topics=("input",), delivery="at_least_once")
    cluster = Administrator(settings).inspect(10)
    assert not cluster.describes_topics
    assert cluster.partitions["input"] >= 1


def test_properties_of_the_settings_reach_the_clients_they_are_for() -> None:
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
    assert "fetch.wait.max.ms" not in producer


@pytest.mark.parametrize("given", ["kafka", "kafka_consumer"])
def test_the_new_group_protocol_is_not_given_what_it_refuses(given: str) -> None:
    protocol = {"group.protocol": "consumer", "session.timeout.ms": "6000"}
    settings = Settings(bootstrap_servers="b", topics=("t",), **{given: protocol})  # type: ignore[arg-type]
    config = consumer_config(settings)
    assert config["group.protocol"] == "consumer"
    for name in ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"):
        assert name not in config
    clients.make_consumer(settings).close()


@pytest.mark.parametrize(
    ("given", "expected"), [({}, 3_000), ({"statistics.interval.ms": "0"}, "0")]
)
def test_statistics_come_every_three_seconds_unless_the_settings_say_otherwise(
    given: dict[str, str], expected: object
) -> None:
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka=given)
    for config in (consumer_config(settings), producer_config(settings)):
        assert config["statistics.interval.ms"] == expected


@pytest.mark.parametrize(("limit", "expected"), [(5_000, 5_000), (2_000_000, 1_000_000)])
def test_a_batch_is_no_larger_than_what_its_topic_takes(limit: int, expected: int) -> None:
    assert producer_config(SETTINGS, limit)["batch.size"] == expected


def test_the_settings_have_the_last_word_on_the_size_of_batches() -> None:
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka_producer={"batch.size": "9"})
    assert producer_config(settings, 5_000)["batch.size"] == "9"


@pytest.mark.parametrize(
    ("setting", "name", "value", "says"),
    [
        ("kafka_consumer", "fetch.min.bytes", "x", "Invalid value"),
        ("kafka_producer", "linger.ms", "-5", "outside allowed range 0..900000"),
    ],
)
def test_a_wrong_value_of_a_property_is_refused_with_its_name_and_value(
    setting: str, name: str, value: str, says: str
) -> None:
    properties = {setting: {"client.id": "mine", name: value}}
    settings = Settings(bootstrap_servers="b", topics=("t",), **properties)  # type: ignore[arg-type]
    with pytest.raises(ClusterError) as refused:
        clients.check_properties(settings)
    assert f"{setting}.{name} is {value!r}: librdkafka rejects it: " in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_certificates_that_cannot_be_used_are_refused_with_oidc_too(name: str) -> None:
    """librdkafka would abort the process, and nobody would know why."""
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "acceptance",
        "sasl.oauthbearer.client.secret": "hunter2",
        "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
        name: "/dev/null",
    }
    settings = Settings(bootstrap_servers="127.0.0.1:1", topics=("t",), kafka=properties)
    for use in (clients.check_properties, Administrator, clients.make_consumer):
        with pytest.raises(ClusterError, match=re.escape(name)):
            use(settings)


@pytest.mark.parametrize("name", ["no.such.password", "sasl.pasword", "security.protocl"])
def test_of_a_property_that_does_not_exist_only_the_name_is_shown(name: str) -> None:
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka={name: "canary"})
    with pytest.raises(ClusterError) as refused:
        clients.check_properties(settings)
    assert str(refused.value).startswith(f"kafka.{name}: librdkafka rejects it: No such")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("config", ["hunter2", "principal=admin hunter2"])
def test_a_secret_that_librdkafka_quotes_is_masked(config: str) -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": config,
    }
    settings = Settings(bootstrap_servers="127.0.0.1:1", topics=("t",), kafka=properties)
    with pytest.raises(ClusterError, match=r"^Authentication failed at") as refused:
        Administrator(settings).inspect(0.5)
    assert "beginning at: [masked]" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_client_that_is_refused_shows_no_secret_in_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_config: object) -> None:
        raise ValueError("wrong: hunter2, hunter22, abc")

    monkeypatch.setattr(clients, "Consumer", refuse)
    settings = Settings(
        bootstrap_servers="b",
        topics=("t",),
        kafka={"sasl.password": "hunter2"},
        kafka_consumer={"ssl.key.password": "hunter22", "ssl.keystore.password": "abc"},
    )
    with pytest.raises(ClusterError) as refused:
        clients.make_consumer(settings)
    assert str(refused.value).endswith("wrong: [masked], [masked], abc")
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_a_password_among_the_brokers_is_masked() -> None:
    settings = Settings(bootstrap_servers="user:hunter2@127.0.0.1:1", topics=("t",))
    with pytest.raises(NoBrokerError) as refused:
        Administrator(settings).inspect(0.1)
    assert "no broker of '[masked]@127.0.0.1:1' answers" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_properties_that_are_wrong_only_together_are_refused_too() -> None:
    properties = {"max.poll.interval.ms": "5000", "session.timeout.ms": "6000"}
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka_consumer=properties)
    with pytest.raises(ClusterError, match=r"max\.poll\.interval\.ms"):
        clients.check_properties(settings)


def test_a_cluster_that_does_not_answer_is_said_with_its_address_and_the_reason() -> None:
    settings = Settings(bootstrap_servers="127.0.0.1:1", topics=("t",))
    with pytest.raises(NoBrokerError) as refused:
        Administrator(settings).inspect(0.5)
    text = str(refused.value)
    assert "bootstrap_servers: no broker of '127.0.0.1:1' answers" in text
    assert "Connection refused" in text


# Outages


def test_a_broker_that_is_there_answers(embedded: str) -> None:
    settings = Settings(bootstrap_servers=embedded, topics=("input",))
    assert Administrator(settings).is_reachable(10)


def test_where_no_broker_is_none_answers_and_the_question_ends_in_time() -> None:
    settings = Settings(bootstrap_servers="127.0.0.1:1", topics=("t",))
    begun = time.monotonic()
    assert not Administrator(settings).is_reachable(0.5)
    assert time.monotonic() - begun < 5


class _Closing:
    """A consumer whose close takes as long as the test wants, and ends as it wants."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_end = threading.Event()
        self._error = error

    def close(self) -> None:
        self.may_end.wait()
        if self._error is not None:
            raise self._error


def test_a_consumer_that_does_not_close_is_left_to_itself() -> None:
    closing = _Closing()
    clients.close_within(cast("Consumer", closing), 0.01)
    closing.may_end.set()


def test_why_a_consumer_cannot_be_closed_is_raised_where_somebody_sees_it() -> None:
    closing = _Closing(failure(KafkaError._STATE))
    closing.may_end.set()
    with pytest.raises(KafkaException):
        clients.close_within(cast("Consumer", closing), 10)
