"""Dead letters listed, shown, captured and redriven."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from confluent_kafka import KafkaException

from consumer.commands.captures.messages import record_line
from consumer.commands.dead_letters.letters import (
    Letter,
    LetterFilter,
    LetterTopic,
    decode_letter,
    group_letters,
)
from consumer.commands.dead_letters.redrive import Redriver
from consumer.commands.dead_letters.reprocess import Obstacle
from consumer.commands.dead_letters.sources import RedriveMessage, SourceReader, batches
from consumer.commands.exit_codes import OutputError
from consumer.commands.places import MessagePlace, place_of, place_text
from consumer.commands.terminal import (
    echo_note,
    echo_table,
    item_progress,
    minute_text,
    moment_text,
    outcome_text,
    printable,
)
from consumer.commands.topic_reader import MissingMessageError, TopicReader
from consumer.core.adapters.registry import load_adapters
from consumer.core.message import CapturedMessage
from consumer.core.redaction import preview as preview_of
from consumer.exit_codes import FAILED
from consumer.kafka.administrator import Administrator, Cluster
from consumer.kafka.errors import ClusterError, KafkaFailureError
from consumer.settings.settings import Settings
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.logging_setup import get_logger
from consumer.telemetry.outcome_reporter import OutcomeReporter

_INSPECT_S: Final = 10.0
_CONTENT: Final = ("value_base64", "key_base64", "headers")


class DeadLetters:
    """The actions on the dead letters that pass a filter.

    Args:
        settings: the settings.
        reader: reads topics.
        letter_filter: which letters to process.
        as_json: whether to print JSON.

    """

    def __init__(
        self, settings: Settings, reader: TopicReader, letter_filter: LetterFilter, *, as_json: bool
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._filter = letter_filter
        self._as_json = as_json
        self._sources = SourceReader(settings, load_adapters(), reader)

    def list_groups(self) -> int:
        """List the letters by reason; return the exit code."""
        groups = group_letters(self._letters())
        if self._as_json:
            for group in groups:
                members = msgspec.structs.asdict(group)
                members["first"] = moment_text(group.first)
                members["last"] = moment_text(group.last)
                members["example"] = place_text(group.example)
                click.echo(msgspec.json.encode(members))
        elif groups:
            rows = [
                (
                    group.kind,
                    outcome_text(group.outcome, group.reason),
                    str(group.count),
                    str(group.redriven or "-"),
                    minute_text(group.first),
                    minute_text(group.last),
                    place_text(group.example),
                )
                for group in groups
            ]
            echo_table(
                ("kind", "outcome", "count", "redriven", "first, UTC", "last, UTC", "example"),
                rows,
                right=("count", "redriven"),
            )
        return 0

    def show(self, place: MessagePlace, preview: int) -> int:
        """Print the letters at a place; return the exit code."""
        letters = self._letters_at(place)
        if not letters:
            raise MissingMessageError(
                f"no dead letter is at {place_text(place)} or about the message there"
            )
        for letter in letters:
            content = decode_letter(self._reader.message(*letter.place))
            members = msgspec.to_builtins(content)
            for name in _CONTENT:
                del members[name]
            members["letter"] = place_text(letter.place)
            members["written_at"] = moment_text(letter.written_at)
            members["redriven"] = letter.redriven
            if preview and content.kind == "message":
                members["payload"] = self._preview(letter, preview)
            encoded = msgspec.json.encode(members)
            if self._as_json:
                click.echo(encoded)
                continue
            for line in msgspec.json.format(encoded, indent=2).decode().split("\n"):
                click.echo(printable(line))  # JSON does not escape all control characters.
        return 0

    def capture(self, path: Path) -> int:
        """Write the messages that the letters are about to a file; return the exit code."""
        letters = self._letters()
        messages: dict[MessagePlace, CapturedMessage] = {}
        obstacles: Counter[str] = Counter()
        for found in item_progress(
            self._messages_of_each(letters), "reading sources", len(letters)
        ):
            if isinstance(found, Obstacle):
                obstacles[found.reason] += 1
            else:
                messages |= {place_of(message): message for message in found}
        try:
            with path.open("wb") as file:
                file.writelines(record_line(messages[place]) for place in sorted(messages))
        except OSError as error:
            raise OutputError(str(path), error) from error
        captured = len(letters) - obstacles.total()
        echo_note(f"wrote {len(messages)} messages of {captured} letters to {path}")
        for reason, count in obstacles.items():
            echo_note(f"{count} not captured: {reason}")
        return FAILED if obstacles else 0

    def _messages_of_each(
        self, letters: Iterable[Letter]
    ) -> Iterator[list[CapturedMessage] | Obstacle]:
        """Yield the messages that each letter is about."""
        for batch in batches(letters, lambda letter: letter):
            requests = [letter for letter in batch if letter.content.kind == "request"]
            by_request = self._sources.messages_by_request(requests)
            for letter in requests:
                yield by_request.get(letter.content.record_id) or Obstacle(
                    "the source messages were deleted"
                )
            messages = [letter for letter in batch if letter.content.kind == "message"]
            restored = self._sources.messages_of(messages)
            for letter in messages:
                found = restored[letter.place]
                if isinstance(found, Obstacle):
                    yield found
                    continue
                if found.missing is not None:
                    echo_note(f"{place_text(letter.source)}: {found.missing}")
                yield [found.message]

    def redrive(self, *, yes: bool) -> int:
        """Redrive the letters; return the exit code."""
        letters = self._letters()
        before = sum(letter.redriven for letter in letters)
        if before:
            echo_note(f"{_count(before)} redriven before")
        cluster = Administrator(self._settings).inspect(_INSPECT_S)
        reporter = _record_reporter(self._settings, cluster)
        redrivable: list[tuple[Letter, RedriveMessage | None]] = []
        plan = _RedrivePlan()
        remaining = [letter for letter in letters if not letter.redriven]
        for letter, prepared in item_progress(
            self._prepare(remaining, reporter), "reading sources", len(remaining)
        ):
            plan.add(letter, prepared)
            if isinstance(prepared, RedriveMessage):
                # Records are few and small; messages may be many and large, and are read again.
                kept = prepared if letter.content.kind == "request" else None
                redrivable.append((letter, kept))
        plan.echo(as_json=self._as_json)
        code = FAILED if plan.left_alone else 0
        if not redrivable:
            echo_note("no letter can be redriven")
        elif yes or _confirm(f"Redrive {len(redrivable)} letters?"):
            sent, failed = self._send(redrivable, cluster, reporter)
            also = f", {plan.left_alone} left alone" if plan.left_alone else ""
            echo_note(f"{sent} redriven, {failed} failed{also}")
            code = FAILED if failed else code
        return code

    def _prepare(
        self, letters: Iterable[Letter], reporter: OutcomeReporter
    ) -> Iterator[tuple[Letter, RedriveMessage | Obstacle]]:
        for batch in batches(letters, lambda letter: letter):
            yield from zip(batch, self._sources.prepare(batch, reporter), strict=True)

    def _send(
        self,
        redrivable: Sequence[tuple[Letter, RedriveMessage | None]],
        cluster: Cluster,
        reporter: OutcomeReporter,
    ) -> tuple[int, int]:
        """Send the messages of letters; return how many were sent, and how many failed."""
        redriver = Redriver(self._settings, cluster)
        # The new producer has fenced all other redrives: all of their notices are visible now.
        redriven = {
            letter.content.record_id
            for letter in self._letters(wait_for_transactions=True)
            if letter.redriven
        }
        remaining = [one for one in redrivable if one[0].content.record_id not in redriven]
        if len(remaining) < len(redrivable):
            meanwhile = _count(len(redrivable) - len(remaining))
            echo_note(f"{meanwhile} redriven by another process in the meantime")
        failed = 0
        try:
            for letter, error in item_progress(
                self._send_each(remaining, redriver, reporter), "redriving", len(remaining)
            ):
                if error is not None:
                    failed += 1
                    echo_note(f"{place_text(letter.source)}: {error}")
        except (ClusterError, KafkaFailureError, KafkaException, KeyboardInterrupt):
            unsent = len(remaining) - redriver.sent
            echo_note(f"{redriver.sent} redriven, {unsent} remaining; run the command again")
            raise
        return redriver.sent, failed

    def _send_each(
        self,
        redrivable: Iterable[tuple[Letter, RedriveMessage | None]],
        redriver: Redriver,
        reporter: OutcomeReporter,
    ) -> Iterator[tuple[Letter, str | None]]:
        """Send, and yield each letter with its error or None."""
        for batch in batches(redrivable, lambda one: one[0]):
            unread = [letter for letter, message in batch if message is None]
            read = iter(self._sources.prepare(unread, reporter))
            prepared = [(letter, message or next(read)) for letter, message in batch]
            errors = iter(
                redriver.send_all(
                    (letter, one) for letter, one in prepared if isinstance(one, RedriveMessage)
                )
            )
            for letter, one in prepared:
                yield letter, one.reason if isinstance(one, Obstacle) else next(errors)

    def _letters(self, *, wait_for_transactions: bool = False) -> list[Letter]:
        topic, since = self._settings.dead_letter_topic, self._filter.since
        letters = LetterTopic(
            self._reader.read_all(topic, since, wait_for_transactions=wait_for_transactions)
        )
        if letters.foreign:
            echo_note(f"{letters.foreign} messages on topic {topic!r} are not dead letters")
        found = letters.select(self._filter)
        if not found and len(letters):
            noun = "letter" if len(letters) == 1 else "letters"
            echo_note(f"no dead letter matches; the topic holds {len(letters)} other {noun}")
        elif not found:
            echo_note(f"no dead letters{'' if since is None else ' since that time'}")
        return found

    def _letters_at(self, place: MessagePlace) -> list[Letter]:
        """Return the letters at a place, else those about the request of the message there."""
        letters = self._letters()
        exact = [letter for letter in letters if place in (letter.place, letter.source)]
        if exact:
            return exact
        around = [letter for letter in letters if letter.spans(place)]
        by_request = self._sources.messages_by_request(around)
        return [
            letter
            for letter in around
            if place in map(place_of, by_request.get(letter.content.record_id, ()))
        ]

    def _preview(self, letter: Letter, preview: int) -> str:
        found = self._sources.messages_of([letter])[letter.place]
        if isinstance(found, Obstacle):
            return f"[not shown: {found.reason}]"
        return preview_of(found.message.value() or b"", preview)


class _RedrivePlan:
    """What a redrive will do, counted, with an example of each."""

    def __init__(self) -> None:
        self.left_alone = 0
        self._sources: dict[tuple[str, str, str], list[str]] = {}
        self._lines: list[dict[str, object]] = []

    def add(self, letter: Letter, prepared: RedriveMessage | Obstacle) -> None:
        """Add one letter."""
        content, source = letter.content, place_text(letter.source)
        was = outcome_text(content.outcome, content.reason)
        if isinstance(prepared, Obstacle):
            self.left_alone += 1
            does, what = "left alone", prepared.reason
        else:
            does = "produce" if content.kind == "message" else "publish"
            what = "; ".join(filter(None, (prepared.what, prepared.missing)))
        self._sources.setdefault((was, does, what), []).append(source)
        self._lines.append(
            {
                "source": source,
                "record_id": content.record_id,
                "was": was,
                "does": does,
                "what": what,
            }
        )

    def echo(self, *, as_json: bool) -> None:
        """Print the plan."""
        if as_json:
            for line in self._lines:
                click.echo(msgspec.json.encode(line))
        elif self._sources:
            rows = [
                (was, str(len(sources)), does, what, sources[0])
                for (was, does, what), sources in self._sources.items()
            ]
            titles = ("outcome", "count", "action", "details", "example")
            echo_table(titles, rows, right=("count",))


def _count(count: int) -> str:
    return "1 letter was" if count == 1 else f"{count} letters were"


def _confirm(question: str) -> bool:
    """Ask the operator, if standard input is a terminal."""
    if sys.stdin.isatty():
        return click.confirm(question, err=True)
    echo_note("nothing was sent; add --yes to redrive without a prompt")
    return False


def _record_reporter(settings: Settings, cluster: Cluster) -> OutcomeReporter:
    """Return a reporter that makes records into messages as the service does."""
    return OutcomeReporter(
        dead_letters="off",  # A redrive writes no new letters.
        record_limit=cluster.record_limit,
        letter_limit=cluster.letter_limit,
        log_payloads=settings.log_preview_bytes > 0,
        clock=SystemClock(),
        log=get_logger(),
    )
