"""The commands for the person on call: explain, tail and dead-letters."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import msgspec
from confluent_kafka import KafkaException
from rich.console import Console

from consumer.app import pipeline_options
from consumer.commands.capture_files import CaptureFormat, read_capture
from consumer.commands.dead_letters.desk import Desk
from consumer.commands.dead_letters.letters import Filter, MessagePlace
from consumer.commands.explain.explanation import MAX_PREVIEW, Explanation, explain
from consumer.commands.explain.steps import steps
from consumer.commands.parameter_types import CONTEXT, MomentType, PlaceType, TimeType, ends
from consumer.commands.tail import (
    LETTERS,
    PUBLISHED,
    JsonView,
    LiveView,
    PlainView,
    Row,
    View,
    Wanted,
    row_of,
)
from consumer.commands.terminal import place_text, show_steps
from consumer.commands.topic_reader import MissingMessageError, TopicReader, one_run
from consumer.core.adapters.registry import load_adapters
from consumer.core.partition import Pipeline
from consumer.kafka.errors import KafkaFailureError
from consumer.settings.click_options import cluster_options, settings_from_click_options
from consumer.settings.settings import Moment, Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def _filter_options(command: Command) -> Command:
    """Give a command the options that say which letters are wanted."""
    for option in reversed(
        (
            click.option(
                "--kind", type=click.Choice(["message", "request"]), help="Only of this kind."
            ),
            click.option(
                "--outcome",
                "outcomes",
                type=click.Choice(LETTERS),
                multiple=True,
                help="Only of this outcome. May be repeated.",
            ),
            click.option(
                "--reason", "reasons", multiple=True, help="Only of this reason. May be repeated."
            ),
            click.option(
                "--since",
                type=TimeType(),
                help="Only letters written at TIME (or 2h ago) or later.",
            ),
            click.option("--until", type=TimeType(), help="Only letters written before TIME."),
            click.option(
                "--only",
                type=PlaceType(),
                help="Only the letter at, or about the message at, this place.",
            ),
        )
    ):
        command = option(command)
    return command


@click.command(
    "explain",
    context_settings=CONTEXT,
    epilog="""\b
Examples:
  acceptance-consumer explain serving-responses 3 81724
  acceptance-consumer explain --capture night.jsonl --line 12""",
)
@click.argument("place", metavar="[TOPIC PARTITION OFFSET]", nargs=-1)
@click.option("--capture", metavar="FILE", help="Look in a capture instead, as replay reads them.")
@click.option(
    "--line",
    type=click.IntRange(min=1),
    metavar="N",
    help="The message of the capture, counted from 1.  [default: 1]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(CaptureFormat)),
    default="auto",
    show_default=True,
    help="How the capture is written, as for replay.",
)
@click.option(
    "--before",
    type=click.IntRange(min=0),
    default=50_000,
    show_default=True,
    metavar="N",
    help="Messages to read before it, where its request may have begun.",
)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Most messages to read after it, until its request has ended.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--payload", is_flag=True, help="Show the beginning of the payload as well.")
@cluster_options("bootstrap_servers", "fleet")
def explain_command(
    *,
    place: tuple[str, ...],
    capture: str | None,
    line: int | None,
    form: CaptureFormat,
    before: int,
    after: int,
    as_json: bool,
    payload: bool,
    **options: Any,
) -> None:
    """Tell step by step what the service makes of one message.

    Reads the message with the others of its stream, and runs the service's own core on them:
    envelope, event, body, reassembly, adapters, record or reason. Use the settings of the service.
    Nothing is committed or written. No payload is shown unless --payload is given, but for the
    names of the members of a JSON object that the service does not know.
    """
    if line is not None and capture is None:
        raise click.UsageError("--line is for a capture: name one with --capture")
    where = _place_of(place)
    if capture is None and where is None:
        raise click.UsageError("Missing argument 'TOPIC PARTITION OFFSET', or --capture FILE.")
    if line is not None and where is not None:
        raise click.UsageError("--line and TOPIC PARTITION OFFSET both name the message")
    preview = MAX_PREVIEW if payload else 0
    with ends():
        required = ("bootstrap_servers",) if capture is None else ()
        settings = settings_from_click_options(options, require=required)
        if capture is not None:
            pipeline = Pipeline(pipeline_options(settings, "local"), load_adapters())
            found = _explained_capture(pipeline, capture, form, where, line or 1, preview)
        else:
            assert where is not None  # noqa: S101 - it was asked for above.
            found = _explained(settings, where, before, after, preview)
        if as_json:
            click.echo(msgspec.json.encode(found))
        else:
            show_steps(steps(found))


@click.command(
    "tail",
    context_settings=CONTEXT,
    epilog="""\b
