"""The service reads exactly the settings that the chart renders."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from consumer.demo.embedded_broker import EmbeddedBroker
from consumer.kafka import client_config
from consumer.settings.settings import Settings
from consumer.settings.sources import load
from tests.chart.chart import (
    CASES,
    NAMESPACE,
    Manifest,
    every_case,
    one,
    pod_spec,
    rendered,
    spec,
    with_values,
)

pytestmark = pytest.mark.chart

DIRECTORY = "/etc/acceptance-consumer"


def environment(
    found: Sequence[Manifest],
    directory: Path,
    name: str = "acceptance-0",
    kind: str = "StatefulSet",
) -> Mapping[str, str]:
    """Write the files of a rendered container, with invented secrets, and return its variables.

    Args:
        found: the manifests.
        directory: replaces /etc/acceptance-consumer.
        name: the name of the pod.
        kind: the kind of the manifest whose pod is used.

    """
    pod = pod_spec(found, kind)
    for volume in pod["volumes"]:
        folder = directory / volume["name"]
        folder.mkdir(parents=True)
        if "configMap" in volume:
            for file, text in one(found, "ConfigMap", volume["configMap"]["name"])["data"].items():
                (folder / file).write_text(text.replace(DIRECTORY, str(directory)))
        for source in volume.get("projected", {}).get("sources", ()):
            [reference] = source.values()
            for item in reference["items"]:
                (folder / item["path"]).write_text(f"{reference['name']}/{item['key']}")
    known = {"metadata.name": name, "metadata.namespace": NAMESPACE}
    variables: dict[str, str] = {}
    for variable in pod["containers"][0]["env"]:
        value = (
            known[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            if "valueFrom" in variable
            else variable["value"].replace(DIRECTORY, str(directory))
        )
        # As the kubelet does: a reference sees the variables before it.
        value = re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], value)
        variables[variable["name"]] = value
    return variables


def settings(
    found: Sequence[Manifest],
    directory: Path,
    name: str = "acceptance-0",
    kind: str = "StatefulSet",
) -> Settings:
    """Return the settings that the service reads in a rendered pod."""
    return load({}, environment(found, directory, name, kind), None)


@every_case
def test_the_service_reads_its_settings(case: str, tmp_path: Path) -> None:
    values = yaml.safe_load(CASES[case].read_text())
    read = settings(rendered(case), tmp_path)
    assert read.bootstrap_servers == values["kafka"]["bootstrapServers"]
    assert read.topics == tuple(values["kafka"]["topics"])
    for name, value in values.get("settings", {}).items():
        if isinstance(value, dict):
            assert getattr(read, name) == value
    # The grace period leaves time for a shutdown.
    grace_period = pod_spec(rendered(case))["terminationGracePeriodSeconds"]
    assert grace_period >= read.shutdown_timeout + 10


def test_a_minimal_release_has_the_defaults_of_the_service(tmp_path: Path) -> None:
    assert settings(rendered("minimal"), tmp_path) == Settings(
        bootstrap_servers="kafka:9092",
        topics=("serving-responses",),
        transactional_id="acceptance-consumer-serving.acceptance-0",
        kafka_consumer={"group.instance.id": "serving.acceptance-0"},
    )


def test_values_of_every_type_arrive(tmp_path: Path) -> None:
    read = settings(rendered("production"), tmp_path / "production")
    assert read.topics == ("serving-responses", "batch-responses")
    assert read.idle_timeout == 300
    assert read.commit_interval == 0.25
    assert read.max_reread == 5_000_000
    assert read.labels == {"site": "fra", "tier": "1"}
    assert read.response_types == ("org.kubeflow.serving.inference.response",)
    assert read.kafka_consumer["fetch.max.bytes"] == "10485760"
    read = settings(rendered("everything"), tmp_path / "everything")
    assert read.start == 1_767_225_600_000
    assert read.skip == ("serving-responses:3:81724",)
    assert read.paths == {"request_id": "meta.id", "body": "payload"}
    assert read.max_stats_bytes == 2 << 20
    assert read.delivery == "at_least_once"
    assert read.kafka_producer == {"linger.ms": "20"}


@pytest.mark.parametrize(
    ("option", "name", "expected"),
    [
        (
            'settings.labels={"a": "comma, quote \\" and \\\\ and {{ braces }}"}',
            "labels",
            {"a": 'comma, quote " and \\ and {{ braces }}'},
        ),
        ('kafka.topics=["^a{1,3}[.]$"]', "topics", ("^a{1,3}[.]$",)),
        ("settings.fleet=null", "fleet", None),
    ],
)
def test_special_characters_and_null_arrive_unchanged(
    option: str, name: str, expected: object, tmp_path: Path
) -> None:
    read = settings(rendered("minimal", "--set-json", option), tmp_path)
    assert getattr(read, name) == expected


def test_secrets_arrive_from_files_and_are_in_no_manifest(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    assert settings(rendered("sasl-tls"), tmp_path).kafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "kafka-user/username",
        "sasl.password": "kafka-user/password",
        "ssl.ca.location": str(credentials / "ca.crt"),
        "ssl.certificate.location": str(credentials / "tls.crt"),
        "ssl.key.location": str(credentials / "tls.key"),
        "ssl.key.password": "kafka-client-password/password",
        "client.rack": "a",
    }
    assert (credentials / "ca.crt").read_text() == "trust-bundle/bundle.pem"
    assert (credentials / "tls.key").read_text() == "kafka-client/tls.key"


def test_the_service_uses_the_user_that_strimzi_creates(tmp_path: Path) -> None:
    kafka = settings(rendered("strimzi"), tmp_path).kafka
    user = one(rendered("strimzi"), "KafkaUser")["metadata"]["name"]
    assert kafka["sasl.mechanism"] == "SCRAM-SHA-512"
    assert kafka["sasl.username"] == user
    assert kafka["sasl.password"] == f"{user}/password"
    assert Path(kafka["ssl.ca.location"]).read_text() == "main-cluster-ca-cert/ca.crt"


def test_the_service_uses_the_certificate_that_strimzi_creates(tmp_path: Path) -> None:
    options = "strimzi.user.authentication=tls,kafka.security.protocol=SSL"
    kafka = settings(with_values("strimzi", options), tmp_path).kafka
    assert "sasl.mechanism" not in kafka
    assert Path(kafka["ssl.key.location"]).read_text().endswith("/user.key")


def test_another_user_may_create_the_topics(tmp_path: Path) -> None:
    kafka = settings(rendered("sasl-tls"), tmp_path / "own", kind="Job").kafka
    assert kafka["sasl.username"] == "kafka-admin/username"
    assert kafka["ssl.certificate.location"]
    # With the user that Strimzi creates, it needs no mechanism of its own.
    created_by_admin = (
        "strimzi.topics.enabled=false,topicJob.enabled=true,topicJob.existingSecret=kafka-admin"
    )
    found = with_values("strimzi", created_by_admin)
    kafka = settings(found, tmp_path / "strimzi", kind="Job").kafka
    assert kafka["sasl.mechanism"] == "SCRAM-SHA-512"
    assert kafka["sasl.username"] == "kafka-admin/username"


def acls(*values: str) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """Return type, name, pattern and operations of each right of the KafkaUser."""
    user = spec(with_values("strimzi", *values), "KafkaUser")
    return {
        (
            *(acl["resource"][key] for key in ("type", "name", "patternType")),
            tuple(acl["operations"]),
        )
        for acl in user["authorization"]["acls"]
    }


def test_the_kafka_user_has_the_rights_of_the_documents_and_no_more() -> None:
    output = ("Write", "Describe", "DescribeConfigs")
    prefix = "acceptance-consumer-serving.acceptance-consumer-"
    assert acls("fullnameOverride=acceptance-consumer") == {
        ("topic", "serving-responses", "literal", ("Read", "Describe")),
        ("topic", "acceptance-records", "literal", output),
        ("topic", "acceptance-dead-letters", "literal", output),
        ("group", "acceptance-consumer", "literal", ("Read",)),
        ("transactionalId", prefix, "prefix", ("Write", "Describe")),
    }


def test_the_rights_cover_the_transactional_id_of_every_pod(tmp_path: Path) -> None:
    [prefix] = (name for kind, name, _, _ in acls() if kind == "transactionalId")
    name = one(rendered("strimzi"), "StatefulSet")["metadata"]["name"]
    read = settings(rendered("strimzi"), tmp_path, f"{name}-2")
    assert client_config.transactional_id(read).startswith(prefix)


@pytest.mark.parametrize(
    ("written", "seconds"), [("20s", 30), ("1m", 70), ("1500ms", 12), ("30", 40), ("0.1h", 370)]
)
def test_the_grace_period_follows_from_the_timeout(written: str, seconds: int) -> None:
    found = with_values("minimal", f"settings.shutdown_timeout={written}")
    assert pod_spec(found)["terminationGracePeriodSeconds"] == seconds


def test_run_check_accepts_a_rendered_pod(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topics(["serving-responses", "eu.records", "eu.dead"])
        servers = broker.bootstrap_servers.replace(",", "\\,")
        # The embedded broker supports neither TLS nor transactions.
        found = with_values(
            "everything",
            "kafka.security.protocol=PLAINTEXT,strimzi.user.enabled=false",
            f"kafka.bootstrapServers={servers}",
        )
        checked = subprocess.run(
            [sys.executable, "-m", "consumer", "run", "--check"],
            env={"PATH": os.environ["PATH"], **environment(found, tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert checked.returncode == 0, checked.stderr
    assert "all topics exist" in checked.stdout
