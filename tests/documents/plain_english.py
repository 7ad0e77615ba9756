"""Check documents, comments and texts against the glossary of words to avoid.

`python -m tests.documents.plain_english` prints each use of a phrase of `glossary.toml` with the
words to use instead, and fails if there is one.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tests.paths import ROOT

GLOSSARY: Final = Path(__file__).with_name("glossary.toml")
CHECKED: Final = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile", "Dockerfile"),
    *("pyproject.toml", ".pre-commit-config.yaml", ".ci", ".github"),
    *("consumer", "schemas", "helm", "tests"),
)
_SUFFIXES: Final = frozenset(
    {"", ".css", ".html", ".md", ".py", ".toml", ".tpl", ".txt", ".yaml", ".yml"}
)

_GENERATED: Final = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
"""Parts of documents whose texts are written, and checked, in the code."""


class Phrase(Struct, forbid_unknown_fields=True):
    """A regular expression for words to avoid, and the words to use instead."""

    avoid: str
    use: str

    def pattern(self) -> re.Pattern[str]:
        """Return the expression for whole words; a space also matches the break of a comment."""
        spaced = self.avoid.replace(" ", r"\s+(?:#\s+)?")
        return re.compile(rf"(?<![a-z])(?:{spaced})(?![a-z])", re.IGNORECASE | re.MULTILINE)


class PathException(Struct, forbid_unknown_fields=True):
    """A file or folder that may use a phrase, or every phrase, and why."""

    path: str
    reason: str
    avoid: str = ""


class Glossary(Struct, forbid_unknown_fields=True):
    """The file of the glossary."""

    phrase: list[Phrase]
    exception: list[PathException] = []

    def allows(self, path: Path, phrase: Phrase) -> bool:
        """Return whether an exception lets a file use a phrase."""
        return any(
            path.is_relative_to(exception.path) and exception.avoid in ("", phrase.avoid)
            for exception in self.exception
        )

    def findings(self, path: Path, text: str) -> Iterator[str]:
        """Return a line of output for each phrase to avoid in a text, in their order."""
        text = _GENERATED.sub(lambda match: "\n" * match[0].count("\n"), text)
        found = sorted(
            (match.start(), match[0], phrase.use)
            for phrase in self.phrase
            if not self.allows(path, phrase)
            for match in phrase.pattern().finditer(text)
        )
        for start, words, use in found:
            line = text.count("\n", 0, start) + 1
            yield f"{path}:{line}: avoid {' '.join(words.split())!r}: {use}"


def glossary() -> Glossary:
    """Read the glossary."""
    return msgspec.toml.decode(GLOSSARY.read_bytes(), type=Glossary)


def files(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """Return the text files among the names and below them."""
    for name in names:
        path = root / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix in _SUFFIXES and "__pycache__" not in file.parts:
                yield file


def main() -> None:
    """Check the files, and exit with 1 if one uses a phrase to avoid."""
    words = glossary()
    found = [
        finding
        for file in files(ROOT, sys.argv[1:] or CHECKED)
        for finding in words.findings(file.relative_to(ROOT), file.read_text(encoding="utf-8"))
    ]
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
