"""What a rendered release may do on its cluster: as little as it can."""

from typing import Any

import pytest
import yaml

from tests.helm.chart import (
    CHART,
    every_case,
    of_kind,
    one,
    pod_specs,
    rendered,
)

pytestmark = pytest.mark.chart


ALLOWED_VOLUMES = {"configMap", "emptyDir", "projected", "secret"}


@every_case
def test_every_pod_meets_the_restricted_standard(case: str) -> None:
    for name, spec in pod_specs(rendered(case)):
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True, name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert all(volume.keys() - {"name"} <= ALLOWED_VOLUMES for volume in spec["volumes"]), name
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"]["drop"] == ["ALL"], name
            assert "hostPort" not in str(container.get("ports")), name


@every_case
def test_the_services_own_containers_cannot_write(case: str) -> None:
    for name, spec in pod_specs(rendered(case)):
        for container in spec["containers"]:
            if "acceptance-consumer" in container["image"]:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
                assert all(mount["readOnly"] for mount in container.get("volumeMounts", ())), name


@every_case
def test_no_pod_has_a_token_or_the_services_of_its_namespace(case: str) -> None:
    for name, spec in pod_specs(rendered(case)):
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
    for account in of_kind(rendered(case), "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


@every_case
def test_no_secret_is_made_and_none_stands_in_a_variable(case: str) -> None:
    assert not of_kind(rendered(case), "Secret")
    for name, spec in pod_specs(rendered(case)):
        for container in spec["containers"]:
            for variable in container.get("env", ()):
                assert "secretKeyRef" not in variable.get("valueFrom", {}), name


def test_everything_optional_is_off_by_default() -> None:
    assert {manifest["kind"] for manifest in rendered("minimal")} == {
        "ConfigMap",
        "Pod",  # Of `helm test`, made when it is asked for.
        "Service",
        "ServiceAccount",
        "StatefulSet",
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("replicas=2", "PodDisruptionBudget"),
        ("networkPolicy.enabled=true", "NetworkPolicy"),
        ("metrics.podMonitor.enabled=true", "PodMonitor"),
        ("metrics.serviceMonitor.enabled=true", "ServiceMonitor"),
        ("keda.enabled=true", "ScaledObject"),
        ("topicJob.enabled=true", "Job"),
    ],
)
def test_each_optional_thing_works_with_one_value(value: str, kind: str) -> None:
    assert len(of_kind(rendered("minimal", "--set", value), kind)) == 1


class TestNetworkPolicy:
    def test_only_brokers_names_and_its_own_pods_are_reached(self) -> None:
        spec = one(rendered("production"), "NetworkPolicy")["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        names, brokers, own = spec["egress"]
        assert {port["port"] for port in names["ports"]} == {53}
        assert [port["port"] for port in brokers["ports"]] == [9092]
        assert own["to"]
        assert own["ports"][0]["port"] == 8080

    def test_ports_of_the_bootstrap_servers_are_open_beside_those_that_are_given(self) -> None:
        spec = one(rendered("everything"), "NetworkPolicy")["spec"]
        assert [port["port"] for port in spec["egress"][1]["ports"]] == [9094, 9093]
        assert spec["egress"][-1] == {"ports": [{"port": 443, "protocol": "TCP"}]}

    def test_who_may_scrape_can_be_said(self) -> None:
        [ingress] = one(rendered("production"), "NetworkPolicy")["spec"]["ingress"]
        assert [port["port"] for port in ingress["ports"]] == [8080]
        own, monitoring = ingress["from"]
        assert own["podSelector"]
        assert monitoring["namespaceSelector"]


class TestScaling:
    def test_the_statefulset_leaves_the_replicas_to_keda(self) -> None:
        assert "replicas" not in one(rendered("keda"), "StatefulSet")["spec"]

    def test_every_topic_is_a_trigger_with_the_groups_lag(self) -> None:
        spec = one(rendered("keda"), "ScaledObject")["spec"]
        assert [trigger["metadata"]["topic"] for trigger in spec["triggers"]] == [
            "serving-responses",
            "batch-responses",
        ]
        for trigger in spec["triggers"]:
            assert trigger["metadata"]["lagThreshold"] == "200000"
            assert trigger["metadata"]["offsetResetPolicy"] == "latest"
            assert trigger["metadata"]["allowIdleConsumers"] == "false"
            assert (trigger["metadata"]["sasl"], trigger["metadata"]["tls"]) == (
                "plaintext",
                "enable",
            )

    def test_keda_uses_the_secrets_of_the_service(self) -> None:
        found = rendered("keda")
        authentication = one(found, "TriggerAuthentication")
        assert authentication["spec"] == {
            "secretTargetRef": [
                {"parameter": "username", "name": "kafka-user", "key": "username"},
                {"parameter": "password", "name": "kafka-user", "key": "password"},
                {"parameter": "ca", "name": "kafka-ca", "key": "ca.crt"},
            ]
        }
        for trigger in one(found, "ScaledObject")["spec"]["triggers"]:
            assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]

    def test_keda_gets_the_name_of_the_user_that_strimzi_makes(self) -> None:
        found = rendered("strimzi", "--set", "keda.enabled=true")
        [reference] = one(found, "TriggerAuthentication")["spec"]["configMapTargetRef"]
        config_map = one(found, "ConfigMap")
        assert reference["name"] == config_map["metadata"]["name"]
        assert config_map["data"][reference["key"]] == one(found, "KafkaUser")["metadata"]["name"]

    def test_a_pod_is_taken_away_slowly_and_added_only_for_a_lag_that_stays(self) -> None:
        spec = one(rendered("keda"), "ScaledObject")["spec"]
        behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert behaviour["scaleUp"]["stabilizationWindowSeconds"] >= 60
        assert behaviour["scaleDown"]["stabilizationWindowSeconds"] >= 300
        assert behaviour["scaleDown"]["policies"] == [
            {"type": "Pods", "value": 1, "periodSeconds": 120}
        ]


