"""Dead letters listed, shown, captured and redriven."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from confluent_kafka import KafkaException

from consumer.commands.capture_files import written
from consumer.commands.dead_letters.letters import (
    Filter,
    Letter,
    Letters,
    MessagePlace,
    Refused,
    grouped,
    opened,
)
from consumer.commands.dead_letters.redrive import Ready, Redriver, Sources, batches, reporter_of
from consumer.commands.explain.explanation import outcome_text
from consumer.commands.parameter_types import FAILED
from consumer.commands.progress import of_items
from consumer.commands.replay import OutputError
from consumer.commands.terminal import clean, minute_text, moment_text, place_text, say, show_table
from consumer.commands.topic_reader import MissingMessageError, TopicReader
from consumer.core.adapters.registry import load_adapters
from consumer.core.message import CapturedMessage
from consumer.core.redaction import preview as preview_of
from consumer.kafka.administrator import Administrator, Cluster
from consumer.kafka.errors import ClusterError, KafkaFailureError
from consumer.settings.settings import Settings
from consumer.telemetry.outcome_reporter import OutcomeReporter

_INSPECT_S: Final = 10.0
_CONTENT: Final = ("value_base64", "key_base64", "headers")


class Desk:
    """What is done with dead letters.

    Args:
        settings: the settings.
        reader: reads topics.
        wanted: which letters.
        as_json: whether to print JSON.

    """

    def __init__(
        self, settings: Settings, reader: TopicReader, wanted: Filter, *, as_json: bool
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._wanted = wanted
        self._as_json = as_json
        self._sources = Sources(settings, load_adapters(), reader)

    def overview(self) -> int:
        """List the letters by reason; return the exit code."""
        letters = self._letters()
        groups = grouped(letters)
        if self._as_json:
            for group in groups:
                times = {"first": moment_text(group.first), "last": moment_text(group.last)}
                shown = msgspec.structs.asdict(group) | times
                click.echo(msgspec.json.encode(shown | {"example": place_text(group.example)}))
            return 0
        if not groups:
            return 0
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
        show_table(
            ("kind", "outcome", "count", "done", "first, UTC", "last, UTC", "example"),
            rows,
            right=("count", "done"),
        )
        return 0

    def show(self, place: MessagePlace, preview: int) -> int:
        """Print one letter; return the exit code."""
        letters = self._letters_of(place)
        if not letters:
            raise MissingMessageError(
                f"no dead letter lies at {place_text(place)}, or is about the message there"
            )
        for letter in letters:
            content = opened(self._reader.message(*letter.place))
            shown = msgspec.to_builtins(content)
            for name in _CONTENT:
                del shown[name]
            shown["letter"] = place_text(letter.place)
            shown["written_at"] = moment_text(letter.written)
            shown["redriven"] = letter.redriven
            if preview and content.kind == "message":
                shown["payload"] = self._preview(letter, preview)
            encoded = msgspec.json.encode(shown)
            if self._as_json:
                click.echo(encoded)
                continue
            for line in msgspec.json.format(encoded, indent=2).decode().split("\n"):
                click.echo(clean(line))  # JSON escapes some control characters, not all.
        return 0

    def capture(self, path: Path) -> int:
        """Write the messages that the letters are about; return the exit code."""
        letters = self._letters()
        found: dict[MessagePlace, CapturedMessage] = {}
        refused: Counter[str] = Counter()
        bar = of_items(self._parts_of(letters), "looking at sources", len(letters))
        for parts in bar:
            if isinstance(parts, Refused):
                refused[parts.reason] += 1
            else:
                found |= {(one.at_topic, one.at_partition, one.at_offset): one for one in parts}
        try:
            with path.open("wb") as file:
                file.writelines(written(found[place]) for place in sorted(found))
        except OSError as error:
            raise OutputError(str(path), error) from error
        say(f"{len(found)} messages of {len(letters) - refused.total()} letters written to {path}")
        for reason, count in refused.items():
            say(f"{count} not written: {reason}")
        return FAILED if refused else 0

    def _parts_of(self, letters: Iterable[Letter]) -> Iterator[list[CapturedMessage] | Refused]:
        """Yield the messages that each letter is about."""
        for some in batches(letters, lambda letter: letter):
            requests = [letter for letter in some if letter.content.kind == "request"]
            parts = self._sources.parts_of(requests)
            for letter in requests:
                yield parts.get(letter.content.record_id) or Refused("the source is gone")
            messages = [letter for letter in some if letter.content.kind == "message"]
            made = self._sources.messages_of(messages)
            for letter in messages:
                one = made[letter.place]
                if isinstance(one, Refused):
                    yield one
                    continue
                if one.lacks is not None:
                    say(f"{place_text(letter.source)}: {one.lacks}")
                yield [one.message]

    def redrive(self, *, yes: bool) -> int:
        """Redrive the letters; return the exit code."""
        letters = self._letters()
        before = sum(letter.redriven for letter in letters)
        if before:
            say(f"{before} {'was' if before == 1 else 'were'} redriven before")
        cluster = Administrator(self._settings).inspect(_INSPECT_S)
        reporter = reporter_of(self._settings, cluster)
        able: list[tuple[Letter, Ready | None]] = []
        plan = _Plan()
        left = [letter for letter in letters if not letter.redriven]
        looked_at = of_items(self._prepared(left, reporter), "looking at sources", len(left))
        for letter, prepared in looked_at:
            plan.note(letter, prepared)
            if isinstance(prepared, Ready):  # Messages may be many and large, records are not.
                able.append((letter, prepared if letter.content.kind == "request" else None))
        plan.show(as_json=self._as_json)
        code = FAILED if plan.refused else 0
        if not able:
            say("nothing to redrive")
        elif yes or _agreed(f"Redrive {len(able)} letters?"):
            sent, failed = self._send(able, cluster, reporter)
            also = f", {plan.refused} left alone" if plan.refused else ""
            say(f"{sent} redriven, {failed} failed{also}")
            code = FAILED if failed else code
        return code

    def _prepared(
        self, letters: Iterable[Letter], reporter: OutcomeReporter
    ) -> Iterator[tuple[Letter, Ready | Refused]]:
        for some in batches(letters, lambda letter: letter):
            yield from zip(some, self._sources.prepare(some, reporter), strict=True)

    def _send(
        self,
        able: Sequence[tuple[Letter, Ready | None]],
        cluster: Cluster,
        reporter: OutcomeReporter,
    ) -> tuple[int, int]:
        """Send what is ready for letters; return how many were sent, and how many not."""
        redriver = Redriver(self._settings, cluster)
        # Whoever redrove meanwhile has been stopped by that; what was done shows now.
        done = {one.content.record_id for one in self._letters(settled=True) if one.redriven}
        left = [one for one in able if one[0].content.record_id not in done]
        if len(left) < len(able):
            say(f"{len(able) - len(left)} redriven by somebody else meanwhile")
        failed = 0
        try:
            outcomes = of_items(self._sent(left, redriver, reporter), "redriving", len(left))
            for letter, error in outcomes:
                if error is not None:
                    failed += 1
                    say(f"{place_text(letter.source)}: {error}")
        except (ClusterError, KafkaFailureError, KafkaException, KeyboardInterrupt):
            more = len(left) - redriver.sent
            say(f"{redriver.sent} redriven, {more} left: run it again")
            raise
        return redriver.sent, failed

    def _sent(
        self,
        able: Iterable[tuple[Letter, Ready | None]],
        redriver: Redriver,
        reporter: OutcomeReporter,
    ) -> Iterator[tuple[Letter, str | None]]:
        """Send, and yield why a letter did not get there, or None."""
        for some in batches(able, lambda one: one[0]):
            unread = [letter for letter, ready in some if ready is None]
            read = iter(self._sources.prepare(unread, reporter))
            prepared = [(letter, ready or next(read)) for letter, ready in some]
            ready = [(letter, one) for letter, one in prepared if isinstance(one, Ready)]
            errors = iter(redriver.send_all(ready))
            for letter, one in prepared:
                yield letter, one.reason if isinstance(one, Refused) else next(errors)

    def _letters(self, *, settled: bool = False) -> list[Letter]:
        topic, since = self._settings.dead_letter_topic, self._wanted.since
        letters = Letters(self._reader.read_all(topic, since, settled=settled))
        if letters.foreign:
            say(f"{letters.foreign} messages of the topic are no dead letters")
        found = letters.selected(self._wanted)
        if not found:
            others = f"none of these; {len(letters)} other{'s' if len(letters) > 1 else ''}"
            then = "" if since is None else " since then"
            say(others if len(letters) else f"no dead letters{then}")
        return found

    def _letters_of(self, place: MessagePlace) -> list[Letter]:
        """Return the letters at a place, or else about the request of the message there."""
        letters = self._letters()
        exact = [letter for letter in letters if place in (letter.place, letter.source)]
        around = [] if exact else [letter for letter in letters if letter.spans(place)]
        parts = self._sources.parts_of(around)
        return exact + [
            letter
            for letter in around
            if any(part.at_offset == place[2] for part in parts.get(letter.content.record_id, ()))
        ]

    def _preview(self, letter: Letter, preview: int) -> str:
        found = self._sources.messages_of([letter])[letter.place]
        if isinstance(found, Refused):
            return f"[not shown: {found.reason}]"
        return preview_of(found.message.value() or b"", preview)


class _Plan:
    """What is to be done, counted, with an example of each."""

    def __init__(self) -> None:
        self.refused = 0
        self._lines: dict[tuple[str, str, str], list[str]] = {}
        self._each: list[dict[str, object]] = []

    def note(self, letter: Letter, prepared: Ready | Refused) -> None:
        """Take note of one letter."""
        content, source = letter.content, place_text(letter.source)
        was = outcome_text(content.outcome, content.reason)
        if isinstance(prepared, Refused):
            self.refused += 1
            does, what = "left alone", prepared.reason
        else:
            does = "produce" if content.kind == "message" else "publish"
            what = prepared.what if prepared.lacks is None else f"{prepared.what}; {prepared.lacks}"
        self._lines.setdefault((was, does, what), []).append(source)
        self._each.append(
            {
                "source": source,
                "record_id": content.record_id,
                "was": was,
                "does": does,
                "what": what,
            }
        )

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            for line in self._each:
                click.echo(msgspec.json.encode(line))
        elif self._lines:
            rows = [
                (was, str(len(places)), does, what, places[0])
                for (was, does, what), places in self._lines.items()
            ]
            show_table(("was", "count", "to do", "what", "example"), rows, right=("count",))


def _agreed(question: str) -> bool:
    """Ask, where there is somebody to answer."""
    if sys.stdin.isatty():
        return click.confirm(question, err=True)
    say("nothing was sent; add --yes")
    return False
