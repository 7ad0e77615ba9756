"""What a rendered release may do on its cluster: as little as it can."""

import pytest

from tests.chart.chart import (
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

    @pytest.mark.parametrize(
        ("servers", "port"),
        [
            ("kafka-0", 9092),
            ("10.0.0.1", 9092),
            ("kafka-0:9096", 9096),
            ("[fd00::1]", 9092),
            ("[fd00::1]:9096", 9096),
            ("SASL_SSL://kafka-0:9096", 9096),
        ],
    )
    def test_a_number_in_a_brokers_name_is_no_port(self, servers: str, port: int) -> None:
        options = f"networkPolicy.enabled=true,kafka.bootstrapServers={servers}"
        spec = one(rendered("minimal", "--set", options), "NetworkPolicy")["spec"]
        assert spec["egress"][1]["ports"] == [{"port": port, "protocol": "TCP"}]

    def test_who_may_scrape_can_be_said(self) -> None:
        [ingress] = one(rendered("production"), "NetworkPolicy")["spec"]["ingress"]
        assert [port["port"] for port in ingress["ports"]] == [8080]
        own, monitoring = ingress["from"]
        assert own["podSelector"]
        assert monitoring["namespaceSelector"]
