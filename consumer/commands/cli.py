"""The command line: a group that imports a command when it is called."""

import importlib
import signal
import sys
from typing import Final

import click

# Module and summary by name: `--help` lists the commands without importing them.
COMMANDS: Final = {
    "create-topics": ("create_topics", "Create the output topics that do not exist."),
    "dead-letters": ("dead_letters.command", "List, show, capture or redrive dead letters."),
    "demo": ("demo", "Show the service at work, without Kafka."),
    "explain": ("explain.command", "Explain what the service does with one message."),
    "formats": (
        "formats.command",
        "List the log formats, or name those of a capture.",
    ),
    "replay": ("replay", "Process captured messages as the service does."),
    "report": ("report.command", "Write an HTML page about draft acceptance."),
    "run": ("run", "Run the service until SIGTERM or SIGINT."),
    "schema": ("schema", "Print a published JSON Schema."),
    "tail": ("tail", "Follow records and dead letters as they are published."),
}


def load_command(name: str) -> click.Command:
    """Import and return a command."""
    module, _ = COMMANDS[name]
    try:
        command: click.Command = importlib.import_module(f"consumer.commands.{module}").command
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    return command


class _LazyGroup(click.Group):
    """A group whose members are names and summaries until one of them is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the imported command that the arguments name."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load_command(name), rest


@click.group(
    cls=_LazyGroup,
    commands={name: click.Command(name, help=summary) for name, (_, summary) in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Try the service without Kafka:
  acceptance-consumer demo
Run it on the topic of your fleet:
  acceptance-consumer run --bootstrap-servers kafka:9092 --topics serving-responses
Process captured messages:
  kcat -C -b kafka:9092 -t serving-responses -J -e | acceptance-consumer replay -
Report on the draft acceptance of the last day:
  acceptance-consumer report --bootstrap-servers kafka:9092 -o report.html""",
)
@click.version_option(package_name="acceptance-consumer", prog_name="acceptance-consumer")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Turn an LLM serving fleet's response events into speculative-decoding acceptance records.

    Each option of `run` is also an environment variable and a key of a TOML file. The command line
    overrides the environment, and the environment overrides the file.
    """
    if ctx.invoked_subcommand != "run":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
