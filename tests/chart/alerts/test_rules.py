"""The alerts, tested with Prometheus' own tool: each fires where it should, and only there."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.paths import ROOT

from .shipped import ALERTS, PANELS, RULES, RULES_FILE, queries

pytestmark = pytest.mark.chart

CASES: Final = sorted(Path(__file__).parent.glob("*.yaml"))
RUNBOOK: Final = "helm/README.md"


@pytest.fixture(scope="module")
def promtool() -> Callable[..., None]:
    """Return a call of promtool; without it, skip, or fail if ACCEPTANCE_REQUIRE_PROMTOOL is 1."""
    path = os.pathsep.join((str(ROOT / ".cache" / "bin"), os.environ["PATH"]))
    found = shutil.which("promtool", path=path)
    if found is None:
        message = "NO ALERT WAS TESTED: promtool is missing (make .cache/bin/promtool)"
        if os.environ.get("ACCEPTANCE_REQUIRE_PROMTOOL") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)

    def run(*arguments: str | Path) -> None:
        done = subprocess.run(
            [found, *arguments], check=False, capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_the_rules_are_valid(promtool: Callable[..., None]) -> None:
    promtool("check", "rules", "--lint-fatal", RULES_FILE)


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_alerts_fire_where_they_should_and_only_there(
    promtool: Callable[..., None], cases: Path
) -> None:
    promtool("test", "rules", cases)


def test_prometheus_accepts_each_query_of_the_dashboard(
    promtool: Callable[..., None], tmp_path: Path
) -> None:
    rules = [
        {"record": f"query_{number}", "expr": expr, "labels": {"used_by": user}}
        for number, (user, expr, _) in enumerate(queries())
    ]
    assert len(rules) > len(RULES)
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", file)


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = [
        case
        for path in CASES
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test.get("alert_rule_test", [])
    ]
    fires = {case["alertname"] for case in cases if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert fires == silent == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_states_its_severity_its_meaning_and_its_runbook(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    assert "{{" not in alert["annotations"]["summary"]
    assert alert["annotations"]["runbook"] == f"{RUNBOOK}#{name.lower()}"


def test_the_runbook_has_one_section_for_each_alert_and_names_panels_that_exist() -> None:
    text = (ROOT / RUNBOOK).read_text()
    assert re.findall(r"(?m)^#+ (Acceptance\w+)$", text) == list(ALERTS)
    sections = text.partition("\n### Acceptance")[2].partition("\n## ")[0]
    named = {" ".join(name.split()) for name in re.findall(r'"([A-Z][^"]+)"', sections)}
    assert named
    assert named <= PANELS.keys()


def test_no_query_is_a_mean_of_ratios() -> None:
    assert not [user for user, expr, _ in queries() if re.search(r"\bavg", expr)]
