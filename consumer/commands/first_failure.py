"""The first failure of a replay, and the command that explains it."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from consumer.commands.captures.files import STANDARD_INPUT
from consumer.commands.terminal import outcome_text
from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult
from schemas import MessageOutcome, RequestOutcome

_SUCCESSES: Final = (MessageOutcome.ACCEPTED, MessageOutcome.SKIPPED, RequestOutcome.PUBLISHED)
_PROGRAM: Final = "acceptance-consumer"
_COMMON: Final = RequestOutcome.NO_STATS

TopicPartition = tuple[str, int]


class Failure(Struct, frozen=True):
    """A message or request that gave no record.

    Attributes:
        result: its outcome.
        file: the capture that has its first message.
        place: the arguments of `explain` that name this message.

    """

    result: MessageResult | RequestResult
    file: str
    place: tuple[str, ...]


class _Run(Struct):
    """Messages of a partition that follow each other in one file.

    Attributes:
        offset: of the first one.
        file: the file.
        number: of the file's first message, among the messages of all files.
        is_numbered: whether the offsets are these numbers, as where the file states no offset.

    """

    offset: int
    file: str
    number: int
    is_numbered: bool = True


class FirstFailure:
    """Finds the first failure; a request without numbers, which is common, only if it is alone.

    Attributes:
        failure: the first failure; None without any.

    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._file, self._number = "", 0
        self._runs: dict[TopicPartition, list[_Run]] = {}

    def begin_file(self, name: str, number: int) -> None:
        """Take the next file, and the number of its first message among all."""
        self._file, self._number = name, number

    def begin_partition(self, partition: TopicPartition) -> None:
        """Forget where the messages of a partition were: another capture of it begins."""
        self._runs[partition] = []

    def add_message(self, partition: TopicPartition, offset: int, number: int) -> None:
        """Take the next message, and its number among all."""
        runs = self._runs[partition]
        if not runs or runs[-1].number != self._number:
            runs.append(_Run(offset, self._file, self._number))
        runs[-1].is_numbered &= offset == number

    def add_result(
        self, result: MessageResult | RequestResult, partition: TopicPartition, offset: int
    ) -> None:
        """Take an outcome, and the offset of the message, or of the request's first one."""
        if result.outcome in _SUCCESSES:
            return
        known = self.failure
        if known is not None and (known.result.outcome is not _COMMON or result.outcome is _COMMON):
            return
        run = next(run for run in reversed(self._runs[partition]) if run.offset <= offset)
        number = ("--line", str(offset - run.number + 1))
        place = number if run.is_numbered else (partition[0], str(partition[1]), str(offset))
        self.failure = Failure(result, run.file, place)


def how_to_explain(failure: Failure, options: list[str]) -> str:
    """Return what the operator does to have a failure explained; the last line is a command.

    Args:
        failure: the failure.
        options: those of the replay that `explain` needs, too.

    """
    what = f"the first {outcome_text(failure.result.outcome, failure.result.reason)}"
    if failure.file == STANDARD_INPUT:
        return f"to explain {what}: save the input to a file, and replay the file"
    words = [_program(), "explain", *failure.place, "--capture", failure.file]
    return f"to explain {what}:\n{shlex.join([*words, *options])}"


def _program() -> str:
    """Return what starts this program in the operator's shell: its path, unless that finds it."""
    started = Path(sys.argv[0])
    is_found = started.name != _PROGRAM or shutil.which(_PROGRAM) is not None
    return _PROGRAM if is_found else str(started)