Examples:
  acceptance-consumer tail --engine vllm
  acceptance-consumer tail --from 15m --outcome malformed_stats --outcome bad_payload --json""",
)
@click.option(
    "--from",
    "--since",
    "start",
    type=MomentType(),
    default="latest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help="Where to begin, by the time of the responses and not of publishing; TIME as for the "
    "setting start, or so long ago (15m).",
)
@click.option("--model", "models", multiple=True, help="Only of this model. May be repeated.")
@click.option(
    "--engine", "engines", multiple=True, help="Only records of this engine. May be repeated."
)
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice([PUBLISHED, *LETTERS]),
    multiple=True,
    help="Only of this outcome: records are published, all others are dead letters. May be "
    "repeated.  [default: published]",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="End after so many were shown."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@cluster_options("bootstrap_servers", "output_topic", "dead_letter_topic")
def tail_command(
    *,
    start: Moment,
    models: tuple[str, ...],
    engines: tuple[str, ...],
    outcomes: tuple[str, ...],
    count: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Follow the records as they are published, and dead letters if asked for.

    A table on a terminal, aligned lines elsewhere. Only committed records are shown. Requests
    without numbers (no_stats, incomplete and so on) are on no topic: the service counts them.
    Payloads of dead letters are left out. Ends on Ctrl-C, with exit code 0.
    """
    wanted = Wanted(frozenset(outcomes or (PUBLISHED,)), frozenset(models), frozenset(engines))
    if engines and PUBLISHED not in wanted.outcomes:
        raise click.UsageError("--engine is for records: dead letters name no engine")
    with ends():
        settings = settings_from_click_options(options, require=("bootstrap_servers",))
        topics = [settings.output_topic] if PUBLISHED in wanted.outcomes else []
        if wanted.outcomes != {PUBLISHED}:
            topics.append(settings.dead_letter_topic)
        with TopicReader(settings, following=True) as reader:
            rows = (
                None if message is None else row_of(message, settings, wanted)
                for message in reader.follow(dict.fromkeys(topics, start))
            )
            with closing(_view(as_json=as_json)) as view:
                _follow(rows, view, count)


@click.command(
    "dead-letters",
    context_settings=CONTEXT,
    epilog="""\b
Examples:
  acceptance-consumer dead-letters --since 12h
  acceptance-consumer dead-letters --show serving-responses:3:81724
  acceptance-consumer dead-letters --reason invalid_json --capture night.jsonl
  acceptance-consumer dead-letters --outcome unrecognised_stats --redrive""",
)
@_filter_options
@click.option(
    "--show", type=PlaceType(), help="Print the letter at, or about the message at, a place."
)
@click.option(
    "--capture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the messages that the letters are about, for replay and explain.",
)
@click.option(
    "--redrive",
    is_flag=True,
    help="Feed messages to the input again, and publish records of requests.",
)
@click.option("--yes", is_flag=True, help="Redrive without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--payload", is_flag=True, help="With --show: the beginning of the payload as well.")
@cluster_options("bootstrap_servers", "output_topic", "dead_letter_topic")
def dead_letters_command(
    *,
    show: MessagePlace | None,
    capture: Path | None,
    redrive: bool,
    yes: bool,
    as_json: bool,
    payload: bool,
    **options: Any,
) -> None:
    """List dead letters by reason; show one, capture what they are about, or redrive them.

    A place is TOPIC:PARTITION:OFFSET of the letter, or of its message, or of the first message of
    its request; for --show, of any message of its request.

    --redrive is for after a fix, with the settings and adapters of the service as it runs now. It
    says first what would be done, and asks. The message of a letter of kind message is produced to
    its partition again, with the header acceptance-redrive: from the source where it still exists,
    else from the letter. Of a letter of kind request the source is read again, and its record
    published with the same record_id. What would fail again is left alone. A notice on the
    dead-letter topic, in the same transaction, keeps a letter from being redriven twice.
    Exits with 1 if something could not be done.
    """
    actions = [name for name, given in (("--show", show), ("--capture", capture)) if given]
    actions += ["--redrive"] if redrive else []
    if len(actions) > 1:
        raise click.UsageError(f"{' and '.join(actions)} cannot be combined")
    if yes and not redrive:
        raise click.UsageError("--yes is for --redrive")
    if payload and show is None:
        raise click.UsageError("--payload is for --show")
    since, until = options["since"], options["until"]
    if since is not None and until is not None and since >= until:
        raise click.UsageError("The range ends before it begins.")
    wanted = Filter(
        kind=options["kind"],
        outcomes=options["outcomes"],
        reasons=options["reasons"],
        since=since,
        until=until,
        place=options["only"],
    )
    with ends():
        settings = settings_from_click_options(options, require=("bootstrap_servers",))
        with TopicReader(settings) as reader:
            desk = Desk(settings, reader, wanted, as_json=as_json)
            if show is not None:
                code = desk.show(show, MAX_PREVIEW if payload else 0)
            elif capture is not None:
                code = desk.capture(capture)
            elif redrive:
                code = desk.redrive(yes=yes)
            else:
                code = desk.overview()
    sys.exit(code)


