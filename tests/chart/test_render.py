"""The chart renders with both Helms, to manifests that Kubernetes and its operators accept."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator

from tests.chart import golden
from tests.chart.chart import (
    CASES,
    CHART,
    NAMESPACE,
    RELEASE,
    Manifest,
    every_case,
    every_helm,
    helm,
    manifests,
    of_kind,
    one,
    rendered,
    spec,
    with_fixtures,
)
from tests.paths import ROOT

pytestmark = pytest.mark.chart

KUBERNETES = ("1.29", "1.37")
CUSTOM = {path.stem: path for path in (ROOT / "helm" / "crd-schemas").glob("*.json")}


@every_helm
def test_helm_has_the_expected_version(major: str) -> None:
    assert helm(major, "version", "--short").startswith(f"v{major}.")


@every_helm
@every_case
def test_lint_finds_nothing(case: str, major: str) -> None:
    assert "0 chart(s) failed" in helm(major, "lint", "--strict", CHART, "--values", CASES[case])


@pytest.fixture(scope="module")
def fixed_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_fixtures(tmp_path_factory.mktemp("chart"))


@every_helm
@every_case
def test_the_rendering_is_the_reviewed_one(case: str, major: str, fixed_chart: Path) -> None:
    # Parsed, because Helm 4 writes other blank lines.
    expected = manifests(golden.path(case).read_text())
    assert rendered(case, major=major, chart=fixed_chart) == expected, (
        "review the difference; python -m tests.chart.golden rewrites the file"
    )


def test_every_reviewed_rendering_has_a_values_file() -> None:
    assert {path.stem for path in golden.DIRECTORY.iterdir()} == set(CASES)


def test_together_the_values_files_create_every_kind_of_object() -> None:
    expected = """
        ConfigMap Job KafkaTopic KafkaUser NetworkPolicy Pod PodDisruptionBudget PodMonitor
        PrometheusRule ScaledObject Service ServiceAccount ServiceMonitor StatefulSet
        TriggerAuthentication
    """
    assert {manifest["kind"] for case in CASES for manifest in rendered(case)} >= {
        *expected.split()
    }


@cache
def kubernetes_schema(filename: str, _version: str) -> Any:
    """Read a schema of kubernetes-validate, which otherwise reads all of them for each manifest."""
    return json.loads((Path(kubernetes_validate.__file__).parent / filename).read_bytes())


def errors(manifest: Manifest) -> Iterator[Any]:
    if path := CUSTOM.get(manifest["kind"].lower()):
        yield from Draft7Validator(json.loads(path.read_bytes())).iter_errors(manifest)


class TestManifests:
    @pytest.mark.parametrize("version", KUBERNETES)
    @every_case
    def test_kubernetes_accepts_them(
        self, case: str, version: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", kubernetes_schema)
        for manifest in rendered(case):
            if manifest["kind"].lower() not in CUSTOM:
                kubernetes_validate.validate(manifest, version, strict=True)

    @every_case
    def test_operators_accept_theirs(self, case: str) -> None:
        for manifest in rendered(case):
            for error in errors(manifest):
                pytest.fail(f"{manifest['kind']} {error.json_path}: {error.message}")

    @pytest.mark.parametrize("kind", CUSTOM)
    def test_a_misspelt_member_is_detected(self, kind: str) -> None:
        every = (manifest for case in CASES for manifest in rendered(case))
        manifest = next(each for each in every if each["kind"].lower() == kind)
        assert not list(errors(manifest))
        assert list(errors({**manifest, "spec": {**manifest["spec"], "mispelt": 1}}))

    @every_case
    def test_names_are_unique_and_labels_name_the_release(self, case: str) -> None:
        found = [(each["kind"], each["metadata"]) for each in rendered(case)]
        names = {(kind, metadata.get("namespace"), metadata["name"]) for kind, metadata in found}
        assert len(names) == len(found)
        for _, metadata in found:
            assert metadata["labels"]["app.kubernetes.io/instance"] == "acceptance"
            assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"

    @every_case
    def test_selectors_match_the_pods_of_the_service_and_no_others(self, case: str) -> None:
        found = rendered(case)
        workload, service = spec(found, "StatefulSet"), one(found, "Service")
        pod = workload["template"]["metadata"]["labels"].items()
        other_pods = [
            manifest["spec"].get("template", manifest)["metadata"]["labels"].items()
            for manifest in of_kind(found, "Pod", "Job")
        ]
        selectors = [service["spec"]["selector"], workload["selector"]["matchLabels"]]
        others = of_kind(found, "PodDisruptionBudget", "PodMonitor")
        selectors += [manifest["spec"]["selector"]["matchLabels"] for manifest in others]
        for selector in selectors:
            assert selector.items() <= pod
            assert not any(selector.items() <= labels for labels in other_pods)
        for monitor in of_kind(found, "ServiceMonitor"):
            wanted = monitor["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= service["metadata"]["labels"].items()


class TestShippedFiles:
    """Rules and dashboards pass through unchanged, although their braces look like templates."""

    def test_rules_pass_through_with_the_labels_of_the_values(self, fixed_chart: Path) -> None:
        first, second = spec(rendered("production", chart=fixed_chart), "PrometheusRule")["groups"]
        assert (first["name"], second["name"]) == (
            "acceptance-consumer",
            "acceptance-consumer-more",
        )
        record, alert = first["rules"]
        assert "labels" not in record
        summary = "{{ $labels.namespace }}: {{ $value }} pods are up"
        assert alert["annotations"]["summary"] == summary
        assert alert["labels"] == {"severity": "critical", "team": "serving"}
        assert second["rules"][0]["labels"]["team"] == "serving"

    def test_a_value_disables_an_alert(self, fixed_chart: Path) -> None:
        disabled = "metrics.prometheusRule.disabledAlerts={AcceptanceConsumerSlow}"
        found = rendered("production", "--set", disabled, chart=fixed_chart)
        [group] = spec(found, "PrometheusRule")["groups"]
        assert group["name"] == "acceptance-consumer"

    def test_a_dashboard_passes_through(self, fixed_chart: Path) -> None:
        config_map = one(rendered("production", chart=fixed_chart), "ConfigMap", "-fleet-overview")
        assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert config_map["metadata"]["annotations"] == {"grafana_folder": "Serving"}
        original = fixed_chart / "dashboards" / "Fleet_overview.json"
        assert json.loads(config_map["data"][original.name]) == json.loads(original.read_text())

    @every_helm
    def test_without_files_the_chart_creates_no_objects_for_them(
        self, major: str, tmp_path: Path
    ) -> None:
        chart = with_fixtures(tmp_path)
        for path in [*chart.glob("rules/*"), *chart.glob("dashboards/*")]:
            path.unlink()
        found = rendered("production", major=major, chart=chart)
        assert not of_kind(found, "PrometheusRule")
        assert len(of_kind(found, "ConfigMap")) == 2

    def test_the_files_of_the_chart_are_valid(self) -> None:
        for path in (CHART / "rules").glob("*"):
            assert yaml.safe_load(path.read_text())["groups"], path
        for path in (CHART / "dashboards").glob("*"):
            assert json.loads(path.read_text())["title"], path


def documented() -> list[list[str]]:
    """Return the commands of the documents that install and upgrade."""
    texts = ((ROOT / name).read_text() for name in ("README.md", "helm/README.md"))
    lines = [line for text in texts for line in text.replace("\\\n", "").splitlines()]
    return [shlex.split(line) for line in lines if re.match("helm (install|upgrade) ", line)]


@pytest.mark.parametrize("command", documented(), ids=lambda command: "-".join(command[1:3]))
def test_an_installation_of_the_documents_renders(command: list[str]) -> None:
    _, _, release, chart, *options = command
    assert ROOT / chart == CHART
    production = str(CASES["production"])
    before = {"production.yaml": production, "--reuse-values": f"--values={production}"}
    given = [before.get(option, option) for option in options]
    assert one(manifests(helm("3", "template", release, CHART, *given)), "StatefulSet")


def test_the_notes_list_the_next_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    # Only an install prints notes, and Helm 3 does not even simulate one without a cluster.
    options = ("--namespace", NAMESPACE, "--dry-run=client", "--values", CASES["minimal"])
    notes = helm("4", "install", RELEASE, CHART, *options).partition("NOTES:")[2]
    assert "reads serving-responses as group acceptance-consumer" in notes
    assert "helm --namespace serving test acceptance" in notes
    assert "a log line start_failed that names them, create them" in notes
    assert "topicJob.enabled" in notes
