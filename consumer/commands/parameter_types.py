"""What the commands on call share: how moments and places are written, and how commands end."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click
import msgspec
from confluent_kafka import KafkaException

from consumer.commands.capture_files import CaptureError
from consumer.commands.dead_letters.letters import MessagePlace
from consumer.commands.replay import OutputError
from consumer.commands.terminal import say
from consumer.commands.topic_reader import MissingMessageError
from consumer.core.adapters.registry import AdapterError
from consumer.kafka.errors import ClusterError, KafkaFailureError, NoBrokerError, cause_of
from consumer.settings.settings import Moment, SettingsError, moment
from consumer.telemetry import logging_setup
from consumer.telemetry.clock import SystemClock

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
FAILED: Final = 1
_WRONG: Final = 2


class MomentType(click.ParamType[Moment]):
    """A moment as the setting `start` is written, or so long ago."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        """Return the moment, or fail."""
        try:
            return moment(str(value), SystemClock().wall())
        except (ValueError, msgspec.ValidationError):
            self.fail(
                f"{value!r} is no RFC 3339 time with its zone, no milliseconds since 1970, and no "
                "duration such as 90s, 15m, 2h or 7d",
                param,
                ctx,
            )


class TimeType(MomentType):
    """A moment that is a time."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970, or fail."""
        found = super().convert(value, param, ctx)
        if not isinstance(found, int):
            self.fail(f"{value!r} is no time", param, ctx)
        return found


class PlaceType(click.ParamType[MessagePlace]):
    """TOPIC:PARTITION:OFFSET."""

    name = "TOPIC:PARTITION:OFFSET"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> MessagePlace:
        """Return the place, or fail."""
        topic, _, rest = str(value).partition(":")
        partition, _, offset = rest.partition(":")
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            self.fail(f"{value!r} is not TOPIC:PARTITION:OFFSET", param, ctx)
        return topic, int(partition), int(offset)


@contextmanager
def ends() -> Iterator[None]:
    """Turn what ends a command before its time into a message and an exit code."""
    logging_setup.configure(level="error")
    client = logging_setup.librdkafka_logger()
    client.disabled = True  # What it says of brokers, the command says once.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # Names come from strangers.
    try:
        yield
        sys.stdout.flush()
    except OSError as error:  # Of standard output; all others have names of their own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # For what is still to be flushed.
        if isinstance(error, BrokenPipeError):  # Whoever reads it has seen enough.
            sys.exit(0)
        _refuse(str(OutputError("standard output", error)), _WRONG)
    except (KafkaFailureError, NoBrokerError) as error:
        _refuse(str(error), FAILED)
    except (
        SettingsError,
        ClusterError,
        AdapterError,
        CaptureError,
        OutputError,
        MissingMessageError,
    ) as error:
        _refuse(str(error), _WRONG)
    except KafkaException as error:
        _refuse(str(cause_of(error).str()), FAILED)
    finally:
        client.disabled = False


def _refuse(said: str, code: int) -> NoReturn:
    for line in said.splitlines():
        say(f"acceptance-consumer: {line}")
    sys.exit(code)
