"""Types of command-line parameters: durations, times and places of messages."""

import math
from typing import Any, Final

import click
import msgspec

from consumer.commands.places import MessagePlace
from consumer.settings.values import Moment, parse_duration, parse_moment
from consumer.telemetry.clock import SystemClock

_MIN_DURATION_S: Final = 1.0


class FiniteRange(click.FloatRange):
    """A finite number in a range: NaN, which compares with nothing, passes every range check."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class DurationType(click.ParamType[float]):
    """A duration of at least a second in the notation of the settings; converts to seconds."""

    name = "DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds, or fail."""
        try:
            seconds = parse_duration(str(value))
        except ValueError:
            seconds = 0.0
        if seconds < _MIN_DURATION_S:
            self.fail(
                f"{value!r} is not a duration; give at least 1s, such as 15, 15s or 2m", param, ctx
            )
        return seconds


class MomentType(click.ParamType[Moment]):
    """A moment in the notation of the setting `start`, or a duration before now."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        """Return the moment, or fail."""
        try:
            return parse_moment(str(value), SystemClock().wall())
        except (ValueError, msgspec.ValidationError):
            self.fail(
                f"{value!r} is not a time; give RFC 3339 with a time zone, milliseconds since "
                "1970, or a duration before now such as 90s, 15m, 2h or 7d",
                param,
                ctx,
            )


class TimeType(MomentType):
    """A moment other than earliest and latest; converts to milliseconds since 1970."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970, or fail."""
        found = super().convert(value, param, ctx)
        if not isinstance(found, int):
            self.fail(f"{value!r} is not a time here; give one such as 2h", param, ctx)
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


def check_range(since: int | None, until: int | None) -> None:
    """Refuse a time range that is empty.

    Raises:
        click.UsageError: `until` is not after `since`.

    """
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--until is not after --since; give a later --until")
