"""What the chart renders is what the service reads."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer.demo.embedded_broker import EmbeddedBroker
from consumer.kafka.client_config import transactional_id
from consumer.settings.settings import Settings, load
from tests.chart.chart import (
    CASES,
    NAMESPACE,
    Manifest,
    every_case,
    manifests,
    of_kind,
    one,
    rendered,
    template,
)

pytestmark = pytest.mark.chart

DIRECTORY = "/etc/acceptance-consumer"
CREATED_BY_ADMIN = (
    "strimzi.topics.enabled=false,topicJob.enabled=true,topicJob.existingSecret=kafka-admin"
)


class Pod:
    """The environment and files of a rendered pod's container, with its secrets made up.

    Args:
        found: the manifests.
        directory: replaces /etc/acceptance-consumer.
        name: the pod's name.
        spec: the pod's specification; that of the service if not given.

    """

    def __init__(
        self,
        found: Sequence[Manifest],
        directory: Path,
        name: str = "acceptance-0",
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        if spec is None:
            spec = one(found, "StatefulSet")["spec"]["template"]["spec"]
        for volume in spec["volumes"]:
            folder = directory / volume["name"]
            if "configMap" in volume:
                config_map = next(
                    manifest
                    for manifest in of_kind(found, "ConfigMap")
                    if manifest["metadata"]["name"] == volume["configMap"]["name"]
                )
                folder.mkdir()
                for file, text in config_map["data"].items():
                    (folder / file).write_text(text.replace(DIRECTORY, str(directory)))
            elif "projected" in volume:
                folder.mkdir()
                for source in volume["projected"]["sources"]:
                    [(_, reference)] = source.items()
                    for item in reference["items"]:
                        text = f"{reference['name']}/{item['key']}"
                        (folder / item["path"]).write_text(text)
        known = {"metadata.name": name, "metadata.namespace": NAMESPACE}
        self.environment: dict[str, str] = {}
        for variable in spec["containers"][0]["env"]:
            value = (
                known[variable["valueFrom"]["fieldRef"]["fieldPath"]]
                if "valueFrom" in variable
                else variable["value"].replace(DIRECTORY, str(directory))
            )
            # As the kubelet does: of what stands before.
            self.environment[variable["name"]] = re.sub(
                r"\$\((\w+)\)", lambda match: self.environment[match[1]], value
            )

    def settings(self) -> Settings:
        """Read the settings as the service does."""
        return load({}, self.environment, None)


@every_case
def test_the_service_takes_its_settings(case: str, tmp_path: Path) -> None:
    values = yaml.safe_load(CASES[case].read_text())
    settings = Pod(rendered(case), tmp_path).settings()
    assert settings.bootstrap_servers == values["kafka"]["bootstrapServers"]
    assert settings.topics == tuple(values["kafka"]["topics"])
    for name, value in values.get("settings", {}).items():
        if isinstance(value, dict):
            assert getattr(settings, name) == value


def test_a_minimal_release_has_the_services_own_defaults(tmp_path: Path) -> None:
    settings = Pod(rendered("minimal"), tmp_path).settings()
    given = {
        "bootstrap_servers": "kafka:9092",
        "topics": ("serving-responses",),
        "transactional_id": "acceptance-consumer-serving.acceptance-0",
        "kafka_consumer": {"group.instance.id": "serving.acceptance-0"},
    }
    assert settings == Settings(**given)  # type: ignore[arg-type]


def test_values_of_every_type_arrive(tmp_path: Path) -> None:
    production = tmp_path / "production"
    production.mkdir()
    settings = Pod(rendered("production"), production).settings()
    assert settings.topics == ("serving-responses", "batch-responses")
    assert settings.idle_timeout == 300
    assert settings.commit_interval == 0.25
    assert settings.max_reread == 5_000_000
    assert settings.labels == {"site": "fra", "tier": "1"}
    assert settings.response_types == ("org.kubeflow.serving.inference.response",)
    assert settings.kafka_consumer["fetch.max.bytes"] == "10485760"
    everything = tmp_path / "everything"
    everything.mkdir()
    settings = Pod(rendered("everything"), everything).settings()
    assert settings.start == 1_767_225_600_000
    assert settings.skip == ("serving-responses:3:81724",)
    assert settings.paths == {"request_id": "meta.id", "body": "payload"}
    assert settings.max_stats_bytes == 2 << 20
    assert settings.delivery == "at_least_once"
    assert settings.kafka_producer == {"linger.ms": "20"}


@pytest.mark.parametrize(
    "option",
    [
        'labels={"a": "comma, quote \\" and \\\\ and {{ braces }}"}',
        'topics=["^a{1,3}[.]$"]',
    ],
)
def test_signs_that_mean_something_elsewhere_arrive_as_they_are(
    option: str, tmp_path: Path
) -> None:
    name, _, value = option.partition("=")
    path = "kafka.topics" if name == "topics" else f"settings.{name}"
    text = template("--values", CASES["minimal"], "--set-json", f"{path}={value}")
    settings = Pod(list(manifests(text)), tmp_path).settings()
    expected = {
        "labels": {"a": 'comma, quote " and \\ and {{ braces }}'},
        "topics": ("^a{1,3}[.]$",),
    }
    assert getattr(settings, name) == expected[name]


def test_a_setting_without_a_value_has_its_default(tmp_path: Path) -> None:
    text = template("--values", CASES["minimal"], "--set-json", "settings.fleet=null")
    assert Pod(list(manifests(text)), tmp_path).settings().fleet is None


def test_secrets_arrive_from_files_and_stand_in_no_manifest(tmp_path: Path) -> None:
    pod = Pod(rendered("sasl-tls"), tmp_path)
    credentials = tmp_path / "credentials"
    assert pod.settings().kafka == {
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


def test_the_user_that_strimzi_makes_is_used(tmp_path: Path) -> None:
    pod = Pod(rendered("strimzi"), tmp_path)
    user = one(rendered("strimzi"), "KafkaUser")["metadata"]["name"]
    kafka = pod.settings().kafka
    assert kafka["sasl.mechanism"] == "SCRAM-SHA-512"
    assert kafka["sasl.username"] == user
    assert kafka["sasl.password"] == f"{user}/password"
    assert Path(kafka["ssl.ca.location"]).read_text() == "main-cluster-ca-cert/ca.crt"


def test_a_certificate_that_strimzi_makes_is_used(tmp_path: Path) -> None:
    found = rendered(
        *("strimzi", "--set", "strimzi.user.authentication=tls,kafka.security.protocol=SSL")
    )
    kafka = Pod(found, tmp_path).settings().kafka
    assert "sasl.mechanism" not in kafka
    assert Path(kafka["ssl.key.location"]).read_text().endswith("/user.key")


def test_the_job_that_creates_topics_may_be_another_user(tmp_path: Path) -> None:
    found = rendered("sasl-tls")
    job = one(found, "Job")["spec"]["template"]["spec"]
    kafka = Pod(found, tmp_path, spec=job).settings().kafka
    assert kafka["sasl.username"] == "kafka-admin/username"
    assert kafka["ssl.certificate.location"]


def test_that_user_needs_no_mechanism_beside_the_user_that_strimzi_makes(tmp_path: Path) -> None:
    found = rendered("strimzi", "--set", CREATED_BY_ADMIN)
    job = one(found, "Job")["spec"]["template"]["spec"]
    kafka = Pod(found, tmp_path, spec=job).settings().kafka
    assert kafka["sasl.mechanism"] == "SCRAM-SHA-512"
    assert kafka["sasl.username"] == "kafka-admin/username"


class TestRights:
    """The KafkaUser may do what helm/README.md lists, on what this release uses, and no more."""

    def acls(self, *options: str) -> set[tuple[str, str, str, tuple[str, ...]]]:
        user = one(rendered("strimzi", *options), "KafkaUser")
        return {
            (
                acl["resource"]["type"],
                acl["resource"]["name"],
                acl["resource"]["patternType"],
                tuple(acl["operations"]),
            )
            for acl in user["spec"]["authorization"]["acls"]
        }

    def test_they_are_the_least(self) -> None:
        prefix = "acceptance-consumer-serving.acceptance-consumer-"
        output = ("Write", "Describe", "DescribeConfigs")
        options = ("--set", "fullnameOverride=acceptance-consumer")
        assert self.acls(*options) == {
            ("topic", "serving-responses", "literal", ("Read", "Describe")),
            ("topic", "acceptance-records", "literal", output),
            ("topic", "acceptance-dead-letters", "literal", output),
            ("group", "acceptance-consumer", "literal", ("Read",)),
            ("transactionalId", prefix, "prefix", ("Write", "Describe")),
        }

    def test_the_transactional_id_of_every_pod_is_among_them(self, tmp_path: Path) -> None:
        [prefix] = (name for kind, name, _, _ in self.acls() if kind == "transactionalId")
        name = one(rendered("strimzi"), "StatefulSet")["metadata"]["name"]
        settings = Pod(rendered("strimzi"), tmp_path, f"{name}-2").settings()
        assert transactional_id(settings).startswith(prefix)


def test_the_grace_period_leaves_time_for_a_stop(tmp_path: Path) -> None:
    for case in CASES:
        directory = tmp_path / case
        directory.mkdir()
        spec = one(rendered(case), "StatefulSet")["spec"]["template"]["spec"]
        timeout = Pod(rendered(case), directory).settings().shutdown_timeout
        assert spec["terminationGracePeriodSeconds"] >= timeout + 10


@pytest.mark.parametrize(
    ("written", "seconds"), [("20s", 30), ("1m", 70), ("1500ms", 12), ("30", 40), ("0.1h", 370)]
)
def test_the_grace_period_follows_from_the_timeout(written: str, seconds: int) -> None:
    option = f"settings.shutdown_timeout={written}"
    spec = one(rendered("minimal", "--set", option), "StatefulSet")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == seconds


def test_run_check_is_content_with_a_rendered_pod(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topics(["serving-responses", "eu.records", "eu.dead"])
        option = f"kafka.bootstrapServers={broker.bootstrap_servers}"
        # The embedded broker knows neither TLS nor transactions.
        text = template(
            *("--values", CASES["everything"]),
            *("--set", "kafka.security.protocol=PLAINTEXT,strimzi.user.enabled=false"),
            *("--set", option.replace(",", "\\,")),
        )
        pod = Pod(list(manifests(text)), tmp_path)
        checked = subprocess.run(
            [sys.executable, "-m", "consumer", "run", "--check"],
            env={"PATH": os.environ["PATH"], **pod.environment},
            capture_output=True,
            text=True,
            check=False,
        )
    assert checked.returncode == 0, checked.stderr
    assert "all topics exist" in checked.stdout
