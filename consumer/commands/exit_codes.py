"""How commands end: which error gives which exit code, and what the operator reads of it.

The README's table of exit codes lists them. Once `run` has its settings, `consumer.app` decides
with the same codes.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from consumer.commands.terminal import echo_note
from consumer.core.adapters.registry import AdapterError
from consumer.exit_codes import FAILED, REFUSED, SUCCESS
from consumer.kafka.errors import ClusterError, KafkaFailureError, NoBrokerError, cause_of
from consumer.settings.sources import SettingsError
from consumer.telemetry.http_server import AddressError


class CommandError(Exception):
    """The command cannot do what it was given; the message says why."""


class OutputError(CommandError):
    """A file or stream cannot be written."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"{name} cannot be written: {error.strerror}")


def print_error(error: Exception) -> None:
    """Print an error to standard error."""
    for line in str(error).splitlines():
        echo_note(f"acceptance-consumer: {line}")


@contextmanager
def exit_on_error(
    *, no_broker: int = FAILED, report: Callable[[Exception], None] = print_error
) -> Iterator[None]:
    """Report an error that ends the command, and exit with its code.

    Args:
        no_broker: exit code if no broker answers.
        report: what to do with the error before the exit.

    """
    try:
        yield
    except NoBrokerError as error:
        report(error)
        sys.exit(no_broker)
    except KafkaFailureError as error:
        report(error)
        sys.exit(FAILED)
    except KafkaException as error:
        report(KafkaFailureError(cause_of(error).str()))
        sys.exit(FAILED)
    except (SettingsError, ClusterError, AdapterError, AddressError, CommandError) as error:
        report(error)
        sys.exit(REFUSED)


@contextmanager
def exit_like_a_filter() -> Iterator[None]:
    """Exit as a filter does: with 0 when the reader of standard output closes it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # A name may hold a lone surrogate.
    with exit_on_error():
        try:
            yield
            sys.stdout.flush()
        except OSError as error:  # Errors of all other files have types of their own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # The interpreter flushes once more.
            if isinstance(error, BrokenPipeError):
                sys.exit(SUCCESS)
            raise OutputError("standard output", error) from error
