"""Commands print text without control characters, whatever producers have written."""

import pytest

from consumer.commands.terminal import echo_table, minute_text, moment_text, printable


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
    assert printable(f"demo{command}é通") == f"demo?{command[1:]}é通"


@pytest.mark.parametrize("columns", ["40", "200"])
def test_rows_are_whole_whatever_the_width(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    place = "serving-responses:3:81724"

    echo_table(("count", "outcome", "example"), [("7", "o" * 40, place)], right=("count",))

    titles, row = capsys.readouterr().out.splitlines()
    assert row.endswith(place)
    assert titles.index("example") == row.index(place)
    assert row.index("7") == titles.index("count") + len("coun")
