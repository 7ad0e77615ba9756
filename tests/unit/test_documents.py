import json
import re
from pathlib import Path
from typing import Any

import click.testing
import pytest
from jsonschema import Draft7Validator

from consumer.settings.fields import fields
from schemas import published
from tests.documents import chart_settings, generate
from tests.documents.generate import DOCUMENTS, GENERATED, DocumentError, current, regenerated
from tests.paths import ROOT


@pytest.mark.parametrize("path", [path for path, _ in current(ROOT)], ids=str)
def test_generated_parts_are_current(path: Path) -> None:
    text = dict(current(ROOT))[path]
    assert path.exists(), "run python -m tests.documents.generate"
    assert path.read_text() == text, "run python -m tests.documents.generate"


def test_the_contracts_print_every_table_of_theirs() -> None:
    readme = (ROOT / "schemas" / "README.md").read_text()
    for name in GENERATED.keys() - {"settings", "log-events", "metrics", "values", "engines"}:
        assert f"<!-- generated: {name} -->\n\n|" in readme


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    before = "a\n<!-- generated: settings -->\nold\n<!-- end -->\nb <!-- end -->\n"
    after = regenerated(before, "README.md")
    start, generated, end = after.partition(GENERATED["settings"]())
    assert start == "a\n<!-- generated: settings -->\n\n"
    assert generated
    assert end == "\n<!-- end -->\nb <!-- end -->\n"
    assert regenerated(after, "README.md") == after
    assert regenerated("no marks", "README.md") == "no marks"


PAGES = [
    *map(Path, DOCUMENTS),
    *map(Path, ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "tests/bench/README.md")),
]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a Markdown renderer makes of the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_of_a_document_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / page).read_text()):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_architecture_page_names_functions_that_exist() -> None:
    page = ROOT / "consumer" / "README.md"
    found = re.findall(r"((?:`\w+`(?: and )?)+) in \[[^]]+\]\(([^)]+)\)", page.read_text())
    assert found
    for names, path in found:
        code = (page.parent / path).read_text()
        for name in re.findall(r"\w+", names.replace(" and ", "")):
            assert f"def {name}(" in code, f"{name} in {path}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- generated: settigns -->\n<!-- end -->", "settigns is not one of"),
        ("<!-- generated: settings -->\n", "settings has no"),
        (
            "<!-- generated: settings -->\n<!-- generated: reasons -->\n<!-- end -->",
            "settings has no",
        ),
    ],
)
def test_a_mark_that_cannot_be_followed_is_an_error(text: str, why: str) -> None:
    with pytest.raises(DocumentError, match=why):
        regenerated(text, "README.md")


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_table_has_as_many_cells_in_each_row(name: str) -> None:
    rows = GENERATED[name]().splitlines()
    assert len(rows) > 3
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


def test_the_table_of_settings_names_each_of_them() -> None:
    table = GENERATED["settings"]()
    for field in fields().values():
        assert f"| `{field.name}` | " in table
        assert field.description in table


class TestChart:
    def test_the_text_on_a_value_goes_over_lines_and_ends_with_its_key(self) -> None:
        text = """
# -- On a map.
a:
  # No text: it has no dashes.
  b: 1
  # -- Over
  # two lines.
  c: {d: 2}
  e: 3

# -- On nothing that follows at once.

f: 4
"""
        assert list(chart_settings.values(text)) == [
            ("a", "", "On a map."),
            ("a.c", "{d: 2}", "Over two lines."),
        ]

    @staticmethod
    def schema() -> dict[str, Any]:
        text = (ROOT / "helm" / "acceptance-consumer" / "values.schema.json").read_text()
        found: dict[str, Any] = json.loads(chart_settings.with_settings(text))["properties"][
            "settings"
        ]
        return found

    def test_every_setting_can_be_given_or_has_a_value_of_its_own(self) -> None:
        assert set(self.schema()["properties"]) == fields().keys() - chart_settings.NOT_IN_SETTINGS

    def test_every_default_may_be_given_as_it_is_written(self) -> None:
        validator = Draft7Validator(self.schema())
        written = {
            name: field.default if field.kind in ("integer", "map") else field.default_text
            for name, field in fields().items()
            if name not in chart_settings.NOT_IN_SETTINGS and field.default is not None
        } | {
            name: list(field.default)
            for name, field in fields().items()
            if name not in chart_settings.NOT_IN_SETTINGS and field.kind == "list"
        }
        assert len(written) > 10
        assert [error.message for error in validator.iter_errors(written)] == []

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("commit_interval", "1 day"),
            ("commit_interval", 61),
            ("max_commit_outputs", 1.5),
            ("max_stats_bytes", "1TB"),
            ("max_stats_bytes", 1023),
            ("start", "2026-01-01"),
            ("log_level", "INFO"),
            ("fleet", ""),
            ("skip", ["serving-responses:3"]),
            ("unknown", 1),
        ],
    )
    def test_what_the_service_would_refuse_is_refused(self, name: str, value: object) -> None:
        assert not Draft7Validator(self.schema()).is_valid({name: value})


class TestCommand:
    @pytest.fixture
    def root(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A repository with one document that is not current."""
        (tmp_path / DOCUMENTS[0]).write_text("<!-- generated: reasons -->\n<!-- end -->\n")
        monkeypatch.setattr(generate, "ROOT", tmp_path)
        monkeypatch.setattr(published, "path", lambda name: tmp_path / "json" / f"{name}.json")
        return tmp_path

    def test_it_writes_what_is_not_current(self, root: Path) -> None:
        run = click.testing.CliRunner().invoke
        written = run(generate.main, [])
        assert written.exit_code == 0, written.output
        assert written.output.splitlines()[0] == "README.md written"
        assert "| `skipped` | `tombstone` |" in (root / "README.md").read_text()
        again = run(generate.main, [])
        assert (again.exit_code, again.output) == (0, "")
        assert run(generate.main, ["--check"]).exit_code == 0

    def test_checking_changes_nothing_and_fails(self, root: Path) -> None:
        result = click.testing.CliRunner().invoke(generate.main, ["--check"])
        assert result.exit_code == 1
        assert "README.md is not current" in result.output
        assert [path.name for path in root.iterdir()] == ["README.md"]