class TestUpgrades:
    """A StatefulSet's identity cannot be changed; Helm would fail in the middle of an upgrade."""

    @staticmethod
    def immutable(case: str, *options: str) -> dict[str, Any]:
        options = ("--set", "fullnameOverride=acceptance,nameOverride=null", *options)
        spec = one(rendered(case, *options), "StatefulSet")["spec"]
        changeable = (
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
            "revisionHistoryLimit",
        )
        return {name: value for name, value in spec.items() if name not in changeable}

    @every_case
    def test_no_value_changes_what_cannot_be_changed(self, case: str) -> None:
        assert self.immutable(case) == self.immutable("minimal")
        assert self.immutable("minimal") == {
            "serviceName": "acceptance",
            "podManagementPolicy": "Parallel",
            "selector": {
                "matchLabels": {
                    "app.kubernetes.io/name": "acceptance-consumer",
                    "app.kubernetes.io/instance": "acceptance",
                    "app.kubernetes.io/component": "consumer",
                }
            },
        }

    def test_a_new_version_of_the_chart_alone_restarts_nothing(self) -> None:
        template = one(rendered("production"), "StatefulSet")["spec"]["template"]
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
        assert f"acceptance-consumer-{version}" not in str(template)

    def test_a_change_of_the_settings_restarts_the_pods(self) -> None:
        def annotations(*options: str) -> dict[str, str]:
            pod = one(rendered("minimal", *options), "StatefulSet")["spec"]["template"]
            found: dict[str, str] = pod["metadata"]["annotations"]
            return found

        assert annotations() == annotations("--set", "replicas=3")
        assert annotations() != annotations("--set", "settings.idle_timeout=5m")

    @every_case
    def test_jobs_and_test_pods_are_made_anew_each_time(self, case: str) -> None:
        for manifest in [*of_kind(rendered(case), "Job"), *of_kind(rendered(case), "Pod")]:
            policy = manifest["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            assert "before-hook-creation" in policy

    def test_topics_outlive_the_release(self) -> None:
        for topic in of_kind(rendered("strimzi"), "KafkaTopic"):
            assert topic["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"

    def test_no_name_is_too_long_for_the_labels_of_its_pods(self) -> None:
        text = "a-very-long-name-of-a-release-that-goes-on-and-on-for-long"
        workload = one(rendered("minimal", "--set", f"nameOverride={text}"), "StatefulSet")
        controller_revision_hash = 11
        assert len(workload["metadata"]["name"]) + controller_revision_hash <= 63

    def test_the_chart_has_the_version_of_the_service(self) -> None:
        project = (CHART.parents[1] / "pyproject.toml").read_text()
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        assert f'\nversion = "{chart["appVersion"]}"\n' in project


def test_values_and_schema_have_the_same_names() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def compare(value: dict[str, Any], described: dict[str, Any], path: str) -> None:
        if not described.get("properties") or path in ("/settings", "/resources"):
            return
        assert value.keys() == described["properties"].keys() - {"global"}, path
        for name, member in value.items():
            if isinstance(member, dict):
                compare(member, described["properties"][name], f"{path}/{name}")

    compare(values, schema, "")