# Explain


def _place_of(words: Sequence[str]) -> MessagePlace | None:
    """Read TOPIC PARTITION OFFSET, or the three with colons between them."""
    if not words:
        return None
    return PlaceType().convert(":".join(words), None, None)


def _explained(
    settings: Settings, place: MessagePlace, before: int, after: int, preview: int
) -> Explanation:
    topic, partition, offset = place
    with TopicReader(settings) as reader:
        target = reader.message(*place)
        low, high = reader.bounds(topic, partition)
        start, stop = max(low, offset - before), min(high, offset + after + 1)
        options = pipeline_options(settings, reader.cluster_id)
        pipeline = Pipeline(options, load_adapters())
        messages = reader.read(topic, partition, start, stop)
        with _said_if_broken(place):
            return explain(pipeline, target, messages, from_beginning=start == low, preview=preview)


def _explained_capture(
    pipeline: Pipeline,
    name: str,
    form: CaptureFormat,
    place: MessagePlace | None,
    line: int,
    preview: int,
) -> Explanation:
    messages = [captured.message for captured in read_capture(name, form, 0)]
    if place is None:
        if line > len(messages):
            raise MissingMessageError(f"{name} has {len(messages)} messages")
        target = messages[line - 1]
    else:
        there = (one for one in messages if (one.topic(), one.partition(), one.offset()) == place)
        found = next(there, None)
        if found is None:
            raise MissingMessageError(f"{name} has no message {':'.join(map(str, place))}")
        target = found
    run = one_run(messages, target)
    with _said_if_broken((target.at_topic, target.at_partition, target.at_offset)):
        return explain(pipeline, target, run, from_beginning=False, preview=preview)


@contextmanager
def _said_if_broken(place: MessagePlace) -> Iterator[None]:
    """Say that a message, or one before it, brings the core down, as it does the service."""
    try:
        yield
    except (KafkaFailureError, KafkaException):
        raise
    except Exception as bug:
        raise click.ClickException(
            f"it, or a message before it, brings the service down ({type(bug).__name__}): the "
            f"service's log names it; the setting skip passes over {place_text(place)}"
        ) from bug


# Tail


def _view(*, as_json: bool) -> View:
    if as_json:
        return JsonView(sys.stdout)
    console = Console()
    if sys.stdout.isatty() and not console.is_dumb_terminal:
        return LiveView(console)
    return PlainView(sys.stdout)


def _follow(rows: Iterable[Row | None], view: View, count: int | None) -> None:
    shown = 0
    try:
        for row in rows:
            if row is None:
                view.refresh()
                continue
            view.show(row)
            shown += 1
            if shown == count:
                return
    except KeyboardInterrupt:
        return
