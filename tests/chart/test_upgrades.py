"""The changes that an upgrade may make: Helm would fail midway over an immutable field."""

from typing import Any

import pytest
import yaml

from tests.chart.chart import CHART, every_case, of_kind, rendered, spec, with_values

pytestmark = pytest.mark.chart

CHANGEABLE = {
    *("replicas", "ordinals", "template", "updateStrategy", "minReadySeconds"),
    *("persistentVolumeClaimRetentionPolicy", "revisionHistoryLimit"),
}


def immutable(case: str) -> dict[str, Any]:
    found = with_values(case, "fullnameOverride=acceptance,nameOverride=null")
    return {
        name: value for name, value in spec(found, "StatefulSet").items() if name not in CHANGEABLE
    }


@every_case
def test_no_value_changes_an_immutable_field(case: str) -> None:
    assert immutable(case) == {
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


def test_a_new_version_of_the_chart_alone_restarts_no_pod() -> None:
    template = spec(rendered("production"), "StatefulSet")["template"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    assert f"acceptance-consumer-{version}" not in str(template)


def test_a_change_of_the_settings_restarts_the_pods() -> None:
    def annotations(*values: str) -> Any:
        found = with_values("minimal", *values)
        return spec(found, "StatefulSet")["template"]["metadata"]["annotations"]

    assert annotations() == annotations("replicas=3")
    assert annotations() != annotations("settings.idle_timeout=5m")


@every_case
def test_helm_recreates_jobs_and_test_pods_each_time(case: str) -> None:
    for manifest in of_kind(rendered(case), "Job", "Pod"):
        policy = manifest["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert "before-hook-creation" in policy


def test_topics_outlive_the_release() -> None:
    for topic in of_kind(rendered("strimzi"), "KafkaTopic"):
        assert topic["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_no_name_is_too_long_for_the_labels_of_its_pods() -> None:
    long = "a-very-long-name-of-a-release-that-goes-on-and-on-for-long"
    [workload] = of_kind(with_values("minimal", f"nameOverride={long}"), "StatefulSet")
    controller_revision_hash = 11
    assert len(workload["metadata"]["name"]) + controller_revision_hash <= 63


def test_the_chart_has_the_version_of_the_service() -> None:
    project = (CHART.parents[1] / "pyproject.toml").read_text()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
