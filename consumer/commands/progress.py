"""Bars that show how far a command has come, on a terminal."""

import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

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

from consumer.commands.capture_files import STANDARD_INPUT

T = TypeVar("T")


@contextmanager
def of_files(files: Sequence[str], name: str) -> Iterator[Callable[[int], None]]:
    """Take sizes of what was read; show a bar on a terminal, if the length is known."""
    console = Console(stderr=True)
    sizes = [_size(file) for file in files]
    if not console.is_terminal or None in sizes:
        yield lambda _size: None
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(name, total=sum(size or 0 for size in sizes))
        yield lambda size: bar.advance(task, size)


def of_items(items: Iterable[T], name: str, total: int | None = None) -> Iterator[T]:
    """Yield items, and show how many have come, where somebody can see it."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield from bar.track(items, total, description=name)


def _size(name: str) -> int | None:
    if name == STANDARD_INPUT or name.endswith(".gz"):
        return None
    try:
        found = Path(name).stat()
    except OSError:  # It will be refused when it is read.
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
