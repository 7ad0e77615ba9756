"""Making and closing the clients, and what a wrong property is answered with."""

import re
import threading
import traceback
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from consumer.kafka import clients
from consumer.kafka.administrator import Administrator
from consumer.kafka.clients import check_properties, close_within, is_member, make_consumer
from consumer.kafka.errors import PropertyError
from consumer.settings.settings import Settings
from tests.unit.kafka.fakes import failure, group_metadata


def _settings(setting: str = "kafka", **properties: str) -> Settings:
    return Settings(bootstrap_servers="127.0.0.1:1", topics=("t",), **{setting: properties})  # type: ignore[arg-type]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_librdkafka_accepts_the_services_properties(delivery: str) -> None:
    check_properties(Settings(bootstrap_servers="b", delivery=delivery))  # type: ignore[arg-type]


# Wrong properties


@pytest.mark.parametrize(
    ("setting", "name", "value", "reason"),
    [
        ("kafka_consumer", "fetch.min.bytes", "x", "Invalid value"),
        ("kafka_producer", "linger.ms", "-5", "outside allowed range 0..900000"),
    ],
)
def test_a_wrong_value_is_rejected_with_its_name_and_value(
    setting: str, name: str, value: str, reason: str
) -> None:
    with pytest.raises(PropertyError) as refused:
        check_properties(_settings(setting, **{"client.id": "mine", name: value}))
    assert f"{setting}.{name} is {value!r}: librdkafka rejects it: " in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["no.such.password", "sasl.pasword", "security.protocl"])
def test_of_an_unknown_property_only_the_name_is_shown(name: str) -> None:
    with pytest.raises(PropertyError) as refused:
        check_properties(_settings(**{name: "canary"}))
    assert str(refused.value).startswith(f"kafka.{name}: librdkafka rejects it: No such")
    assert "canary" not in str(refused.value)


def test_properties_that_are_wrong_only_together_are_rejected_too() -> None:
    properties = {"max.poll.interval.ms": "5000", "session.timeout.ms": "6000"}
    with pytest.raises(PropertyError, match=r"max\.poll\.interval\.ms"):
        check_properties(_settings("kafka_consumer", **properties))


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_unusable_certificates_are_rejected_with_oidc_too(name: str) -> None:
    """librdkafka would abort the process without a reason."""
    settings = _settings(
        **{
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "acceptance",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
            name: "/dev/null",
        }
    )
    for use in (check_properties, Administrator, make_consumer):
        with pytest.raises(PropertyError, match=re.escape(name)):
            use(settings)


def test_a_rejected_client_shows_no_secret_in_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reject(_config: object) -> None:
        raise ValueError("wrong: hunter2, hunter22, abc")

    monkeypatch.setattr(clients, "Consumer", reject)
    settings = Settings(
        bootstrap_servers="b",
        topics=("t",),
        kafka={"sasl.password": "hunter2"},
        kafka_consumer={"ssl.key.password": "hunter22", "ssl.keystore.password": "abc"},
    )
    with pytest.raises(PropertyError) as refused:
        make_consumer(settings)
    assert str(refused.value).endswith("wrong: [masked], [masked], abc")
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


# Members


def test_a_consumer_that_has_not_joined_is_not_a_member() -> None:
    """Brokers would accept its transactional commit without fencing it."""
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    try:
        assert not is_member(consumer.consumer_group_metadata())
    finally:
        consumer.close()


@pytest.mark.parametrize("generation", [0, 1, 2**31 - 1])
def test_a_consumer_with_a_generation_is_a_member(generation: int) -> None:
    assert is_member(group_metadata(generation))


@pytest.mark.parametrize("unknown", [b"", b"CGMDv3:\x01\x00\x00\x00g", b"\x01\x00\x00\x00"])
def test_metadata_of_an_unknown_format_is_rejected(unknown: bytes) -> None:
    """A newer client may write another format; with a wrong guess nothing would be fenced."""
    with pytest.raises(ValueError, match="unknown format"):
        is_member(unknown)


# Closing


class _Closing:
    """A consumer that closes when the test allows it, and fails on request."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_end = threading.Event()
        self._error = error

    def close(self) -> None:
        self.may_end.wait()
        if self._error is not None:
            raise self._error


def test_a_consumer_that_does_not_close_is_not_waited_for() -> None:
    closing = _Closing()
    close_within(cast("Consumer", closing), 0.01)
    closing.may_end.set()


def test_the_waiting_thread_raises_why_a_consumer_cannot_be_closed() -> None:
    closing = _Closing(failure(KafkaError._STATE))
    closing.may_end.set()
    with pytest.raises(KafkaException):
        close_within(cast("Consumer", closing), 10)
