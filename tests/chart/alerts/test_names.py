"""Every query asks for metrics and labels that the service has; otherwise it would stay silent."""

import re
from collections.abc import Mapping
from typing import Final

import promql_parser
import pytest

from consumer.telemetry.health import Health
from consumer.telemetry.metric_families import Family
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.stop import Stop
from schemas import MessageOutcome, RequestOutcome
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import Log

from .labels import Labels, QueryError, labels_of
from .shipped import DASHBOARD, RECORDED, queries

pytestmark = pytest.mark.chart

TARGET: Final = frozenset({"namespace", "job", "instance"})  # The labels that Prometheus adds.


def metrics() -> Mapping[str, Labels]:
    """Return every time series that a query may ask for, with its labels."""
    found: dict[str, Labels] = {"up": frozenset(), "ALERTS": frozenset({"alertname", "alertstate"})}
    for family in Family:
        labels = frozenset(family.labels)
        if family.kind == "histogram":
            found[f"{family}_bucket"] = labels | {"le"}
            found[f"{family}_sum"] = found[f"{family}_count"] = labels
        else:
            found[family] = labels
    registry = Metrics().registry
    Health(Stop(), 20, ManualClock(), Log()).register(registry)
    for metric in registry.collect():
        for sample in metric.samples:
            found.setdefault(sample.name, frozenset(sample.labels))
    found = {name: labels | TARGET for name, labels in found.items()}
    for name, expr in RECORDED.items():
        found[name] = labels_of(promql_parser.parse(expr), found)
    return found


METRICS: Final = metrics()


@pytest.mark.parametrize(
    ("expr", "text"), [pytest.param(expr, text, id=user) for user, expr, text in queries()]
)
def test_metrics_and_labels_of_a_query_exist(expr: str, text: str) -> None:
    labels = labels_of(promql_parser.parse(expr), METRICS)
    named = re.findall(r"\$labels\.(\w+)", text) or re.findall(r"\{\{(\w+)\}\}", text)
    assert set(named) <= labels


def test_the_outcomes_in_the_queries_exist() -> None:
    outcomes = {
        outcome
        for _, expr, _ in queries()
        for matched in re.findall(r'outcome[=!~]+"([^"]+)"', expr)
        for outcome in matched.split("|")
    }
    assert outcomes
    assert outcomes <= {*MessageOutcome, *RequestOutcome}


def test_the_name_of_a_recorded_metric_lists_its_labels() -> None:
    for name in RECORDED:
        level, metric, _ = name.split(":")
        assert set(level.split("_")) == METRICS[name]
        assert metric.startswith("acceptance_")


def test_the_variables_of_the_dashboard_query_labels_that_exist() -> None:
    for variable in DASHBOARD["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert match is not None
        assert match[2] in labels_of(promql_parser.parse(match[1]), METRICS)


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        ("acceptance_request_total", "no metric 'acceptance_request_total'"),
        ("acceptance_requests_total{modell='m'}", "no label ['modell']"),
        ("sum by (modell) (acceptance_requests_total)", "no label ['modell']"),
        ("sum by (model) (sum by (engine) (acceptance_requests_total))", "no label ['model']"),
        ("acceptance_ready and on (model) acceptance_requests_total", "no label ['model']"),
        ("acceptance_ready / acceptance_requests_total", "never match"),
        ("histogram_quantile(0.5, acceptance_publish_delay_seconds_sum)", "no label ['le']"),
    ],
)
def test_an_unknown_metric_or_label_is_detected(expr: str, why: str) -> None:
    with pytest.raises(QueryError, match=re.escape(why)):
        labels_of(promql_parser.parse(expr), METRICS)
