"""`formats`: the formats that the service reads, and those of the messages of a capture."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

import click
import msgspec

from consumer.commands.captures.files import read_capture
from consumer.commands.captures.messages import CaptureFormat
from consumer.commands.exit_codes import exit_like_a_filter
from consumer.commands.formats.catalogue import ALL, format_members, format_paragraphs
from consumer.commands.formats.trial import TriedEvent, tried
from consumer.commands.terminal import echo_paragraphs, echo_table
from consumer.core.adapters.registry import load_adapters
from consumer.core.envelopes.opener import UNKNOWN
from consumer.core.partition import Pipeline
from consumer.settings.core_options import pipeline_options
from consumer.settings.sources import load

_TITLES: Final = (
    "MESSAGE",
    "FORMAT",
    "OUTCOME",
    "REQUEST ID",
    "MODEL",
    "STATUS",
    "TIME",
    "BODY",
    "BYTES",
    "OPENED",
)
_NOTHING_FOUND: Final = (
    "No member holds a response that the setting paths could name:\n"
    "as JSON, as server-sent events, or as text or base64 of these."
)


@click.command(
    "formats",
    epilog="""\b
Examples:
  acceptance-consumer formats
  acceptance-consumer formats --try capture.jsonl""",
)
@click.option(
    "--try",
    "capture",
    metavar="FILE",
    help="Print the format of each message in a capture, as replay reads it; - is standard input.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(CaptureFormat)),
    default="auto",
    show_default=True,
    help="Format of the capture, as for replay.",
)
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with settings, as for run.  [env: ACCEPTANCE_SETTINGS]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(
    *, capture: str | None, form: CaptureFormat, settings_file: Path | None, as_json: bool
) -> None:
    """List the log formats, or name those of a capture.

    For each format that the service reads, the list says what writes it, how it is switched on
    there, what an entry holds, which acceptance numbers survive, and what the service was tried on.

    With --try, the command prints one line per event of each message: its format, and what its
    members give, without any content. Where no format fits and a member holds a response, it prints
    the setting paths that reads such events.
    """
    with exit_like_a_filter():
        if capture is None:
            _echo_formats(as_json=as_json)
            return
        settings = load({}, os.environ, settings_file, require=())
        pipeline = Pipeline(pipeline_options(settings, "local"), load_adapters())
        events = tried(pipeline, read_capture(capture, form))
        if as_json:
            for event in events:
                click.echo(msgspec.json.encode(event))
        else:
            _echo_events(list(events))


def _echo_formats(*, as_json: bool) -> None:
    for form in ALL:
        if as_json:
            click.echo(msgspec.json.encode(format_members(form)))
        else:
            echo_paragraphs(format_paragraphs(form))
            click.echo()


def _echo_events(events: list[TriedEvent]) -> None:
    echo_table(_TITLES, map(_row, events), right=("MESSAGE", "BYTES"))
    suggestions: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for event in events:
        if event.suggested_paths is not None:
            paths = tuple(event.suggested_paths.items())
            suggestions.setdefault(paths, []).append(str(event.message))
    for paths, numbers in suggestions.items():
        click.echo(
            f"\nNo format fits message {_shortened(numbers)}. This would read it:\n\n[paths]"
        )
        for member, path in paths:
            click.echo(f"{member} = {msgspec.json.encode(path).decode()}")
    unread = [event for event in events if event.format == UNKNOWN and event.is_bad]
    if unread and not suggestions:
        numbers = list(dict.fromkeys(str(event.message) for event in unread))
        click.echo(f"\nNo format fits message {_shortened(numbers)}. {_NOTHING_FOUND}")


def _row(event: TriedEvent) -> tuple[str, ...]:
    number = f"{event.message}.{event.entry}" if event.entry else str(event.message)
    outcome = f"{event.outcome}: {event.detail}" if event.detail else event.outcome
    given = (event.request_id, event.model, event.status, event.time, event.body)
    size = "" if event.bytes is None else str(event.bytes)
    way = " > ".join(event.steps)
    return (number, event.format, outcome, *(text or "" for text in given), size, way)


def _shortened(numbers: Iterable[str]) -> str:
    first, *others = numbers
    return f"{first} and {len(others)} more" if others else first
