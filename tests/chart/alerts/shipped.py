"""The rules and the dashboard that the chart ships for Prometheus and Grafana."""

import json
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.chart.chart import CHART

RULES_FILE: Final = CHART / "rules" / "acceptance-consumer.yaml"
RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
ALERTS: Final = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED: Final = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
DASHBOARD: Final[dict[str, Any]] = json.loads(
    (CHART / "dashboards" / "acceptance-consumer.json").read_text()
)
PANELS: Final = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}


def queries() -> Iterator[tuple[str, str, str]]:
    """Return the user of each PromQL query, the query, and the template of its text."""
    for rule in RULES:
        text = " ".join(rule.get("annotations", {}).values())
        yield rule.get("alert") or rule["record"], rule["expr"], text
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"], ""
    for title, panel in PANELS.items():
        for target in panel["targets"]:
            # Grafana fills in the intervals.
            expr = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "6h")
            yield f"{title}, {target['refId']}", expr, target["legendFormat"]
