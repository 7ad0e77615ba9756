"""What the commands print: for people, and without what a terminal would act on."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consumer.commands.dead_letters.letters import MessagePlace
from consumer.core.times import milliseconds, rfc3339

_HEADING_WIDTH: Final = 11


def show_steps(found: Iterable[tuple[str, str]]) -> None:
    """Print headed paragraphs."""
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        for heading, text in found:
            for number, line in enumerate(text.splitlines() or [""]):
                click.echo(f"{'' if number else heading:<{_HEADING_WIDTH}} {clean(line)}")
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in found:
        table.add_row(heading, Text("\n".join(map(clean, text.splitlines()))))
    console.print(table)


def clean(text: str) -> str:
    """Replace what a terminal would act on: names and payloads come from strangers."""
    return "".join(char if char.isprintable() else "?" for char in text)


def show_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """Print aligned lines, in a narrow terminal too: places in them are there to be copied."""
    rows = [titles, *(tuple(map(clean, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            text.rjust(width) if title in right else text.ljust(width)
            for text, width, title in zip(row, widths, titles, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def moment_text(ms: int) -> str:
    """Return a time as people write it; - if there is none, or none that they could write."""
    return rfc3339(milliseconds(ms)) or "-"


def minute_text(ms: int) -> str:
    """Return a time to the minute, without its year."""
    return moment_text(ms)[5:16].replace("T", " ") or "-"


def place_text(place: MessagePlace) -> str:
    """Return TOPIC:PARTITION:OFFSET."""
    return ":".join(map(str, place))


def say(line: str) -> None:
    """Print a line to standard error, beside the data."""
    click.echo(clean(line), err=True)
