"""The page as a real browser shows it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.commands.report.page import render
from tests.unit.commands.report.browser import Browser, browsing, found_browser
from tests.unit.commands.report.made import day, record, report
from tests.unit.commands.report.test_page import HOSTILE

PHONE, SMALL_PHONE, DESKTOP = 390, 320, 1280

OVERLAPS = """
(() => {
  const seen = [];
  const bad = [];
  const shown = text => getComputedStyle(text).visibility === "visible" && text.textContent.trim();
  for (const plot of document.querySelectorAll(".plot")) {
    const boxes = [...plot.querySelectorAll("text")].filter(shown)
      .map(text => [text.textContent.trim(), text.getBoundingClientRect()]);
    for (const [one, a] of boxes) for (const [other, b] of boxes) {
      if (a === b) continue;
      if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 3 < b.bottom - 3
          && b.top + 3 < a.bottom - 3) bad.push(one + " | " + other);
    }
  }
  return bad;
})()
"""
OUTSIDE = """
[...document.querySelectorAll("main *")]
  .filter(one => !one.closest("details:not([open])"))
  .map(one => [one, one.getBoundingClientRect()])
  .filter(([, box]) => box.width && (box.left < 0 || box.right > document.body.clientWidth + 0.5))
  .map(([one]) => one.outerHTML.slice(0, 80))
"""
CONTRASTS = """
(() => {
  const part = value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(value => part(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = luminance(getComputedStyle(document.querySelector("section")).backgroundColor);
  const against = color => {
    const ahead = luminance(color);
    return (Math.max(ahead, behind) + 0.05) / (Math.min(ahead, behind) + 0.05);
  };
  const found = {};
  for (const one of document.querySelectorAll("main h2, .note, .label, .detail, summary"))
    found[one.className || one.tagName] = against(getComputedStyle(one).color);
  for (const one of document.querySelectorAll("main text"))
    found["text " + one.getAttribute("class")] = against(getComputedStyle(one).fill);
  for (const one of document.querySelectorAll(".data path"))
    found[one.getAttribute("class")] = against(getComputedStyle(one).stroke);
  return found;
})()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Skip without a browser, or fail where these tests are required."""
    program = found_browser()
    if program is None:
        message = "THE PAGE WAS NOT LOOKED AT IN A REAL BROWSER: there is no Chromium on the path"
        if os.environ.get("ACCEPTANCE_REQUIRE_BROWSER") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    with browsing(program) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of a day, whose models are more than have a line of their own."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    rest = (
        record(10_000 + n, one_at, model=f"rare-model-{n}", engine="tensorrt_llm")
        for n, one_at in enumerate(range(1_767_230_000_000, 1_767_300_000_000, 10_000_000))
    )
    path.write_text(render(report([*day(3_000), *rest]), "topic acceptance-records"))
    return path


@pytest.mark.parametrize("width", [SMALL_PHONE, PHONE, DESKTOP])
class TestScreens:
    def test_everything_is_inside(self, browser: Browser, fleet: Path, width: int) -> None:
        browser.show(fleet, width, "light")

        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value(OUTSIDE) == []

    def test_texts_do_not_overlap(self, browser: Browser, fleet: Path, width: int) -> None:
        browser.show(fleet, width, "light")

        assert browser.value(OVERLAPS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_lines_stand_out_from_what_is_behind(
    browser: Browser, fleet: Path, scheme: str
) -> None:
    """As WCAG 2 asks for: 4.5 for texts, 3 for what is drawn."""
    browser.show(fleet, PHONE, scheme)
    found = browser.value(CONTRASTS)

    low = {name: round(ratio, 2) for name, ratio in found.items() if ratio < 4.5}
    lines = ("full", "faint", "dots")
    assert {name: one for name, one in low.items() if not name.endswith(lines)} == {}
    assert {name: one for name, one in low.items() if one < 3} == {}


class TestPage:
    @pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
    def test_it_takes_the_scheme_of_the_reader(
        self, browser: Browser, fleet: Path, scheme: str, *, dark: bool
    ) -> None:
        browser.show(fleet, PHONE, scheme)
        color = browser.value("getComputedStyle(document.body).backgroundColor")

        assert (sum(map(int, color[4:-1].split(","))) < 200) is dark

    def test_pointing_at_a_column_shows_its_values_in_place_of_the_overall_ones(
        self, browser: Browser, fleet: Path
    ) -> None:
        browser.show(fleet, DESKTOP, "light")
        shown = """
            [...document.querySelector(".plot").querySelectorAll(".overall > text, .slot > text")]
            .filter(one => getComputedStyle(one).visibility === "visible" && !one.matches(".read"))
            .map(one => one.textContent)
        """
        assert browser.value(shown) == ["Whole range"]

        box = browser.value("""
            (box => ({x: box.x + box.width / 2, y: box.y + box.height / 2}))
            (document.querySelectorAll(".plot .slot rect")[60].getBoundingClientRect())
        """)
        browser.point_at(box["x"], box["y"])

        [title] = browser.value(shown)
        assert title.startswith("2026-01-01 15:00: ")

    def test_it_asks_for_nothing_and_keeps_its_own_policy(
        self, browser: Browser, fleet: Path
    ) -> None:
        browser.requests.clear()
        browser.complaints.clear()
        browser.show(fleet, DESKTOP, "light")

        assert browser.requests == [fleet.as_uri()]
        assert browser.complaints == []

    def test_hostile_names_do_nothing(self, browser: Browser, tmp_path: Path) -> None:
        path = tmp_path / "hostile.html"
        records = [
            record(n, engine=name, model=name, instance=name, fleet=name, request_id=name)
            for n, name in enumerate(HOSTILE)
        ]
        path.write_text(render(report(records), HOSTILE[0]))
        browser.requests.clear()
        browser.show(path, PHONE, "light")

        assert browser.value("document.title").startswith("Draft acceptance, ")
        assert browser.value("document.querySelectorAll('script, img, iframe').length") == 0
        assert browser.value("getComputedStyle(document.body).display") == "block"
        assert browser.requests == [path.as_uri()]

    def test_the_policy_stops_a_script_that_would_get_through(
        self, browser: Browser, fleet: Path, tmp_path: Path
    ) -> None:
        """The control of the one above: the page has a second line of defence."""
        path = tmp_path / "injected.html"
        injected = "<script>document.title = 'owned'</script></main>"
        path.write_text(fleet.read_text().replace("</main>", injected))
        browser.show(path, PHONE, "light")

        assert browser.value("document.scripts.length") == 1
        assert browser.value("document.title").startswith("Draft acceptance, ")
