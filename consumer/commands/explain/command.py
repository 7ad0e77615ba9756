"""`explain`: what the service does with one message, step by step."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import click
import msgspec
from confluent_kafka import KafkaException

from consumer.commands.captures.files import STANDARD_INPUT, consecutive_run, read_capture
from consumer.commands.captures.messages import CaptureFormat
from consumer.commands.exit_codes import CommandError, exit_like_a_filter
from consumer.commands.explain import crash as crashes
from consumer.commands.explain.as_json import explanation_members
from consumer.commands.explain.explanation import MAX_PREVIEW, Explanation, explain
from consumer.commands.explain.text import paragraphs
from consumer.commands.parameter_types import PlaceType
from consumer.commands.places import MessagePlace, place_of, place_text
from consumer.commands.terminal import echo_paragraphs
from consumer.commands.topic_reader import MissingMessageError, TopicReader, quiet_clients
from consumer.core.adapters.registry import load_adapters
from consumer.core.message import CapturedMessage
from consumer.core.partition import Pipeline
from consumer.kafka.errors import KafkaFailureError
from consumer.settings.click_options import cluster_options, settings_from_click_options
from consumer.settings.core_options import pipeline_options
from consumer.settings.settings import Settings


@click.command(
    "explain",
    epilog="""\b
Examples:
  acceptance-consumer explain serving-responses 3 81724
  acceptance-consumer explain --capture night.jsonl --line 12
  acceptance-consumer explain --find-crash serving-responses 3 81700""",
)
@click.argument("place", metavar="[TOPIC PARTITION OFFSET]", nargs=-1)
@click.option("--capture", metavar="FILE", help="Read a capture instead of Kafka, as replay does.")
@click.option(
    "--line",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the message in the capture, from 1; the first if omitted.",
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
    "--before",
    type=click.IntRange(min=0),
    default=50_000,
    show_default=True,
    metavar="N",
    help="Number of messages to read before the message, to find where its request began.",
)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Maximum number of messages to read after the message, until its request ends.",
)
@click.option(
    "--find-crash",
    is_flag=True,
    help="Name the first message, from this one on, that ends a process which reads it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--payload", is_flag=True, help="Print the beginning of the payload, too.")
@cluster_options("bootstrap_servers", "fleet")
def command(
    *,
    place: tuple[str, ...],
    capture: str | None,
    line: int | None,
    form: CaptureFormat,
    before: int,
    after: int,
    find_crash: bool,
    as_json: bool,
    payload: bool,
    **options: Any,
) -> None:
    """Explain what the service does with one message.

    The command reads the message and the messages around it, runs the core of the service on them,
    and prints each step: envelope, event, body, reassembly, adapters, record or reason. Give it
    the settings of the service, in the environment or with --settings: for example, envelope and
    idle_timeout have no option here. The command commits and writes nothing. It prints no payload
    without --payload, except the member names of a JSON object that the service does not recognise.
    """
    if line is not None and capture is None:
        raise click.UsageError("--line needs a capture; add --capture FILE")
    if line is not None and place:
        raise click.UsageError("--line and TOPIC PARTITION OFFSET both name the message; omit one")
    if find_crash and not place:
        raise click.UsageError("--find-crash needs TOPIC PARTITION OFFSET: where to begin")
    target = PlaceType().convert(":".join(place), None, None) if place else None
    preview = MAX_PREVIEW if payload else 0
    with exit_like_a_filter(), quiet_clients():
        if find_crash and target is not None:
            settings = settings_from_click_options(options, require=("bootstrap_servers",))
            _report_crash(settings, target, after)
            return
        if capture is not None:
            settings = settings_from_click_options(options, require=())
            found = _explain_captured(settings, capture, form, target or line or 1, preview)
        elif target is not None:
            settings = settings_from_click_options(options, require=("bootstrap_servers",))
            found = _explain_from_topic(settings, target, before, after, preview)
        else:
            raise click.UsageError("Missing argument 'TOPIC PARTITION OFFSET', or --capture FILE.")
        if as_json:
            click.echo(msgspec.json.encode(explanation_members(found)))
        else:
            echo_paragraphs(paragraphs(found))


def _explain_from_topic(
    settings: Settings, place: MessagePlace, before: int, after: int, preview: int
) -> Explanation:
    topic, partition, offset = place
    with TopicReader(settings) as reader:
        target = reader.message(*place)
        low, high = reader.bounds(topic, partition)
        start, stop = max(low, offset - before), min(high, offset + after + 1)
        pipeline = Pipeline(pipeline_options(settings, reader.cluster_id), load_adapters())
        messages = reader.read(topic, partition, start, stop)
        with _naming_message(place):
            return explain(pipeline, target, messages, from_beginning=start == low, preview=preview)


def _report_crash(settings: Settings, place: MessagePlace, after: int) -> None:
    """Print that no message ends a process, or fail with the first that does."""
    topic, partition, offset = place
    with TopicReader(settings) as reader:
        low, high = reader.bounds(topic, partition)
        start, stop = max(low, offset), min(high, offset + after + 1)
        options = pipeline_options(settings, reader.cluster_id)
        crash = crashes.find_crash(options, reader.read(topic, partition, start, stop))
    if crash is None:
        click.echo(f"no message from {place_text((topic, partition, start))} up to {stop} does")
        return
    code = crash.exit_code
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    named = place_text(place_of(crash.message))
    raise click.ClickException(
        f"the message {named} ends the process that reads it ({how}): to pass over this message, "
        f"add '{named}' to the setting skip"
    )


def _explain_captured(
    settings: Settings, name: str, form: CaptureFormat, which: MessagePlace | int, preview: int
) -> Explanation:
    """Explain the message of a capture with a place, or a number from 1."""
    pipeline = Pipeline(pipeline_options(settings, "local"), load_adapters())
    read = _capture_reader(name, form)
    found = consecutive_run(read, lambda number, message: which in (number, place_of(message)))
    if found is None:
        raise _missing(name, which, sum(1 for _ in read()))
    target, run = found
    with _naming_message(place_of(target)):
        return explain(pipeline, target, run, from_beginning=False, preview=preview)


def _capture_reader(name: str, form: CaptureFormat) -> Callable[[], Iterable[CapturedMessage]]:
    """Return a function that reads the messages of a capture, more than once."""
    if name != STANDARD_INPUT:
        return lambda: read_capture(name, form)
    messages = list(read_capture(name, form))
    return lambda: messages


def _missing(name: str, which: MessagePlace | int, messages: int) -> MissingMessageError:
    if not isinstance(which, int):
        return MissingMessageError(f"{name} does not contain message {place_text(which)}")
    if not messages:
        return MissingMessageError(f"{name} has no messages; give a capture that has some")
    return MissingMessageError(f"{name} has {messages} messages; give a smaller --line")


@contextmanager
def _naming_message(place: MessagePlace) -> Iterator[None]:
    """Report a message that crashes the core, as it crashes the service."""
    try:
        yield
    except (CommandError, KafkaFailureError, KafkaException):
        raise
    except Exception as bug:
        raise click.ClickException(
            f"this message, or one before it, crashes the service ({type(bug).__name__}): find the "
            f"message in the service's log; to skip this one, add {place_text(place)} to the "
            "setting skip"
        ) from bug
