"""`dead-letters`: list, show, capture or redrive dead letters."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from consumer.commands.dead_letters.actions import DeadLetters
from consumer.commands.dead_letters.letters import LetterFilter
from consumer.commands.exit_codes import exit_like_a_filter
from consumer.commands.explain.explanation import MAX_PREVIEW
from consumer.commands.parameter_types import PlaceType, TimeType, check_range
from consumer.commands.places import MessagePlace
from consumer.commands.tail import LETTERS
from consumer.commands.topic_reader import TopicReader, quiet_clients
from consumer.settings.click_options import Command, cluster_options, settings_from_click_options

_FILTER_OPTIONS: Final = (
    click.option("--kind", type=click.Choice(["message", "request"]), help="Only this kind."),
    click.option(
        "--outcome",
        "outcomes",
        type=click.Choice(LETTERS),
        multiple=True,
        help="Only this outcome; skipped finds the messages of the setting skip. May be repeated.",
    ),
    click.option("--reason", "reasons", multiple=True, help="Only this reason. May be repeated."),
    click.option(
        "--since",
        type=TimeType(),
        help="Only letters written at TIME or later, or within a duration before now such as 2h.",
    ),
    click.option("--until", type=TimeType(), help="Only letters written before TIME."),
    click.option(
        "--only",
        type=PlaceType(),
        help="Only the letter at this place, or about the message at this place.",
    ),
)


def _filter_options(command: Command) -> Command:
    """Add the options that select letters to a command."""
    for option in reversed(_FILTER_OPTIONS):
        command = option(command)
    return command


@click.command(
    "dead-letters",
    epilog="""\b
Examples:
  acceptance-consumer dead-letters --since 12h
  acceptance-consumer dead-letters --show serving-responses:3:81724
  acceptance-consumer dead-letters --reason invalid_json --capture night.jsonl
  acceptance-consumer dead-letters --outcome unrecognised_stats --redrive""",
)
@_filter_options
@click.option(
    "--show", type=PlaceType(), help="Print the letter at a place, or about the message at a place."
)
@click.option(
    "--capture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the messages that the letters are about to FILE, for replay and explain.",
)
@click.option(
    "--redrive",
    is_flag=True,
    help="Produce messages to the input topic again, and publish the records of requests.",
)
@click.option("--yes", is_flag=True, help="Redrive without a prompt.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--payload", is_flag=True, help="With --show: print the beginning of the payload.")
@cluster_options("bootstrap_servers", "output_topic", "dead_letter_topic")
def command(
    *,
    show: MessagePlace | None,
    capture: Path | None,
    redrive: bool,
    yes: bool,
    as_json: bool,
    payload: bool,
    **options: Any,
) -> None:
    """List, show, capture or redrive dead letters.

    Without an action, the command counts the letters by reason. A place is TOPIC:PARTITION:OFFSET
    of the letter, of its message, or of the first message of its request; for --show, of any
    message of its request.

    Use --redrive after a fix, with the settings and adapters of the running service. It prints a
    plan and asks before it sends anything. For a letter of kind message, it produces the message to
    its partition again, with the header acceptance-redrive; it reads the message from its source,
    or from the letter if the source was deleted. For a letter of kind request, it reads the source
    again and publishes the record with the same record_id. It does not redrive a letter that
    would fail again. A notice on the dead-letter topic, in the same transaction, prevents a second
    redrive. The command exits with 1 if it could not process a letter.
    """
    actions = [name for name, given in (("--show", show), ("--capture", capture)) if given]
    actions += ["--redrive"] if redrive else []
    if len(actions) > 1:
        raise click.UsageError(f"{' and '.join(actions)} cannot be combined; use one at a time")
    if yes and not redrive:
        raise click.UsageError("--yes needs --redrive")
    if payload and show is None:
        raise click.UsageError("--payload needs --show")
    check_range(options["since"], options["until"])
    letter_filter = LetterFilter(
        kind=options["kind"],
        outcomes=options["outcomes"],
        reasons=options["reasons"],
        since=options["since"],
        until=options["until"],
        place=options["only"],
    )
    with exit_like_a_filter(), quiet_clients():
        settings = settings_from_click_options(options, require=("bootstrap_servers",))
        with TopicReader(settings) as reader:
            letters = DeadLetters(settings, reader, letter_filter, as_json=as_json)
            if show is not None:
                code = letters.show(show, MAX_PREVIEW if payload else 0)
            elif capture is not None:
                code = letters.capture(capture)
            elif redrive:
                code = letters.redrive(yes=yes)
            else:
                code = letters.list_groups()
    sys.exit(code)
