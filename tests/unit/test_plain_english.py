import sys
from pathlib import Path

import pytest

from tests.documents import plain_english
from tests.documents.plain_english import Glossary, PathException, glossary
from tests.paths import ROOT

AVOIDED = [
    "A transaction came to nothing.",
    "The topic was deleted and made anew.",
    "`a.b` is no topic name.",
    "Nobody would tell.",
    "Whoever redrives dead letters",
    "Who redrives dead letters needs a user.",
    "The clients are of no use any more.",
    "one of those that are open",
    "those\n# who read it",
    "It is told from its neighbours.",
    "self._owed = told_by_place",
    "def settle(self) -> None:",
    "None of ours, and nothing for us.",
    "a text of 1 to 249 characters",
]
FINE = [
    "The service no longer reads it; there is no broker.",
    "A batch of 20 us, and a `fetch_us` setting.",
    "Users who redrive dead letters need a user. Who can read it?",
    "From one instance to another, in a context of its own.",
    "Set up the environment with setuptools.",
]


def findings(text: str) -> list[str]:
    return list(glossary().findings(Path("README.md"), text))


@pytest.mark.parametrize("text", AVOIDED)
def test_a_phrase_to_avoid_is_found(text: str) -> None:
    assert findings(text)


@pytest.mark.parametrize("text", FINE)
def test_plain_english_passes(text: str) -> None:
    assert findings(text) == []


def test_a_finding_names_the_line_and_the_words_to_use() -> None:
    [finding] = findings("One.\n\nTwo is recreated, three made anew.")
    assert finding == "README.md:3: avoid 'anew': again; \"recreate\" for a topic"


def test_an_exception_holds_for_its_path_and_its_phrase_alone() -> None:
    [anew] = (phrase for phrase in glossary().phrase if phrase.avoid == "anew")
    words = Glossary([anew], [PathException("docs", "A quotation.", "anew")])
    assert not list(words.findings(Path("docs/a.md"), "anew"))
    assert list(words.findings(Path("docs.md"), "anew"))
    assert not glossary().allows(Path("README.md"), anew)


def test_every_exception_has_a_reason_and_is_needed() -> None:
    words = glossary()
    for exception in words.exception:
        assert exception.reason
        strict = Glossary([one for one in words.phrase if exception.avoid in ("", one.avoid)])
        texts = [path.read_text() for path in plain_english.files(ROOT, [exception.path])]
        assert any(list(strict.findings(Path("any"), text)) for text in texts)


@pytest.mark.parametrize(("text", "code"), [("It was told.", 1), ("It was logged.", 0)])
def test_the_command_fails_on_a_finding(
    text: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "page.md").write_text(text)
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["plain_english", "folder"])
    with pytest.raises(SystemExit) as exit_:
        plain_english.main()
    assert exit_.value.code == code
    assert ("folder/page.md:1: avoid 'told'" in capsys.readouterr().out) == bool(code)
