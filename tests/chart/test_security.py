"""The rights of a rendered release on its cluster: as few as possible."""

import pytest

from tests.chart.chart import every_case, of_kind, pod_specs, rendered, spec, with_values

pytestmark = pytest.mark.chart

ALLOWED_VOLUMES = {"configMap", "emptyDir", "projected", "secret"}


@every_case
def test_every_pod_meets_the_restricted_standard(case: str) -> None:
    for pod in pod_specs(rendered(case)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all(volume.keys() - {"name"} <= ALLOWED_VOLUMES for volume in pod["volumes"])
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert "hostPort" not in str(container.get("ports"))
            if "acceptance-consumer" in container["image"]:
                assert context["readOnlyRootFilesystem"] is True
                assert all(mount["readOnly"] for mount in container.get("volumeMounts", ()))


@every_case
def test_no_pod_has_a_token_a_secret_in_a_variable_or_the_services_of_its_namespace(
    case: str,
) -> None:
    assert not of_kind(rendered(case), "Secret")
    for pod in pod_specs(rendered(case)):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            for variable in container.get("env", ()):
                assert "secretKeyRef" not in variable.get("valueFrom", {})
    for account in of_kind(rendered(case), "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_every_optional_object_is_off_by_default() -> None:
    kinds = {manifest["kind"] for manifest in rendered("minimal")}
    # `helm test` creates the Pod on request.
    assert kinds == {"ConfigMap", "Pod", "Service", "ServiceAccount", "StatefulSet"}


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
def test_one_value_enables_each_optional_object(value: str, kind: str) -> None:
    assert len(of_kind(with_values("minimal", value), kind)) == 1


class TestNetworkPolicy:
    def test_pods_reach_only_brokers_dns_and_each_other(self) -> None:
        policy = spec(rendered("production"), "NetworkPolicy")
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        dns, brokers, own = policy["egress"]
        assert {port["port"] for port in dns["ports"]} == {53}
        assert [port["port"] for port in brokers["ports"]] == [9092]
        assert own["to"]
        assert own["ports"][0]["port"] == 8080

    def test_the_given_peers_may_scrape(self) -> None:
        [ingress] = spec(rendered("production"), "NetworkPolicy")["ingress"]
        assert [port["port"] for port in ingress["ports"]] == [8080]
        own, monitoring = ingress["from"]
        assert own["podSelector"]
        assert monitoring["namespaceSelector"]

    def test_the_ports_of_the_bootstrap_servers_are_open_beside_the_given_ones(self) -> None:
        egress = spec(rendered("everything"), "NetworkPolicy")["egress"]
        assert [port["port"] for port in egress[1]["ports"]] == [9094, 9093]
        assert egress[-1] == {"ports": [{"port": 443, "protocol": "TCP"}]}

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
    def test_a_number_in_the_name_of_a_broker_is_not_a_port(self, servers: str, port: int) -> None:
        options = f"networkPolicy.enabled=true,kafka.bootstrapServers={servers}"
        egress = spec(with_values("minimal", options), "NetworkPolicy")["egress"]
        assert egress[1]["ports"] == [{"port": port, "protocol": "TCP"}]
