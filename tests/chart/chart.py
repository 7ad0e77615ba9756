"""The chart for the tests: rendered by the real Helm, and parsed."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.binaries import RELEASES, binary
from tests.paths import ROOT

Manifest = dict[str, Any]

CHART: Final = ROOT / "helm" / "acceptance-consumer"
CASES: Final = {
    path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").iterdir())
}
"""The values files for which the tests check every property, under the names of chart-testing."""

NAMESPACE: Final = "serving"
RELEASE: Final = "acceptance"

every_case = pytest.mark.parametrize("case", CASES)
every_helm = pytest.mark.parametrize("major", tuple(RELEASES))


class HelmError(Exception):
    """Helm failed; the text is its output."""


def helm(major: str, *arguments: str | Path) -> str:
    """Run Helm and return its standard output.

    Raises:
        HelmError: Helm failed.

    """
    command = [binary(major), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise HelmError(result.stderr + result.stdout)
    return result.stdout


def template(*options: str | Path, major: str = "3", chart: Path = CHART) -> str:
    """Return the chart rendered by Helm, see `helm`."""
    return helm(major, "template", RELEASE, chart, "--namespace", NAMESPACE, *options)


@cache
def rendered(
    case: str, *options: str, major: str = "3", chart: Path = CHART
) -> tuple[Manifest, ...]:
    """Return the manifests of one of the values files."""
    return manifests(template("--values", CASES[case], *options, major=major, chart=chart))


def with_values(case: str, *values: str) -> tuple[Manifest, ...]:
    """Return the manifests of one of the values files with further values, NAME=VALUE each."""
    return rendered(case, *(option for value in values for option in ("--set", value)))


def manifests(text: str) -> tuple[Manifest, ...]:
    """Parse a rendered text."""
    return tuple(filter(None, yaml.safe_load_all(text)))


def of_kind(found: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    """Return the manifests of some kinds, in the order of the kinds."""
    return [manifest for kind in kinds for manifest in found if manifest["kind"] == kind]


def one(found: Sequence[Manifest], kind: str, suffix: str = "") -> Manifest:
    """Return the only manifest of a kind whose name ends in the suffix."""
    [manifest] = (
        each for each in of_kind(found, kind) if each["metadata"]["name"].endswith(suffix)
    )
    return manifest


def spec(found: Sequence[Manifest], kind: str) -> dict[str, Any]:
    """Return the specification of the only manifest of a kind."""
    found_spec: dict[str, Any] = one(found, kind)["spec"]
    return found_spec


def pod_spec(found: Sequence[Manifest], kind: str = "StatefulSet") -> dict[str, Any]:
    """Return the specification of the pods of the only manifest of a kind."""
    found_spec: dict[str, Any] = spec(found, kind)["template"]["spec"]
    return found_spec


def pod_specs(found: Sequence[Manifest]) -> Iterator[Mapping[str, Any]]:
    """Return the specification of every pod."""
    for manifest in of_kind(found, "Pod", "StatefulSet", "Job"):
        yield (
            manifest["spec"] if manifest["kind"] == "Pod" else manifest["spec"]["template"]["spec"]
        )


def with_fixtures(directory: Path) -> Path:
    """Copy the chart, with rules and dashboards of the tests instead of its own."""
    copy = directory / CHART.name
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("rules", "dashboards"))
    shutil.copytree(Path(__file__).parent / "fixtures", copy, dirs_exist_ok=True)
    return copy
