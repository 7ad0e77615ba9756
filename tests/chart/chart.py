"""The chart as the tests see it: rendered by the real Helm, and taken apart."""

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
"""The values files that every property is checked for, under the names that chart-testing uses."""

MAJORS: Final = tuple(RELEASES)
NAMESPACE: Final = "serving"
RELEASE: Final = "acceptance"

every_case = pytest.mark.parametrize("case", CASES)
every_helm = pytest.mark.parametrize("major", MAJORS)


class HelmError(Exception):
    """Helm refused; the text is what it said."""


def helm(major: str, *arguments: str | Path) -> str:
    """Run Helm and return what it writes to standard output.

    Raises:
        HelmError: it fails.

    """
    command = [binary(major), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise HelmError(result.stderr + result.stdout)
    return result.stdout


def template(*options: str | Path, major: str = "3", chart: Path = CHART) -> str:
    """Render the chart to text, see `helm`."""
    return helm(major, "template", RELEASE, chart, "--namespace", NAMESPACE, *options)


@cache
def rendered(case: str, *options: str, major: str = "3") -> tuple[Manifest, ...]:
    """Return the manifests of one of the values files."""
    return tuple(manifests(template("--values", CASES[case], *options, major=major)))


def manifests(text: str) -> Iterator[Manifest]:
    """Take a rendered text apart."""
    yield from filter(None, yaml.safe_load_all(text))


def of_kind(found: Sequence[Manifest], kind: str) -> list[Manifest]:
    """Return the manifests of a kind."""
    return [manifest for manifest in found if manifest["kind"] == kind]


def one(found: Sequence[Manifest], kind: str, suffix: str = "") -> Manifest:
    """Return the only manifest of a kind whose name ends in the suffix."""
    [manifest] = (one for one in of_kind(found, kind) if one["metadata"]["name"].endswith(suffix))
    return manifest


def pod_specs(found: Sequence[Manifest]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the specification of every pod that is made, with where it stands."""
    for manifest in found:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        match manifest["kind"]:
            case "Pod":
                yield name, manifest["spec"]
            case "StatefulSet" | "Job":
                yield name, manifest["spec"]["template"]["spec"]


def with_fixtures(directory: Path) -> Path:
    """Copy the chart, with rules and dashboards that the tests know instead of its own."""
    copy = directory / CHART.name
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("rules", "dashboards"))
    shutil.copytree(Path(__file__).parent / "fixtures", copy, dirs_exist_ok=True)
    return copy
