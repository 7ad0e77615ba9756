"""Generate the chart's schema of the settings, and the table of the chart's values.

The schema of `settings` in `values.schema.json` comes from the service's settings, and the table
of values from the comments of `values.yaml`: `# -- ` begins the text on a key, as for helm-docs.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from consumer.settings.fields import Field, fields
from consumer.settings.kafka_properties import KAFKA_MAPS

NOT_IN_SETTINGS: Final = frozenset(
    {
        "bootstrap_servers",
        "topics",
        "output_topic",
        "dead_letter_topic",
        "group",
        "transactional_id",
        "http_address",
        *KAFKA_MAPS,
    }
)
"""Settings with a value of their own in the chart, and settings that differ between pods."""

_DURATION: Final = r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h)?$"
_SIZE: Final = "^[0-9]+ ?([kKmMgG][iI]?[bB]|[bB])?$"
_MOMENT: Final = r"^(earliest|latest|[0-9]{12,}|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].+)$"


def with_settings(values_schema: str) -> str:
    """Return the text of `values.schema.json` with the schema of the service's settings in it."""
    schema = json.loads(values_schema)
    schema["properties"]["settings"]["properties"] = {
        name: _schema(field) for name, field in fields().items() if name not in NOT_IN_SETTINGS
    }
    return json.dumps(schema, indent=2) + "\n"


def _schema(field: Field) -> dict[str, Any]:
    schema = msgspec.json.schema(field.type)
    match field.kind:
        case "duration":
            schema |= {"type": ["number", "string"], "pattern": _DURATION}
        case "size":
            schema |= {"type": ["integer", "string"], "pattern": _SIZE}
        case "moment":
            schema = {"type": ["integer", "string"], "pattern": _MOMENT}
    return schema | {"description": field.description}


_LINE: Final = re.compile(
    r"(?P<indent> *)(?:# -- (?P<text>.*)|# (?P<more>.*)|(?P<key>[\w.]+):(?P<value>.*))"
)


def values(values_yaml: str) -> Iterator[tuple[str, str, str]]:
    """Return name, default and text of each value of `values.yaml` that has a text."""
    path: list[tuple[int, str]] = []
    text = ""
    for line in values_yaml.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            text = ""
        elif match["text"]:
            text = match["text"]
        elif match["more"]:
            text = f"{text} {match['more']}" if text else ""
        else:
            depth = len(match["indent"])
            path = [*((d, key) for d, key in path if d < depth), (depth, match["key"])]
            if text:
                yield ".".join(key for _, key in path), match["value"].strip(), text
            text = ""
