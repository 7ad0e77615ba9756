"""JSON that makes no terminal or viewer obey a producer's name."""

import json

import pytest

from consumer.telemetry.json_lines import json_line

CONTROLS = "\x00\x1b[31m\x7f\x9b2J\u202egnp\u2066\u2028\u061c"


def test_controls_are_escaped_and_come_back() -> None:
    line = json_line({"a": CONTROLS, CONTROLS: 1})
    assert line.isprintable()
    assert json.loads(line) == {"a": CONTROLS, CONTROLS: 1}


def test_names_in_any_script_are_kept_as_they_are() -> None:
    assert json_line("\u901a\u4e49/\u00e9") == '"\u901a\u4e49/\u00e9"'


@pytest.mark.parametrize("value", ["\ud800", 2**70])
def test_what_the_fast_encoder_refuses_is_written_too(value: object) -> None:
    assert json.loads(json_line({"a": value})) == {"a": value}
