"""How the commands on call refuse what they cannot do."""

import os
import socket

import click
import pytest
from click.testing import CliRunner

from consumer.commands import topic_reader
from consumer.commands.oncall import dead_letters_command, explain_command, tail_command


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address at which nobody answers, and have no command wait for long."""
    monkeypatch.setattr(topic_reader, "_ANSWER_S", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("ACCEPTANCE_", "KAFKA_")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (explain_command, ["topic", "0", "0"]),
        (tail_command, []),
        (dead_letters_command, []),
        (dead_letters_command, ["--redrive"]),
    ],
)
def test_where_no_broker_answers_one_line_says_so(
    nobody: str, command: click.Command, args: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(command, [*args, "--bootstrap-servers", nobody])

    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert f"no broker of '{nobody}' answers: " in line
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--yes"], "--yes is for --redrive"),
        (["--payload"], "--payload is for --show"),
        (["--since", "1h", "--until", "2h"], "The range ends before it begins."),
    ],
)
def test_what_makes_no_sense_is_refused(args: list[str], why: str) -> None:
    done = CliRunner().invoke(dead_letters_command, args)

    assert done.exit_code == 2
    assert why in done.stderr
