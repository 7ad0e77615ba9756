"""Command-line options: one for each field of the settings."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from consumer.settings.fields import Field, fields
from consumer.settings.kafka_properties import KAFKA_MAPS
from consumer.settings.settings import Settings
from consumer.settings.sources import SETTINGS_FILE, load

Command = TypeVar("Command", bound=Callable[..., Any])


def click_options(command: Command) -> Command:
    """Give a click command an option for every setting, `-X` and `--settings`.

    The options arrive as keyword arguments by field name, None where not given, and
    `settings_file`: accept them as `**options` and pass them to `settings_from_click_options`.
    """
    return cluster_options(*fields())(command)


def cluster_options(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `-X`, `--settings` and the options of some settings.

    The other settings come from the environment and the file.
    """

    def decorate(command: Command) -> Command:
        for option in reversed(list(_options(names))):
            command = option(command)
        return command

    return decorate


def settings_from_click_options(
    options: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    *,
    require: Collection[str] = ("bootstrap_servers", "topics"),
) -> Settings:
    """Load the settings with a command's options as flags, and ignore its other options.

    Raises:
        SettingsError: at least one setting is wrong, or one of `require` is missing.

    """
    flags = {name: value for name, value in options.items() if name in fields()}
    file = options.get("settings_file")
    return load(
        flags,
        os.environ if environ is None else environ,
        file if isinstance(file, Path) else None,
        require=require,
    )


def _options(names: Collection[str]) -> Iterator[Callable[[Command], Command]]:
    yield click.option(
        "--settings",
        "settings_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"TOML file with settings.  [env: {SETTINGS_FILE}]",
    )
    for field in fields().values():
        # The loader checks values, so that it reports them together with those of other sources.
        if field.name in names and field.name not in KAFKA_MAPS:
            yield click.option(
                field.flag,
                field.name,
                metavar=_metavar(field),
                multiple=field.kind in ("list", "map"),
                help=_help(field),
            )
    yield click.option(
        "-X",
        "--kafka",
        "kafka",
        metavar="PROPERTY=VALUE",
        multiple=True,
        help="librdkafka property of all Kafka clients; of one client as consumer.PROPERTY or "
        f"producer.PROPERTY. May be repeated.  [env: {fields()['kafka'].environment}_<PROPERTY>, "
        "as ACCEPTANCE_KAFKA_SASL_MECHANISM]",
    )


def _metavar(field: Field) -> str:
    if field.metavar is not None:
        return field.metavar
    if field.kind == "choice":
        return "|".join(field.allowed.removeprefix("one of ").split(", "))
    if field.kind == "moment":
        return "earliest|latest|TIME"
    return {"list": "NAME", "map": "NAME=VALUE"}.get(field.kind, field.kind.upper())


def _help(field: Field) -> str:
    repeated = " May be repeated." if field.kind in ("list", "map") else ""
    default = f"; default: {field.default_text}" if field.default_text else ""
    return f"{field.description}{repeated}  [env: {field.environment}{default}]"
