"""The command at the end of a replay's summary, and what is said where nothing is recognised."""

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from consumer.commands import cli
from tests.unit.core.made import chunk, encode, last_chunk, native, whole

Json = dict[str, Any]

GOOD = native("good", body=whole())
NO_STATS = native("none", body=whole("c9") | {"metrics": None})


def ran(*args: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli.main, ["replay", *args], input=stdin)


def kcat(value: bytes, partition: int, offset: int) -> bytes:
    message = {"topic": "t", "partition": partition, "offset": offset, "payload": value.decode()}
    return json.dumps(message).encode() + b"\n"


def explained(result: Result) -> str:
    """Run the command that the summary ends with."""
    words = shlex.split(result.stderr.splitlines()[-1])
    assert words[:2] == ["acceptance-consumer", "explain"]
    found = CliRunner().invoke(cli.main, words[1:])
    assert found.exit_code == 0
    return found.stdout


class TestCommand:
    def test_a_message_without_a_place_is_named_by_its_number_in_its_file(self) -> None:
        Path("one").write_bytes(GOOD + b"\n")
        Path("two files.jsonl").write_bytes(native("2", body=whole("c2")) + b"\nbad\nworse\n")

        result = ran("one", "two files.jsonl")

        assert result.exit_code == 0
        assert result.stderr.splitlines()[-2:] == [
            "to explain the first bad_payload(unrecognised_format):",
            "acceptance-consumer explain --line 2 --capture 'two files.jsonl'",
        ]
        assert "bad_payload(unrecognised_format)" in explained(result)

    def test_a_message_with_a_place_is_named_by_it(self) -> None:
        Path("capture").write_bytes(kcat(GOOD, 0, 7) + kcat(b"bad", 1, 3) + kcat(b"bad", 0, 8))

        result = ran("capture")

        assert result.stderr.splitlines()[-1] == (
            "acceptance-consumer explain t 1 3 --capture capture"
        )
        assert "bad_payload" in explained(result)

    def test_a_request_that_ends_late_is_named_by_its_first_message(self) -> None:
        open_request = native("open", body=chunk())
        Path("one").write_bytes(GOOD + b"\n" + open_request + b"\n")
        Path("two").write_bytes(native("2", body=whole("c2")) + b"\n")

        result = ran("one", "two")

        assert result.stderr.splitlines()[-2:] == [
            "to explain the first incomplete(idle_timeout):",
            "acceptance-consumer explain --line 2 --capture one",
        ]
        assert "incomplete(idle_timeout)" in explained(result)

    def test_where_offsets_go_back_a_place_is_of_the_capture_that_follows(self) -> None:
        Path("one").write_bytes(kcat(GOOD, 0, 7) + kcat(GOOD, 0, 9))
        Path("two").write_bytes(kcat(native("2", body=chunk()), 0, 7))

        assert ran("one", "two").stderr.splitlines()[-1] == (
            "acceptance-consumer explain t 0 7 --capture two"
        )

    def test_a_request_without_numbers_counts_only_where_nothing_else_failed(self) -> None:
        Path("capture").write_bytes(NO_STATS + b"\n" + GOOD + b"\n")
        assert "to explain the first no_stats(absent):" in ran("capture").stderr

        with Path("capture").open("ab") as file:
            file.write(b"bad\n")
        assert "to explain the first bad_payload(unrecognised_format):" in ran("capture").stderr

    def test_it_has_the_options_of_the_replay(self) -> None:
        Path("settings.toml").write_text('envelope = "native"\n')
        Path("capture").write_bytes(GOOD + b"\nbad\n")

        result = ran("capture", "--format", "values", "--settings", "settings.toml", "--fleet", "f")

        assert result.stderr.splitlines()[-1] == (
            "acceptance-consumer explain --line 2 --capture capture"
            " --format values --settings settings.toml --fleet f"
        )
        assert "bad_payload" in explained(result)

    def test_it_names_the_program_as_the_shell_finds_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        Path("capture").write_bytes(b"bad\n")
        monkeypatch.setattr("sys.argv", [".venv/bin/acceptance-consumer"])
        monkeypatch.setenv("PATH", str(tmp_path))
        outside = ".venv/bin/acceptance-consumer explain --line 1 --capture capture"
        assert ran("capture").stderr.splitlines()[-1] == outside

        (tmp_path / "acceptance-consumer").touch(mode=0o755)
        assert explained(ran("capture"))

    def test_standard_input_cannot_be_read_again(self) -> None:
        result = ran("-", stdin=GOOD + b"\nbad\n")

        assert result.stderr.splitlines()[-1] == (
            "to explain the first bad_payload(unrecognised_format): "
            "save the input to a file, and replay the file"
        )

    def test_without_a_failure_there_is_none(self) -> None:
        result = ran("-", stdin=GOOD)

        assert result.stderr.split() == ["1", "message", "accepted", "1", "request", "published"]


class TestUnrecognised:
    @pytest.mark.parametrize(
        ("data", "seen"),
        [
            (b"a,b\n1,2\n", "text that is neither JSON nor server-sent events"),
            (b'{"question": 1, "answer": 2}', "a JSON object with the members question, answer"),
            (b'{"question": 1, "answer', "JSON that is cut off or not valid"),
            (b"5", "a JSON value that is not an object"),
            (b"PK\x03\x04 \x00", "a zip archive; unpack it"),
            (b"PAR1\x15", "a Parquet file; export JSON lines"),
            (b"\x00\x01\x02\x03\x04", "binary data that begins with 00 01 02 03"),
        ],
    )
    @pytest.mark.parametrize("compressed", [False, True])
    def test_it_says_what_was_seen_and_what_is_known(
        self, data: bytes, seen: str, *, compressed: bool
    ) -> None:
        Path("capture").write_bytes(gzip.compress(data) if compressed else data)

        result = ran("capture")

        assert result.exit_code == 2
        assert f"no message of the input was recognised; the first one is {seen}\n" in result.stderr
        assert "messages of Kafka: kcat -J, rpk topic consume" in result.stderr
        assert "bad_payload" in explained(result)

    def test_one_message_that_is_recognised_is_enough(self) -> None:
        assert ran("-", stdin=b"bad\n" + native(body=last_chunk()) + b"\nbad\n").exit_code == 0

    def test_an_entry_that_is_recognised_is_enough(self) -> None:
        assert ran("-", stdin=encode(["id", whole()])).exit_code == 0

    def test_a_long_list_of_members_is_cut(self) -> None:
        object_ = json.dumps({f"{n}" * 100: n for n in range(9)}).encode()

        (line,) = (
            line for line in ran("-", stdin=object_).stderr.splitlines() if "members" in line
        )

        assert line.endswith(f"{'7' * 40}, ...")
