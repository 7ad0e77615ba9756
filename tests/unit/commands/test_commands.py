"""Errors of the commands that read topics."""

import socket

import pytest
from click.testing import CliRunner

from consumer.commands import cli, topic_reader


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address at which no broker answers, and shorten the wait for it."""
    monkeypatch.setattr(topic_reader, "_ANSWER_S", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("explain", ["topic", "0", "0"]),
        ("tail", []),
        ("dead-letters", []),
        ("dead-letters", ["--redrive"]),
    ],
)
def test_where_no_broker_answers_one_line_says_so(
    no_broker: str, command: str, args: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(cli.main, [command, *args, "--bootstrap-servers", no_broker])

    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert f"no broker of '{no_broker}' answers: " in line
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--yes"], "--yes needs --redrive"),
        (["--payload"], "--payload needs --show"),
        (["--since", "1h", "--until", "2h"], "--until is not after --since; give a later --until"),
    ],
)
def test_options_that_contradict_each_other_are_refused(args: list[str], why: str) -> None:
    done = CliRunner().invoke(cli.main, ["dead-letters", *args])

    assert done.exit_code == 2
    assert why in done.stderr
