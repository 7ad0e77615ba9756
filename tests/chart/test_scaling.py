"""How KEDA scales the service: by the lag of its group, as its user, slowly."""

import pytest

from tests.chart.chart import one, rendered, spec, with_values

pytestmark = pytest.mark.chart


def test_the_statefulset_leaves_the_replicas_to_keda() -> None:
    assert "replicas" not in spec(rendered("keda"), "StatefulSet")


def test_every_topic_is_a_trigger_on_the_lag_of_the_group_with_the_secrets_of_the_service() -> None:
    found = rendered("keda")
    authentication = one(found, "TriggerAuthentication")
    assert authentication["spec"] == {
        "secretTargetRef": [
            {"parameter": "username", "name": "kafka-user", "key": "username"},
            {"parameter": "password", "name": "kafka-user", "key": "password"},
            {"parameter": "ca", "name": "kafka-ca", "key": "ca.crt"},
        ]
    }
    triggers = spec(found, "ScaledObject")["triggers"]
    topics = [trigger["metadata"]["topic"] for trigger in triggers]
    assert topics == ["serving-responses", "batch-responses"]
    for trigger in triggers:
        assert trigger["metadata"].items() >= {
            ("lagThreshold", "200000"),
            ("offsetResetPolicy", "latest"),
            ("allowIdleConsumers", "false"),
            ("sasl", "plaintext"),
            ("tls", "enable"),
        }
        assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]


def test_keda_gets_the_name_of_the_user_that_strimzi_creates() -> None:
    found = with_values("strimzi", "keda.enabled=true")
    [reference] = spec(found, "TriggerAuthentication")["configMapTargetRef"]
    config_map = one(found, "ConfigMap")
    assert reference["name"] == config_map["metadata"]["name"]
    assert config_map["data"][reference["key"]] == one(found, "KafkaUser")["metadata"]["name"]


def test_keda_removes_pods_slowly_and_adds_them_only_for_a_lag_that_stays() -> None:
    advanced = spec(rendered("keda"), "ScaledObject")["advanced"]
    behaviour = advanced["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleUp"]["stabilizationWindowSeconds"] >= 60
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] >= 300
    slow = {"type": "Pods", "value": 1, "periodSeconds": 120}
    assert behaviour["scaleDown"]["policies"] == [slow]
