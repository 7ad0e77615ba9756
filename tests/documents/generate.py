"""Generate parts of the documents from the code, so that the two cannot differ.

`python -m tests.documents.generate` rewrites the text between `<!-- generated: NAME -->` and
`<!-- end -->` in the READMEs, the JSON Schemas, and the chart's schema of the service's settings.
With `--check` it changes no file and fails if one is not current.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from consumer.core.adapters.smg import SmgAdapter
from consumer.core.envelopes.formats import ENVELOPES, FORMATS
from consumer.settings.fields import fields
from consumer.telemetry.health import GAUGES
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metric_families import Family
from schemas import (
    BadPayloadReason,
    IncompleteReason,
    MalformedReason,
    MessageOutcome,
    NoStatsReason,
    OddMember,
    PublishedRecord,
    RequestOutcome,
    SkipReason,
    published,
)
from tests.documents import chart_settings
from tests.paths import ROOT, SAMPLES
from tests.unit.core.made import ADAPTERS, outcomes_of

DOCUMENTS: Final = ("README.md", "schemas/README.md", "consumer/README.md", "helm/README.md")
_NUMBERS: Final = (
    *("steps", "accepted", "drafts", "nominal drafts", "histogram", "k", "per step"),
)
_CHART: Final = Path("helm") / "acceptance-consumer"


class DocumentError(Exception):
    """A document has an unknown or unfinished mark."""


@click.command()
@click.option("--check", is_flag=True, help="Change no file; fail if one is not current.")
def main(*, check: bool) -> None:
    """Write the generated parts of the documents, and the JSON Schemas."""
    stale = [(path, text) for path, text in current(ROOT) if _read(path) != text]
    for path, text in stale:
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        click.echo(f"{path.relative_to(ROOT)} {'is not current' if check else 'written'}")
    if check and stale:
        raise click.ClickException("run python -m tests.documents.generate")


def current(root: Path) -> Iterator[tuple[Path, str]]:
    """Return every file with generated parts, and its expected content."""
    for document in DOCUMENTS:
        path = root / document
        if (text := _read(path)) is not None:
            yield path, regenerated(text, document)
    values_schema = root / _CHART / "values.schema.json"
    if (text := _read(values_schema)) is not None:
        yield values_schema, chart_settings.with_settings(text)
    for name in published.names():
        yield root / published.path(name).relative_to(ROOT), published.text(name)


_MARKED: Final = re.compile(
    r"(?P<mark><!-- generated: (?P<name>[\w-]+) -->\n)(?P<old>.*?)(?P<end><!-- end -->|\Z)",
    re.DOTALL,
)


def regenerated(text: str, document: str) -> str:
    """Return the text of a document with its generated parts rewritten.

    Raises:
        DocumentError: a part has no end, or no generator.

    """

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in GENERATED:
            raise DocumentError(f"{document}: {name} is not one of {', '.join(GENERATED)}")
        if not match["end"] or "<!-- generated:" in match["old"]:
            raise DocumentError(f"{document}: {name} has no <!-- end -->")
        return f"{match['mark']}\n{GENERATED[name]()}\n{match['end']}"

    return _MARKED.sub(replaced, text)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


# The parts


class _Explained(Protocol):
    """A member of a closed list, with its explanation."""

    @property
    def value(self) -> str: ...
    @property
    def explanation(self) -> str: ...


def _settings() -> str:
    return _table(
        ("Setting", "Default", "Allowed", "Meaning"),
        (
            (
                f"`{field.name}`",
                f"`{field.default_text}`" if field.default_text else "",
                field.allowed,
                field.description,
            )
            for field in fields().values()
        ),
    )


def _values() -> str:
    text = (ROOT / _CHART / "values.yaml").read_text(encoding="utf-8")
    return _table(
        ("Value", "Default", "Meaning"),
        (
            (f"`{name}`", f"`{default}`" if default else "", meaning)
            for name, default, meaning in chart_settings.values(text)
        ),
    )


def _members(schema_name: str) -> Callable[[], str]:
    def table() -> str:
        schema = published.schema(schema_name)
        return _table(
            ("Field", "Type", "Meaning"),
            (
                (f"`{name}`", _type_text(described), described["description"])
                for name, described in schema["properties"].items()
            ),
        )

    return table


def _type_text(described: Mapping[str, Any]) -> str:
    if "anyOf" in described:
        return " or ".join(map(_type_text, described["anyOf"]))
    if "enum" in described:
        return " or ".join(f"`{value}`" for value in described["enum"])
    of: Mapping[str, Any] = described.get("items") or described.get("additionalProperties") or {}
    if "prefixItems" in of:
        return "array of pairs"
    return f"{described['type']} of {of['type']}s" if "type" in of else str(described["type"])


def _sentences(what: str, members: Iterable[_Explained]) -> Callable[[], str]:
    return lambda: _table(
        (what, "Meaning"), ((f"`{member.value}`", member.explanation) for member in members)
    )


def _events() -> str:
    return _table(
        ("Event", "Meaning", "Fields"),
        (
            (f"`{event}`", event.explanation, ", ".join(f"`{name}`" for name in event.fields))
            for event in LogEvent
        ),
    )


def _reasons() -> str:
    by_outcome: Sequence[tuple[str, Iterable[_Explained]]] = (
        (MessageOutcome.SKIPPED, SkipReason),
        (MessageOutcome.BAD_PAYLOAD, BadPayloadReason),
        (RequestOutcome.NO_STATS, NoStatsReason),
        (RequestOutcome.MALFORMED_STATS, MalformedReason),
        (RequestOutcome.INCOMPLETE, IncompleteReason),
    )
    return _table(
        ("Outcome", "Reason", "Meaning"),
        (
            (f"`{outcome}`", f"`{reason.value}`", reason.explanation)
            for outcome, reasons in by_outcome
            for reason in reasons
        ),
    )


def _formats() -> str:
    return _table(
        (
            "Format",
            "What writes it",
            "How to switch it on",
            "Which numbers survive",
            "Tried on",
            "Documents",
        ),
        (
            (
                f"`{form.name}`",
                form.title,
                form.switch_on,
                form.survives,
                "; ".join(form.tried_on) or "samples made after the documents",
                "; ".join(form.documents),
            )
            for form in (*ENVELOPES, *FORMATS)
        ),
    )


def _engines() -> str:
    """Return a row per adapter, with the numbers that its samples have."""
    adapters: Sequence[Any] = (*ADAPTERS, SmgAdapter)
    numbers: dict[str, list[str]] = defaultdict(list)
    for path in sorted((SAMPLES / "engines").rglob("*.*")):
        if path.name.startswith(("proposed_", "prerelease_")):
            continue  # No release sends it.
        for result in outcomes_of([path.read_bytes()], prediction_tokens="drafts"):
            if result.record is not None:
                numbers[result.record.engine] += _numbers_of(result.record)
    return _table(
        ("Engine", "In records", "Numbers", "Place in a response", "How to switch it on"),
        (
            (
                adapter.title,
                f"`{adapter.engine}`",
                ", ".join(sorted(set(numbers[adapter.engine]), key=_NUMBERS.index)),
                ", ".join(f"`{place}`" for place in adapter.places),
                adapter.switch_on,
            )
            for adapter in adapters
        ),
    )


def _numbers_of(record: PublishedRecord) -> Iterator[str]:
    """Yield the numbers that a record has, beside mean and rate, which follow from them."""
    nominal = not record.draft_tokens_measured
    for value, name in (
        (record.num_spec_steps, "steps"),
        (record.num_accepted_draft_tokens, "accepted"),
        (record.num_draft_tokens, "nominal drafts" if nominal else "drafts"),
        (record.acceptance_histogram, "histogram"),
        (record.num_spec_tokens, "k"),
        (record.per_step_accepted, "per step"),
    ):
        if value is not None:
            yield name


def _metrics() -> str:
    return _table(
        ("Metric", "Type", "Labels", "Meaning"),
        [
            *(
                (
                    f"`{family.value}`",
                    family.kind,
                    ", ".join(f"`{label}`" for label in family.labels),
                    family.explanation,
                )
                for family in Family
            ),
            *((f"`{name}`", "gauge", "", explanation) for name, explanation in GAUGES.items()),
        ],
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "settings": _settings,
    "record-fields": _members("acceptance-record"),
    "dead-letter-fields": _members("dead-letter"),
    "response-event-fields": _members("response-event"),
    "message-outcomes": _sentences("Outcome of a message", MessageOutcome),
    "request-outcomes": _sentences("Outcome of a request", RequestOutcome),
    "reasons": _reasons,
    "formats": _formats,
    "engines": _engines,
    "odd-members": _sentences("Member", OddMember),
    "log-events": _events,
    "metrics": _metrics,
    "values": _values,
}


if __name__ == "__main__":
    main()
