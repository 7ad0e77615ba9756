"""The clients' properties, and which errors are worth a second question."""

import traceback

import pytest
from confluent_kafka import KafkaError

from consumer import clients
from consumer.clients import ClusterError, consumer_config, may_pass, producer_config
from consumer.settings import Settings

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
        "message.timeout.ms": 0,
    }


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


@pytest.mark.parametrize(("limit", "expected"), [(5_000, 5_000), (2_000_000, 1_000_000)])
def test_a_batch_is_no_larger_than_what_its_topic_takes(limit: int, expected: int) -> None:
    assert producer_config(SETTINGS, limit)["batch.size"] == expected


def test_the_settings_have_the_last_word_on_the_size_of_batches() -> None:
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka_producer={"batch.size": "9"})
    assert producer_config(settings, 5_000)["batch.size"] == "9"


def test_a_property_that_does_not_exist_is_refused_without_its_value() -> None:
    properties = {"sasl.pasword": "hunter2"}
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka=properties)
    with pytest.raises(ClusterError, match=r"kafka\.sasl\.pasword is .*: No such") as refused:
        clients.try_properties(settings)
    assert "hunter2" not in str(refused.value)


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
        clients.try_properties(settings)
    assert f"{setting}.{name} is {value!r}: librdkafka says: " in str(refused.value)
    assert says in str(refused.value)


def test_a_wrong_secret_is_not_shown() -> None:
    properties = {"no.such.password": "canary"}
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka=properties)
    with pytest.raises(ClusterError) as refused:
        clients.try_properties(settings)
    assert "kafka.no.such.password is [masked]" in str(refused.value)
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
    with pytest.raises(clients.NoBrokerError) as refused:
        clients.Administrator(settings).inspect(0.5)
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
    with pytest.raises(clients.NoBrokerError) as refused:
        clients.Administrator(settings).inspect(0.1)
    assert "no broker of '[masked]@127.0.0.1:1' answers" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_properties_that_are_wrong_only_together_are_refused_too() -> None:
    properties = {"max.poll.interval.ms": "5000", "session.timeout.ms": "6000"}
    settings = Settings(bootstrap_servers="b", topics=("t",), kafka_consumer=properties)
    with pytest.raises(ClusterError, match=r"max\.poll\.interval\.ms"):
        clients.try_properties(settings)


def test_a_cluster_that_does_not_answer_is_said_with_its_address_and_the_reason() -> None:
    settings = Settings(bootstrap_servers="127.0.0.1:1", topics=("t",))
    with pytest.raises(clients.NoBrokerError) as refused:
        clients.Administrator(settings).inspect(0.5)
    text = str(refused.value)
    assert "bootstrap_servers: no broker of '127.0.0.1:1' answers" in text
    assert "Connection refused" in text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._WAIT_COORD, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError.NOT_COORDINATOR, True),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, False),
        (KafkaError.FENCED_INSTANCE_ID, False),
        (KafkaError._INVALID_ARG, False),
    ],
)
def test_what_may_pass(code: int, *, expected: bool) -> None:
    assert may_pass(KafkaError(code)) is expected


def test_what_the_client_calls_retriable_may_pass() -> None:
    retriable = KafkaError(KafkaError._FAIL, "", False, True)
    assert may_pass(retriable)
