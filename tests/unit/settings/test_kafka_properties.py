"""librdkafka properties: how they are given, which are refused, and that no secret is shown."""

from pathlib import Path
from typing import Any

import pytest

from consumer.settings.fields import fields
from consumer.settings.settings import effective
from tests.unit.settings.loading import given, refused

PROPERTIES = (
    "sasl.username=reader",
    "sasl.password=hunter2",
    "ssl.key.password=hunter2",
    "ssl.key.pem=hunter2",
    "ssl.key.location=/etc/key.pem",
    "ssl.keystore.password=hunter2",
    "sasl.oauthbearer.client.id=client",
    "sasl.oauthbearer.client.secret=hunter2",
    "sasl.oauthbearer.config=secret=hunter2",
    "sasl.oauthbearer.assertion.private.key.passphrase=hunter2",
    "sasl.oauthbearer.token.endpoint.url=https://me:hunter2@example.org/token",
    "consumer.sasl.jaas.config=hunter2",
)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def test_a_variable_names_a_property_with_underscores_for_dots() -> None:
    environ = {
        "ACCEPTANCE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "ACCEPTANCE_KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE": "/key",
        "ACCEPTANCE_KAFKA_CONSUMER_FETCH_MIN_BYTES": "1",
        "ACCEPTANCE_KAFKA_PRODUCER_LINGER_MS": "5",
    }
    settings = given({}, environ)
    assert settings.kafka == {
        "security.protocol": "SASL_SSL",
        "sasl.oauthbearer.assertion.private.key.file": "/key",  # This name itself ends in file.
    }
    assert settings.kafka_consumer == {"fetch.min.bytes": "1"}
    assert settings.kafka_producer == {"linger.ms": "5"}


def test_tables_may_be_nested_or_their_keys_quoted(toml: Path) -> None:
    toml.write_text(
        """
        [kafka]
        "security.protocol" = "SASL_SSL"
        ssl.ca.location = "/ca.pem"
        log.connection.close = false
        [kafka.consumer]
        fetch.min.bytes = 1
        [kafka.producer]
        "linger.ms" = 0.5
        [labels]
        tier = "gold"
        """
    )
    settings = given({}, {}, toml)
    assert settings.kafka == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "log.connection.close": "false",
    }
    assert settings.kafka_consumer == {"fetch.min.bytes": "1"}
    assert settings.kafka_producer == {"linger.ms": "0.5"}
    assert settings.labels == {"tier": "gold"}


def test_maps_of_several_sources_are_merged_key_by_key(toml: Path) -> None:
    toml.write_text('[kafka]\n"a" = "file"\n"b" = "file"\n"c" = "file"')
    environ = {"ACCEPTANCE_KAFKA": "b=environment,d=x=y", "ACCEPTANCE_KAFKA_C": "one"}
    settings = given({"kafka": ("a=flag", "consumer.e=1,2")}, environ, toml)
    assert settings.kafka == {"a": "flag", "b": "environment", "c": "one", "d": "x=y"}
    assert settings.kafka_consumer == {"e": "1,2"}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("group.id", "g", "use the setting group"),
        ("bootstrap.servers", "k", "use the setting bootstrap_servers"),
        ("metadata.broker.list", "k", "use the setting bootstrap_servers"),
        ("auto.offset.reset", "latest", "use the setting start"),
        ("enable.auto.commit", "true", "only together with the records"),
        ("enable.auto.offset.store", "true", "only together with the records"),
        ("enable.partition.eof", "true", "the service itself detects"),
        ("transactional.id", "t", "use the setting transactional_id"),
        ("partitioner", "random", "subscribers"),
        ("isolation.level", "read_uncommitted", "must be read_committed"),
        ("enable.idempotence", "False", "must be true"),
        ("acks", "1", "must be all"),
        ("partition.assignment.strategy", "range", "must be cooperative-sticky"),
        ("request.required.acks", "0", "must be all"),
        ("client.id", 'a"b', "a quote"),
        ("client.id", "a\\b", "backslash"),
        ("client.id", "a\nb", "control character"),
    ],
)
@pytest.mark.parametrize("client", ["", "consumer.", "producer."])
def test_a_property_that_the_service_owns_is_refused_with_the_reason(
    key: str, value: str, reason: str, client: str
) -> None:
    problem = refused({"kafka": (f"{client}{key}={value}",)})
    assert key in problem
    assert reason in problem
    assert "(flag -X)" in problem


@pytest.mark.parametrize(
    "harmless",
    [
        "isolation.level=read_committed",
        "acks=-1",
        "acks=all",
        "enable.idempotence=TRUE",
        "client.id=pod-7 é",
    ],
)
def test_a_value_that_the_service_would_set_itself_is_accepted(harmless: str) -> None:
    assert len(given({"kafka": (harmless,)}).kafka) == 1


@pytest.mark.parametrize("name", ["debug", "sasl.password"])
def test_a_property_that_is_not_a_string_is_refused(toml: Path, name: str) -> None:
    toml.write_text(f'[kafka]\n{name} = ["hunter2"]')
    problem = refused({}, {}, toml)
    assert f"kafka.{name}" in problem
    assert problem.endswith("must be a string")
    assert ("hunter2" in problem) is (name == "debug")


def test_the_effective_settings_show_no_secret_and_everything_else() -> None:
    settings = given({"kafka": PROPERTIES, "fleet": "f"})
    shown = effective(settings)
    assert "hunter2" not in repr(shown)
    assert shown.keys() == fields().keys()
    assert shown["fleet"] == "f"
    kafka: Any = shown["kafka"]
    assert kafka["sasl.username"] == "reader"
    assert kafka["sasl.password"] == "[masked]"
    assert kafka["ssl.key.location"] == "/etc/key.pem"
    assert kafka["sasl.oauthbearer.client.id"] == "client"
    assert kafka["sasl.oauthbearer.token.endpoint.url"] == "https://[masked]@example.org/token"
    assert settings.kafka["sasl.password"] == "hunter2"


@pytest.mark.parametrize("secret", ["hunter2", "/hunter2", "/hunter2/9f="])
def test_a_secret_in_place_of_the_path_of_its_file_is_not_shown(secret: str) -> None:
    problem = refused({}, {"ACCEPTANCE_KAFKA_SASL_PASSWORD_FILE": secret})
    assert "is [masked]: names a file that cannot be read: No such file" in problem
    assert "hunter2" not in problem


def test_the_path_of_a_file_that_holds_a_secret_is_shown(tmp_path: Path) -> None:
    path = f"{tmp_path}/none"
    problem = refused({}, {"ACCEPTANCE_KAFKA_SASL_PASSWORD_FILE": path})
    assert f"is {path!r}: names a file that cannot be read: No such file" in problem
