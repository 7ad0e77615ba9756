"""What the service asks the cluster before it starts, and while no broker answers."""

import time
from collections.abc import Iterator

import pytest

from consumer.demo.embedded_broker import EmbeddedBroker
from consumer.kafka.administrator import Administrator, TopicNamesAsIds
from consumer.kafka.errors import ClusterError, NoBrokerError
from consumer.settings.settings import Settings

UNREACHABLE = Settings(bootstrap_servers="127.0.0.1:1", topics=("t",))


@pytest.fixture
def embedded() -> Iterator[str]:
    """Return the address of librdkafka's embedded broker with the service's topics."""
    with EmbeddedBroker() as broker:
        broker.create_topics(["input", "acceptance-records", "acceptance-dead-letters"])
        yield broker.bootstrap_servers


def test_the_embedded_broker_is_rejected_for_transactions_and_the_setting_is_named(
    embedded: str,
) -> None:
    """A producer would wait for its coordinator for ever."""
    settings = Settings(bootstrap_servers=embedded, topics=("input",))
    with pytest.raises(ClusterError, match=r"delivery: the embedded broker.*at_least_once"):
        Administrator(settings).inspect(10)


def test_the_embedded_broker_is_reachable_and_serves_delivery_at_least_once(embedded: str) -> None:
    settings = Settings(bootstrap_servers=embedded, topics=("input",), delivery="at_least_once")
    administrator = Administrator(settings)
    assert administrator.is_reachable(10)
    cluster = administrator.inspect(10)
    assert not cluster.describes_topics
    assert cluster.partitions["input"] >= 1


def test_names_stand_for_ids_where_the_cluster_does_not_describe_topics() -> None:
    answers = TopicNamesAsIds().describe_topics(["a", "b"])
    ids = {name: answer.result().topic_id for name, answer in answers.items()}
    assert ids == {"a": "a", "b": "b"}


def test_without_a_broker_none_is_reachable_and_the_question_ends_in_time() -> None:
    begun = time.monotonic()
    assert not Administrator(UNREACHABLE).is_reachable(0.5)
    assert time.monotonic() - begun < 5


def test_an_unreachable_cluster_is_reported_with_address_and_cause() -> None:
    with pytest.raises(NoBrokerError) as refused:
        Administrator(UNREACHABLE).inspect(0.5)
    text = str(refused.value)
    assert "bootstrap_servers: no broker of '127.0.0.1:1' answers" in text
    assert "Connection refused" in text


def test_a_password_in_the_addresses_is_masked() -> None:
    settings = Settings(bootstrap_servers="user:hunter2@127.0.0.1:1", topics=("t",))
    with pytest.raises(NoBrokerError) as refused:
        Administrator(settings).inspect(0.1)
    assert "no broker of '[masked]@127.0.0.1:1' answers" in str(refused.value)
    assert "hunter2" not in str(refused.value)


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
