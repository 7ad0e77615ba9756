"""The chart renders with both Helms, to manifests that Kubernetes and its operators would take."""

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
    template,
    with_fixtures,
)
from tests.paths import ROOT

pytestmark = pytest.mark.chart

KUBERNETES = ("1.29", "1.37")
CUSTOM = {path.stem: path for path in (ROOT / "helm" / "crd-schemas").glob("*.json")}


@every_helm
def test_helm_is_the_version_that_it_is_taken_for(major: str) -> None:
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
def test_the_render_is_the_one_that_was_looked_at(case: str, major: str, fixed_chart: Path) -> None:
    now = template("--values", CASES[case], major=major, chart=fixed_chart)
    looked_at = golden.path(case).read_text()
    # Helm 4 puts other blank lines between them.
    assert list(manifests(now)) == list(manifests(looked_at)), (
        "review the difference; python -m tests.chart.golden rewrites the file"
    )


def test_no_render_is_kept_of_values_that_are_gone() -> None:
    assert {path.stem for path in golden.DIRECTORY.iterdir()} == set(CASES)


def test_together_the_values_files_make_everything_that_the_chart_can_make() -> None:
    kinds = {manifest["kind"] for case in CASES for manifest in rendered(case)}
    assert kinds >= {
        "ConfigMap",
        "Job",
        "KafkaTopic",
        "KafkaUser",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PodMonitor",
        "PrometheusRule",
        "ScaledObject",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "StatefulSet",
        "TriggerAuthentication",
    }


