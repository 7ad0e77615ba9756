"""How KEDA scales the service: on the lag of its group, as its user, slowly."""

import pytest

from tests.chart.chart import one, rendered

pytestmark = pytest.mark.chart


def test_the_statefulset_leaves_the_replicas_to_keda() -> None:
    assert "replicas" not in one(rendered("keda"), "StatefulSet")["spec"]


def test_every_topic_is_a_trigger_with_the_groups_lag() -> None:
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


def test_keda_uses_the_secrets_of_the_service() -> None:
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


def test_keda_gets_the_name_of_the_user_that_strimzi_makes() -> None:
    found = rendered("strimzi", "--set", "keda.enabled=true")
    [reference] = one(found, "TriggerAuthentication")["spec"]["configMapTargetRef"]
    config_map = one(found, "ConfigMap")
    assert reference["name"] == config_map["metadata"]["name"]
    assert config_map["data"][reference["key"]] == one(found, "KafkaUser")["metadata"]["name"]


def test_a_pod_is_taken_away_slowly_and_added_only_for_a_lag_that_stays() -> None:
    spec = one(rendered("keda"), "ScaledObject")["spec"]
    behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleUp"]["stabilizationWindowSeconds"] >= 60
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] >= 300
    assert behaviour["scaleDown"]["policies"] == [
        {"type": "Pods", "value": 1, "periodSeconds": 120}
    ]
