"""The dashboard: whether Grafana can lay it out, and people can read it."""

import re

import pytest

from .shipped import DASHBOARD, PANELS

pytestmark = pytest.mark.chart


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert max(x for x, _ in cells) < 24
    assert len(cells) == len(set(cells))


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_states_what_it_shows_and_in_which_unit(title: str) -> None:
    panel = PANELS[title]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_panels_use_every_variable_and_no_other() -> None:
    used = {
        name
        for panel in PANELS.values()
        for text in (panel["datasource"]["uid"], *(target["expr"] for target in panel["targets"]))
        for name in re.findall(r"\$\{?(\w+)", text)
    }
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert used - {"__rate_interval", "__range"} == variables
