"""Terminal output: text without control characters, tables, headed paragraphs and progress bars."""

import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from consumer.core.times import milliseconds, rfc3339

T = TypeVar("T")

_HEADING_WIDTH: Final = 11


def printable(text: str) -> str:
    """Replace control characters: producers choose names and payloads, and a terminal obeys."""
    return "".join(char if char.isprintable() else "?" for char in text)


def echo_note(line: str) -> None:
    """Print a line to standard error, beside the data."""
    click.echo(printable(line), err=True)


def echo_paragraphs(paragraphs: Iterable[tuple[str, str]]) -> None:
    """Print paragraphs with a heading each."""
    if not sys.stdout.isatty():
        for heading, text in paragraphs:
            for number, line in enumerate(text.splitlines() or [""]):
                click.echo(f"{'' if number else heading:<{_HEADING_WIDTH}} {printable(line)}")
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in paragraphs:
        table.add_row(heading, Text("\n".join(map(printable, text.splitlines()))))
    Console(highlight=False).print(table)


def echo_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """Print aligned lines of any width: operators copy places from them, so nothing wraps."""
    rows = [titles, *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            text.rjust(width) if title in right else text.ljust(width)
            for text, width, title in zip(row, widths, titles, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def moment_text(ms: int) -> str:
    """Return milliseconds since 1970 as RFC 3339; - if RFC 3339 cannot express them."""
    return rfc3339(milliseconds(ms)) or "-"


def minute_text(ms: int) -> str:
    """Return a time to the minute, without its year."""
    return moment_text(ms)[5:16].replace("T", " ") or "-"


def outcome_text(outcome: str, reason: str | None) -> str:
    """Return an outcome and its reason as the totals in the log name them."""
    return outcome if reason is None else f"{outcome}({reason})"


@contextmanager
def file_progress(
    names: Sequence[str], description: str
) -> Iterator[Callable[[BinaryIO], BinaryIO]]:
    """Yield a wrapper for the files: on a terminal, a bar shows how much of them was read.

    Args:
        names: all files; the bar needs the size of each.
        description: name of the bar.

    """
    console = Console(stderr=True)
    sizes = [_size(name) for name in names]
    if not console.is_terminal or None in sizes:
        yield lambda file: file
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task(description, total=sum(size or 0 for size in sizes))
        yield lambda file: progress.wrap_file(file, task_id=task)


def item_progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield items; on a terminal, show how many there were."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield from progress.track(items, total, description=description)


def _size(name: str) -> int | None:
    """Return the size of a regular file; None for all else, and for one that cannot be read."""
    if name == "-":
        return None
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
