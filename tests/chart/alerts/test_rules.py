"""The alerts, by Prometheus' own tool: each fires where it should, and only there."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.paths import ROOT

from .shipped import ALERTS, PANELS, RULES, RULES_FILE, Rule, queries

pytestmark = pytest.mark.chart

CASES: Final = sorted(Path(__file__).parent.glob("*.yaml"))
RUNBOOKS: Final = "helm/README.md"


@pytest.fixture(scope="module")
def promtool() -> str:
    """Return promtool; without it, skip, or fail if ACCEPTANCE_REQUIRE_PROMTOOL is 1."""
    path = os.pathsep.join((str(ROOT / ".cache" / "bin"), os.environ["PATH"]))
    if found := shutil.which("promtool", path=path):
        return found
    message = "NO ALERT WAS TESTED: there is no promtool (make .cache/bin/promtool)"
    if os.environ.get("ACCEPTANCE_REQUIRE_PROMTOOL") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def test_the_rules_are_valid(promtool: str) -> None:
    _run(promtool, "check", "rules", "--lint-fatal", str(RULES_FILE))


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_alerts_fire_where_they_should_and_only_there(promtool: str, cases: Path) -> None:
    _run(promtool, "test", "rules", str(cases))


def test_prometheus_takes_each_query_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"query_{number}", "expr": expr, "labels": {"asked_by": who}}
        for number, (who, expr, _) in enumerate(queries())
    ]
    assert len(rules) > len(RULES)
    (tmp_path / "queries.yaml").write_bytes(
        msgspec.yaml.encode({"groups": [{"name": "queries", "rules": rules}]})
    )
    _run(promtool, "check", "rules", str(tmp_path / "queries.yaml"))


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    looked_at: list[dict[str, Any]] = [
        case
        for path in CASES
        for test in msgspec.yaml.decode(path.read_bytes())["tests"]
        for case in test.get("alert_rule_test", [])
    ]
    fires = {case["alertname"] for case in looked_at if case.get("exp_alerts")}
    silent = {case["alertname"] for case in looked_at if not case.get("exp_alerts")}
    assert fires == silent == {alert.alert for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.alert)
def test_an_alert_leads_to_its_section_of_the_runbook(alert: Rule) -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / RUNBOOKS).read_text(), re.MULTILINE)
    assert headings.count(alert.alert) == 1
    assert alert.annotations["runbook"] == f"{RUNBOOKS}#{alert.alert.lower()}"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.alert)
def test_an_alert_says_how_bad_it_is_and_what_is_wrong(alert: Rule) -> None:
    assert alert.labels.keys() == {"severity"}
    assert alert.labels["severity"] in {"critical", "warning", "info"}
    assert alert.annotations.keys() == {"summary", "description", "runbook"}
    assert "{{" not in alert.annotations["summary"]


def test_the_runbook_has_no_alert_that_does_not_exist() -> None:
    headings = re.findall(r"^#+ (Acceptance\w+)$", (ROOT / RUNBOOKS).read_text(), re.MULTILINE)
    assert headings == [alert.alert for alert in ALERTS]


def test_the_runbook_names_panels_that_exist() -> None:
    runbook = (ROOT / RUNBOOKS).read_text().partition("\n### Acceptance")[2]
    named = re.findall(r'"([A-Z][^"]+)"', runbook.partition("\n## ")[0])
    assert named
    assert {" ".join(name.split()) for name in named} <= {panel.title for panel in PANELS}


def test_nothing_is_a_mean_of_ratios() -> None:
    assert not [who for who, expr, _ in queries() if re.search(r"\bavg", expr)]


def _run(promtool: str, *arguments: str) -> None:
    done = subprocess.run(
        [promtool, *arguments], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
