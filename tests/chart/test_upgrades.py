"""What an upgrade may change: Helm would fail in the middle of it over an immutable field."""

from typing import Any

import pytest
import yaml

from tests.chart.chart import CHART, every_case, of_kind, one, rendered

pytestmark = pytest.mark.chart


def immutable(case: str) -> dict[str, Any]:
    options = ("--set", "fullnameOverride=acceptance,nameOverride=null")
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
def test_no_value_changes_what_cannot_be_changed(case: str) -> None:
    assert immutable(case) == immutable("minimal")
    assert immutable("minimal") == {
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


def test_a_new_version_of_the_chart_alone_restarts_nothing() -> None:
    template = one(rendered("production"), "StatefulSet")["spec"]["template"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    assert f"acceptance-consumer-{version}" not in str(template)


def test_a_change_of_the_settings_restarts_the_pods() -> None:
    def annotations(*options: str) -> dict[str, str]:
        pod = one(rendered("minimal", *options), "StatefulSet")["spec"]["template"]
        found: dict[str, str] = pod["metadata"]["annotations"]
        return found

    assert annotations() == annotations("--set", "replicas=3")
    assert annotations() != annotations("--set", "settings.idle_timeout=5m")


@every_case
def test_jobs_and_test_pods_are_recreated_each_time(case: str) -> None:
    for manifest in [*of_kind(rendered(case), "Job"), *of_kind(rendered(case), "Pod")]:
        policy = manifest["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert "before-hook-creation" in policy


def test_topics_outlive_the_release() -> None:
    for topic in of_kind(rendered("strimzi"), "KafkaTopic"):
        assert topic["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_no_name_is_too_long_for_the_labels_of_its_pods() -> None:
    text = "a-very-long-name-of-a-release-that-goes-on-and-on-for-long"
    workload = one(rendered("minimal", "--set", f"nameOverride={text}"), "StatefulSet")
    controller_revision_hash = 11
    assert len(workload["metadata"]["name"]) + controller_revision_hash <= 63


def test_the_chart_has_the_version_of_the_service() -> None:
    project = (CHART.parents[1] / "pyproject.toml").read_text()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
