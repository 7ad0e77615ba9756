"""What the commands print is for people, whatever strangers have written."""

import pytest

from consumer.oncall.shown import clean, minute_text, moment_text


@pytest.mark.parametrize(
    ("ms", "moment", "minute"),
    [
        (1_767_225_600_000, "2026-01-01T00:00:00.000Z", "01-01 00:00"),
        (-1, "-", "-"),
        (1 << 62, "-", "-"),
    ],
)
def test_a_time_is_written_if_there_is_one(ms: int, moment: str, minute: str) -> None:
    assert (moment_text(ms), minute_text(ms)) == (moment, minute)


@pytest.mark.parametrize("command", ["\x1b[2J", "\x9b2J", "\x07", "\x7f", "\u202e", "\ud800", "\n"])
def test_what_a_terminal_acts_on_is_replaced(command: str) -> None:
    assert clean(f"demo{command}é通") == f"demo?{command[1:]}é通"
