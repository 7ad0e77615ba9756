"""The dashboard: whether Grafana can lay it out, and people can read it."""

import re

import pytest

from .shipped import DASHBOARD, PANELS, Panel

pytestmark = pytest.mark.chart


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel.id for panel in DASHBOARD.panels]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD.panels:
        at = panel.grid_pos
        cells = {(x, y) for x in range(at.x, at.x + at.w) for y in range(at.y, at.y + at.h)}
        assert at.x + at.w <= 24
        assert not cells & taken, panel.title
        taken |= cells


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panel_says_what_it_shows_and_in_which_unit(panel: Panel) -> None:
    assert panel.description.endswith(".")
    assert panel.field_config["defaults"]["unit"]
    assert panel.datasource == {"type": "prometheus", "uid": "${datasource}"}
    assert panel.targets
    assert len({target.ref_id for target in panel.targets}) == len(panel.targets)


def test_each_variable_of_the_dashboard_is_used_and_each_that_is_used_exists() -> None:
    used: set[str] = set()
    for panel in PANELS:
        for text in (panel.datasource["uid"], *(target.expr for target in panel.targets)):
            used |= set(re.findall(r"\$\{?(\w+)", text))
    of_grafana = {"__rate_interval", "__range"}
    assert used - of_grafana == {variable.name for variable in DASHBOARD.templating.list}
