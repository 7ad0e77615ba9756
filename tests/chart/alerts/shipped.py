"""What the chart ships for Prometheus and Grafana: rules, and a dashboard."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from tests.paths import ROOT

CHART: Final = ROOT / "helm" / "acceptance-consumer"
RULES_FILE: Final = CHART / "rules" / "acceptance-consumer.yaml"
DASHBOARD_FILE: Final = CHART / "dashboards" / "acceptance-consumer.json"


class Rule(Struct, forbid_unknown_fields=True):
    """A recording rule, or an alert."""

    expr: str
    record: str = ""
    alert: str = ""
    duration: str = msgspec.field(name="for", default="")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Group(Struct, forbid_unknown_fields=True):
    """Rules that are evaluated together."""

    name: str
    rules: list[Rule]
    interval: str = ""


class _RuleFile(Struct, forbid_unknown_fields=True):
    groups: list[Group]


class Target(Struct, rename="camel"):
    """A query of a panel."""

    ref_id: str
    expr: str
    legend_format: str


class Place(Struct):
    """Where a panel is: the dashboard is 24 wide."""

    x: int
    y: int
    w: int
    h: int


class Panel(Struct, rename="camel"):
    """A panel, or the head of a row."""

    id: int
    type: str
    title: str
    grid_pos: Place
    description: str = ""
    datasource: dict[str, str] = {}
    field_config: dict[str, Any] = {}
    targets: list[Target] = []


class Variable(Struct):
    """A choice that the viewer of the dashboard has."""

    name: str
    query: Any


class _Variables(Struct):
    list: list[Variable]


class _Annotation(Struct):
    name: str
    expr: str


class _Annotations(Struct):
    list: list[_Annotation]


class Dashboard(Struct):
    """The dashboard."""

    uid: str
    title: str
    panels: list[Panel]
    templating: _Variables
    annotations: _Annotations


RULES: Final = [
    rule
    for group in msgspec.yaml.decode(RULES_FILE.read_bytes(), type=_RuleFile).groups
    for rule in group.rules
]
ALERTS: Final = [rule for rule in RULES if rule.alert]
DASHBOARD: Final = msgspec.json.decode(DASHBOARD_FILE.read_bytes(), type=Dashboard)
PANELS: Final = [panel for panel in DASHBOARD.panels if panel.type != "row"]


def queries() -> Iterator[tuple[str, str, str]]:
    """Return who asks, the query in PromQL, and the template of the text that goes with it."""
    for rule in RULES:
        yield rule.alert or rule.record, rule.expr, " ".join(rule.annotations.values())
    for annotation in DASHBOARD.annotations.list:
        yield annotation.name, annotation.expr, ""
    for panel in PANELS:
        for target in panel.targets:
            yield f"{panel.title}, {target.ref_id}", _chosen(target.expr), target.legend_format


def _chosen(expr: str) -> str:
    """Replace the intervals that Grafana fills in."""
    return expr.replace("$__rate_interval", "5m").replace("$__range", "6h")