class TestManifests:
    @pytest.mark.parametrize("version", KUBERNETES)
    @every_case
    def test_kubernetes_takes_them(
        self, case: str, version: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", _schema)
        for manifest in rendered(case):
            if manifest["kind"].lower() not in CUSTOM:
                kubernetes_validate.validate(manifest, version, strict=True)

    @every_case
    def test_operators_take_theirs(self, case: str) -> None:
        for manifest in rendered(case):
            for error in _errors(manifest):
                pytest.fail(f"{manifest['kind']} {error.json_path}: {error.message}")

    @pytest.mark.parametrize("kind", CUSTOM)
    def test_a_misspelt_member_is_found(self, kind: str) -> None:
        manifest = next(
            manifest
            for case in CASES
            for manifest in rendered(case)
            if manifest["kind"].lower() == kind
        )
        assert not list(_errors(manifest))
        assert list(_errors({**manifest, "spec": {**manifest["spec"], "mispelt": 1}}))

    @every_case
    def test_names_are_unique_and_carry_the_release(self, case: str) -> None:
        names = [
            (manifest["kind"], manifest["metadata"].get("namespace"), manifest["metadata"]["name"])
            for manifest in rendered(case)
        ]
        assert len(set(names)) == len(names)
        for manifest in rendered(case):
            labels = manifest["metadata"]["labels"]
            assert labels["app.kubernetes.io/instance"] == "acceptance"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"

    @every_case
    def test_selectors_find_the_pods_of_the_service_and_no_others(self, case: str) -> None:
        found = rendered(case)
        [workload] = of_kind(found, "StatefulSet")
        pod = workload["spec"]["template"]["metadata"]["labels"].items()
        others = [
            manifest["spec"].get("template", manifest)["metadata"]["labels"].items()
            for manifest in [*of_kind(found, "Pod"), *of_kind(found, "Job")]
        ]
        selectors = [
            one(found, "Service")["spec"]["selector"],
            workload["spec"]["selector"]["matchLabels"],
            *(
                manifest["spec"]["selector"]["matchLabels"]
                for kind in ("PodDisruptionBudget", "PodMonitor")
                for manifest in of_kind(found, kind)
            ),
        ]
        for monitor in of_kind(found, "ServiceMonitor"):
            wanted = monitor["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= one(found, "Service")["metadata"]["labels"].items()
        for selector in selectors:
            assert selector.items() <= pod
            assert not any(selector.items() <= other for other in others)


@cache
def _schema(filename: str, _version: str) -> Any:
    """Read a schema of kubernetes-validate, which reads all of them again for each manifest."""
    directory = Path(kubernetes_validate.__file__).parent
    return json.loads((directory / filename).read_bytes())


def _errors(manifest: Manifest) -> Iterator[Any]:
    path = CUSTOM.get(manifest["kind"].lower())
    if path is not None:
        yield from Draft7Validator(json.loads(path.read_bytes())).iter_errors(manifest)


class TestFilesOfOthers:
    """Rules and dashboards are shipped as they are: their braces are theirs."""

    def test_rules_come_through_with_the_labels_of_the_values(self, fixed_chart: Path) -> None:
        text = template("--values", CASES["production"], chart=fixed_chart)
        groups = one(list(manifests(text)), "PrometheusRule")["spec"]["groups"]
        assert [group["name"] for group in groups] == [
            "acceptance-consumer",
            "acceptance-consumer-more",
        ]
        record, alert = groups[0]["rules"]
        assert "labels" not in record
        assert (
            alert["annotations"]["summary"] == "{{ $labels.namespace }}: {{ $value }} pods are up"
        )
        assert alert["labels"] == {"severity": "critical", "team": "serving"}
        assert groups[1]["rules"][0]["labels"]["team"] == "serving"

    def test_an_alert_can_be_left_out(self, fixed_chart: Path) -> None:
        text = template(
            *("--values", CASES["production"]),
            *("--set", "metrics.prometheusRule.disabledAlerts={AcceptanceConsumerSlow}"),
            chart=fixed_chart,
        )
        groups = one(list(manifests(text)), "PrometheusRule")["spec"]["groups"]
        assert [group["name"] for group in groups] == ["acceptance-consumer"]

    def test_a_dashboard_comes_through_as_it_is(self, fixed_chart: Path) -> None:
        found = list(manifests(template("--values", CASES["production"], chart=fixed_chart)))
        config_map = one(found, "ConfigMap", "-fleet-overview")
        assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert config_map["metadata"]["annotations"] == {"grafana_folder": "Serving"}
        original = fixed_chart / "dashboards" / "Fleet_overview.json"
        assert json.loads(config_map["data"][original.name]) == json.loads(original.read_text())

    @every_helm
    def test_without_any_files_nothing_is_made_of_them(self, major: str, tmp_path: Path) -> None:
        chart = with_fixtures(tmp_path)
        for path in [*chart.glob("rules/*"), *chart.glob("dashboards/*")]:
            path.unlink()
        found = list(manifests(template("--values", CASES["production"], major=major, chart=chart)))
        assert not of_kind(found, "PrometheusRule")
        assert len(of_kind(found, "ConfigMap")) == 2

    def test_the_charts_own_files_can_be_read(self) -> None:
        for path in (CHART / "rules").glob("*"):
            assert yaml.safe_load(path.read_text())["groups"], path
        for path in (CHART / "dashboards").glob("*"):
            assert json.loads(path.read_text())["title"], path


def documented() -> list[list[str]]:
    """Return the installs and upgrades of the documents."""
    texts = [
        (ROOT / name).read_text().replace("\\\n", "") for name in ("README.md", "helm/README.md")
    ]
    lines = [line for text in texts for line in text.splitlines()]
    return [shlex.split(line) for line in lines if re.match("helm (install|upgrade) ", line)]


@pytest.mark.parametrize("command", documented(), ids=lambda command: "-".join(command[1:3]))
def test_an_install_of_the_documents_can_be_made(command: list[str]) -> None:
    _, _, release, chart, *options = command
    assert ROOT / chart == CHART
    production = str(CASES["production"])
    before = {"production.yaml": production, "--reuse-values": f"--values={production}"}
    given = [before.get(one, one) for one in options]
    found = list(manifests(helm("3", "template", release, CHART, *given)))
    assert one(found, "StatefulSet")


def test_the_notes_tell_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    # Notes are part of an install only, and Helm 3 does not even pretend to one without a cluster.
    options = ("--namespace", NAMESPACE, "--dry-run=client", "--values", CASES["minimal"])
    said = helm("4", "install", RELEASE, CHART, *options)
    notes = said[said.index("NOTES:") :]
    assert "reads serving-responses as group acceptance-consumer" in notes
    assert "helm --namespace serving test acceptance" in notes
    assert "a log line settings_rejected that names them, create them" in notes
    assert "topicJob.enabled" in notes
