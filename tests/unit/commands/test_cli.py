"""The command line: in this process where that is enough, else as a child process."""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from jsonschema import Draft202012Validator

from consumer.commands import cli, demo
from consumer.core.envelopes.formats import format_names
from consumer.core.partition import Partition
from consumer.demo.embedded_broker import EmbeddedBroker
from consumer.settings.fields import fields
from schemas import published
from tests.paths import SAMPLES
from tests.unit.core.made import chunk, native, whole

MODULE = [sys.executable, "-m", "consumer"]
SCRIPT = [str(Path(sys.executable).with_name("acceptance-consumer"))]
RECORDS = sorted((SAMPLES / "fleet" / "records").glob("*.json"))
EVENT = native(body=whole()) + b"\n"


def ran(*args: object, stdin: bytes = b"") -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli.main, list(map(str, args)), input=stdin)


def child(
    *args: object, stdin: bytes = b"", command: Iterable[str] = MODULE, **environ: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process."""
    return subprocess.run(
        [*command, *map(str, args)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **environ},
    )


def as_json(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def summary(text: str) -> dict[str, int]:
    """Read the summary of a replay."""
    counts = [line.split(maxsplit=1) for line in text.splitlines() if line[:9].strip().isdigit()]
    return {name: int(count) for count, name in counts}


def many(count: int = 1_000) -> bytes:
    """Return a capture whose records are more than a pipe holds."""
    return b"".join(native(f"r{n}", body=whole(f"c{n}")) + b"\n" for n in range(count))


class TestHelp:
    @pytest.mark.parametrize("args", [[], *([name] for name in cli.COMMANDS)])
    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_every_command_has_help_without_leftover_markup(
        self, args: list[str], flag: str
    ) -> None:
        result = ran(*args, flag)

        assert result.exit_code == 0
        assert result.stdout.startswith("Usage: ")
        assert "\\b" not in result.stdout
        assert "\b" not in result.stdout

    @pytest.mark.parametrize("name", cli.COMMANDS)
    def test_the_list_shows_the_summary_of_each_command(self, name: str) -> None:
        """The list does not import the commands, so that each summary is written twice."""
        summary = cli.load_command(name).get_short_help_str(limit=100)

        assert re.search(rf"^  {name} +{re.escape(summary)}$", ran("--help").stdout, re.MULTILINE)

    def test_help_does_not_wait_for_the_import_of_a_kafka_client(self) -> None:
        script = "import sys; from consumer.commands import cli; print(*sys.modules)"

        modules = child("-c", script, command=[sys.executable]).stdout.decode().split()

        assert "consumer.commands.cli" in modules
        assert not {"confluent_kafka", "rich", "msgspec"} & set(modules)

    def test_it_begins_with_what_to_try(self) -> None:
        lines = ran("--help").stdout.splitlines()

        assert "    acceptance-consumer demo" in lines
        assert (
            "    kcat -C -b kafka:9092 -t serving-responses -J -e | acceptance-consumer replay -"
            in lines
        )

    @pytest.mark.parametrize(
        "args",
        [
            [],
            ["run"],
            ["create-topics"],
            ["replay"],
            ["explain"],
            ["tail"],
            ["dead-letters"],
            ["report"],
        ],
    )
    def test_examples_are_commands_that_parse(self, args: list[str]) -> None:
        """They stand line by line as they are typed, and have the options that there are."""
        text = ran(*args, "--help").stdout.replace("\\\n", "")
        examples = re.findall(r"^ .*?acceptance-consumer ([\w-]+)(.*)$", text, re.MULTILINE)

        assert examples
        for name, rest in examples:
            words = re.sub(r"[>|].*", "", rest).split()
            command = cli.load_command(name)
            with click.Context(
                command, resilient_parsing=True, **cli.main.context_settings
            ) as context:
                assert command.parse_args(context, words) == []

    def test_create_topics_lists_the_settings_that_matter_to_it(self) -> None:
        options = set(re.findall(r"--[a-z-]+", ran("create-topics", "--help").stdout))

        assert options == {
            *("--partitions", "--replication-factor", "--help", "--settings", "--kafka"),
            *("--bootstrap-servers", "--output-topic", "--dead-letter-topic", "--dead-letters"),
        }

    @pytest.mark.parametrize(
        "written",
        [
            "--bootstrap-servers HOST:PORT,...",
            "--skip TOPIC:PARTITION:OFFSET",
            "--paths MEMBER=PATH",
            "--http-address HOST:PORT|off",
        ],
    )
    def test_options_say_how_their_values_are_written(self, written: str) -> None:
        assert written in ran("run", "--help").stdout

    def test_run_has_an_option_and_the_names_for_every_setting(self) -> None:
        text = " ".join(ran("run", "--help").stdout.split())

        for field in fields().values():
            if not field.name.startswith("kafka"):
                assert f"{field.flag} " in text
            assert field.environment.removesuffix("_CONSUMER").removesuffix("_PRODUCER") in text

    @pytest.mark.parametrize("args", [[], ["replay"], ["explain"]])
    def test_nothing_to_do_is_a_mistake_that_leads_to_help(self, args: list[str]) -> None:
        result = ran(*args)

        assert result.exit_code == 2
        assert result.stdout == ""
        assert "--help" in result.stderr

    @pytest.mark.parametrize("command", [MODULE, SCRIPT])
    def test_it_is_installed_and_knows_its_version(self, command: list[str]) -> None:
        done = child("--version", command=command)

        assert done.returncode == 0
        installed = version("acceptance-consumer")
        assert done.stdout.decode() == f"acceptance-consumer, version {installed}\n"


class TestSchema:
    @pytest.mark.parametrize("name", published.names())
    def test_it_prints_the_published_file(self, name: str) -> None:
        result = ran("schema", name)

        assert result.exit_code == 0
        assert result.stdout == published.path(name).read_text()

    @pytest.mark.parametrize("args", [[], ["acceptance-records"]])
    def test_another_name_is_refused_with_those_that_there_are(self, args: list[str]) -> None:
        result = ran("schema", *args)

        assert result.exit_code == 2
        assert all(name in result.stderr for name in published.names())


class TestDemo:
    @pytest.mark.parametrize("option", ["--rate", "--duration"])
    @pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "-1", "0", "fast", ""])
    def test_what_is_out_of_the_range_is_refused(self, option: str, value: str) -> None:
        result = ran("demo", option, value)

        assert result.exit_code == 2
        assert f"Invalid value for '{option}'" in result.stderr

    def test_a_rate_beyond_what_one_process_can_do_is_refused(self) -> None:
        assert ran("demo", "--rate", "501").exit_code == 2

    def test_numbers_get_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[object] = []

        def run_demo(**options: object) -> int:
            given.append(options)
            return 1

        monkeypatch.setattr(demo, "run_demo", run_demo)
        result = ran("demo", "--rate", "0.5", "--duration", "2m", "--seed", "-3")

        assert result.exit_code == 1
        assert given == [{"rate": 0.5, "duration": 120.0, "seed": -3}]


class TestRun:
    def test_wrong_settings_are_refused_in_the_log_all_at_once_with_secrets_masked(self) -> None:
        Path("settings.toml").write_text('[kafka]\n"sasl.password" = ["hunter2"]\n')

        done = child(
            *("run", "--topics", "t", "--settings", "settings.toml", "--idle-timeout", "5x"),
            ACCEPTANCE_MAX_COMMIT_OUTPUTS="0",
        )

        assert (done.returncode, done.stdout) == (2, b"")
        assert b"hunter2" not in done.stderr
        lines = {line["setting"]: line for line in as_json(done.stderr)}
        assert {line["event"] for line in lines.values()} == {"settings_rejected"}
        assert {name: line["given"] for name, line in lines.items()} == {
            "kafka.sasl.password": "[masked]",
            "idle_timeout": "'5x'",
            "max_commit_outputs": "'0'",
            "bootstrap_servers": None,
        }
        assert lines["idle_timeout"]["error"].startswith("must be a duration from 1s to 24h")
        assert lines["idle_timeout"]["source"] == "flag --idle-timeout"
        assert lines["max_commit_outputs"]["error"] == "must be an integer from 1 to 1000000"
        assert lines["max_commit_outputs"]["source"] == "environment ACCEPTANCE_MAX_COMMIT_OUTPUTS"

    def test_a_property_that_the_client_refuses_is_named_without_its_value(self) -> None:
        done = child(
            *("run", "--bootstrap-servers", "localhost:1", "--topics", "t"),
            *("-X", "sasl.pasword=hunter2"),
        )

        assert (done.returncode, done.stdout) == (2, b"")
        (line,) = as_json(done.stderr)
        assert line["event"] == "settings_rejected"
        assert "sasl.pasword" in line["error"]
        assert "hunter2" not in line["error"]

    def test_a_start_that_fails_for_another_cause_is_logged_as_that(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = child(
                *("run", "--bootstrap-servers", "localhost:1", "--topics", "t"),
                *("--http-address", f"127.0.0.1:{taken.getsockname()[1]}"),
            )

        assert (done.returncode, done.stdout) == (2, b"")
        (line,) = as_json(done.stderr)
        assert line["event"] == "start_failed"
        assert "Address already in use" in line["error"]

    def test_check_says_the_same_to_people(self) -> None:
        done = child("run", "--check", "--topics", "t", "--max-commit-outputs", "many")

        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode() == (
            "acceptance-consumer: max_commit_outputs (flag --max-commit-outputs) is 'many': "
            "must be an integer from 1 to 1000000\n"
            "acceptance-consumer: bootstrap_servers (not given): "
            "is required; give host or host:port, separated by commas\n"
        )

    @pytest.mark.parametrize("skip", ["t", "t:0", "t:0:x", "t:-1:0", "t:0:1:2"])
    def test_a_message_to_skip_that_is_not_named_in_full_is_refused(self, skip: str) -> None:
        """Another message would be passed over, or none."""
        result = ran("run", "--bootstrap-servers", "b", "--topics", "t", "--skip", skip, "--check")

        assert result.exit_code == 2
        assert "skip (flag --skip)" in result.stderr
        assert "must be TOPIC:PARTITION:OFFSET" in result.stderr

    def test_a_broker_without_transactions_is_refused_with_the_setting_that_helps(self) -> None:
        topics = ["t", "acceptance-records", "acceptance-dead-letters"]
        with EmbeddedBroker() as broker:
            broker.create_topics(topics)
            at = ("--bootstrap-servers", broker.bootstrap_servers, "--topics", "t")
            refused = ran("run", "--check", *at)
            accepted = ran("run", "--check", *at, "--delivery", "at_least_once")

        assert refused.exit_code == 2
        assert "delivery: the embedded broker has no transactions" in refused.stderr
        assert accepted.exit_code == 0, accepted.stderr

    def test_an_option_that_there_is_not_is_refused(self) -> None:
        result = ran("run", "--idle-timout", "5s")

        assert result.exit_code == 2
        assert "--idle-timeout" in result.stderr


class TestReplay:
    def test_records_go_out_valid_outcomes_to_their_file_and_a_summary_to_people(self) -> None:
        result = ran("replay", *RECORDS, "--outcomes", "outcomes.jsonl")

        assert result.exit_code == 0
        records = as_json(result.stdout_bytes)
        validator = Draft202012Validator(json.loads(ran("schema", "acceptance-record").stdout))
        assert records
        assert all(map(validator.is_valid, records))
        counted = Counter(
            f"{line['kind']} {line['outcome']}" + (f"({line['reason']})" if line["reason"] else "")
            for line in as_json(Path("outcomes.jsonl").read_bytes())
        )
        assert summary(result.stderr) == counted
        assert counted["request published"] == len(records)
        assert counted["message bad_payload(invalid_cloudevent)"] == 1

    @pytest.mark.parametrize("command", [MODULE, SCRIPT])
    def test_standard_input_gives_the_same_as_files(self, command: list[str]) -> None:
        text = b"".join(path.read_bytes() for path in RECORDS)

        done = child("replay", "-", stdin=text, command=command)

        assert done.returncode == 0
        assert done.stdout == ran("replay", *RECORDS).stdout_bytes

    def test_twice_gives_identical_bytes(self) -> None:
        Path("capture.jsonl").write_bytes(many(20) + native("open", body=chunk()))
        names = ["capture.jsonl", *RECORDS, *SAMPLES.glob("fleet/chunks/*.jsonl")]

        one = child("replay", *names, "--outcomes", "1", PYTHONHASHSEED="1")
        two = child("replay", *names, "--outcomes", "2", PYTHONHASHSEED="2")

        assert (one.returncode, one.stdout, one.stderr) == (0, two.stdout, two.stderr)
        assert Path("1").read_bytes() == Path("2").read_bytes()

    def test_bad_payloads_are_no_failure(self) -> None:
        result = ran("replay", "-", stdin=b"bad\n{\n\xff\n[]\n")

        assert (result.exit_code, result.stdout) == (0, "")
        assert sum(summary(result.stderr).values()) == 4

    def test_nothing_at_all_is_no_failure(self) -> None:
        result = ran("replay", "-")

        assert (result.exit_code, result.output) == (0, "no messages in the input\n")

    def test_a_whole_file_may_be_one_body(self) -> None:
        stream = SAMPLES / "engines" / "vllm" / "chat_stream_summary.sse"

        (record,) = as_json(ran("replay", "--format", "file", stream).stdout_bytes)

        assert (record["engine"], record["streamed"], record["stream_complete"]) == (
            "vllm",
            True,
            True,
        )


class TestExplain:
    def test_a_message_of_a_capture_is_explained_without_a_kafka(self) -> None:
        Path("capture.jsonl").write_bytes(EVENT + b"{\n")

        first = ran("explain", "--capture", "capture.jsonl")
        second = ran("explain", "--capture", "capture.jsonl", "--line", "2")

        assert (first.exit_code, second.exit_code) == (0, 0)
        assert re.search(r"^request +published: ", first.stdout, re.MULTILINE)
        assert re.search(r"^outcome +bad_payload\(invalid_json\)", second.stdout, re.MULTILINE)

    def test_json_says_the_same_to_machines(self) -> None:
        explained = json.loads(ran("explain", "--capture", "-", "--json", stdin=EVENT).stdout)

        (record,) = as_json(ran("replay", "-", stdin=EVENT).stdout_bytes)
        assert explained["envelope"] == "native"
        assert explained["entries"][0]["request"]["record"] == record

    @pytest.mark.parametrize("place", [["capture", "0", "1"], ["capture:0:1"]])
    def test_a_message_of_a_capture_may_be_named_by_its_place(self, place: list[str]) -> None:
        result = ran("explain", *place, "--capture", "-", stdin=EVENT + b"{\n")

        assert "bad_payload(invalid_json)" in result.stdout

    def test_a_payload_is_shown_only_if_asked_for(self) -> None:
        value = b'{"canary": '

        without = ran("explain", "--capture", "-", stdin=value)
        with_it = ran("explain", "--capture", "-", "--payload", stdin=value)

        assert "canary" not in without.output
        assert "canary" in with_it.stdout

    @pytest.mark.parametrize(
        ("args", "why"),
        [
            (["--capture", "-", "--line", "3"], "- has 1 messages; give a smaller --line"),
            (["t", "0", "5", "--capture", "-"], "- does not contain message t:0:5"),
            (["t", "0"], "'t:0' is not TOPIC:PARTITION:OFFSET"),
            (["t", "0", "five"], "'t:0:five' is not TOPIC:PARTITION:OFFSET"),
            (["t:0:1", "--line", "1"], "--line needs a capture"),
            (["t:0:1", "--line", "1", "--capture", "-"], "both name the message; omit one"),
            (["--capture", "missing"], "missing: No such file or directory"),
            (["t:0:1"], "bootstrap_servers"),
            ([], "Missing argument 'TOPIC PARTITION OFFSET'"),
        ],
    )
    def test_what_cannot_be_found_is_refused(self, args: list[str], why: str) -> None:
        result = ran("explain", *args, stdin=EVENT)

        assert (result.exit_code, result.stdout) == (2, "")
        assert why in result.stderr

    def test_a_capture_without_messages_is_refused(self) -> None:
        result = ran("explain", "--capture", "-", stdin=b"")

        assert (result.exit_code, result.stdout) == (2, "")
        assert "- has no messages; give a capture that has some" in result.stderr

    def test_a_message_that_brings_the_core_down_is_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(Partition, "feed", broken)
        result = ran("explain", "--capture", "-", stdin=EVENT)

        assert (result.exit_code, result.stdout) == (1, "")
        assert "crashes the service (ZeroDivisionError)" in result.stderr
        assert "to skip this one, add capture:0:0 to the setting skip" in result.stderr


class TestTail:
    @pytest.mark.parametrize(
        ("args", "why"),
        [
            (["--from", "yesterday"], "'yesterday' is not a time; give RFC 3339"),
            (["--from", "5"], "'5' is not a time; give RFC 3339"),
            (["--outcome", "no_stats"], "'no_stats' is not one of 'published'"),
            (["--engine", "vllm", "--outcome", "bad_payload"], "dead letters name no engine"),
            (["--count", "0"], "0 is not in the range"),
            ([], "bootstrap_servers"),
        ],
    )
    def test_what_cannot_be_followed_is_refused(self, args: list[str], why: str) -> None:
        result = ran("tail", *args)

        assert (result.exit_code, result.stdout) == (2, "")
        assert why in result.stderr

    def test_a_reader_that_has_seen_enough_ends_it_without_a_word(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = ran("replay", "-", stdin=EVENT).stdout_bytes.strip()
        with EmbeddedBroker() as broker:
            broker.create_topics(["acceptance-records"])
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            for _ in range(5_000):
                producer.produce("acceptance-records", record)
                producer.poll(0)
            assert producer.flush(10) == 0
            producer.close()  # Else it complains on stderr, in other tests too, without its broker.
            script = '"$@" | head -n 2; exit "${PIPESTATUS[0]}"'
            monkeypatch.setenv("FORCE_COLOR", "1")  # Which makes no terminal of a pipe.
            follow = ("tail", "--from", "earliest")

            done = child(
                *("-c", script, "bash", *MODULE, *follow),
                command=["bash"],
                KAFKA_BOOTSTRAP_SERVERS=broker.bootstrap_servers,
            )

        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.startswith(b"time, UTC ")


class TestDeadLetters:
    @pytest.mark.parametrize(
        ("args", "why"),
        [
            (["--show", "t:0"], "'t:0' is not TOPIC:PARTITION:OFFSET"),
            (["--since", "latest"], "'latest' is not a time here"),
            (["--kind", "record"], "'record' is not one of"),
            (["--show", "t:0:1", "--redrive"], "--show and --redrive cannot be combined"),
            (["--capture", "f", "--redrive"], "--capture and --redrive cannot be combined"),
            ([], "bootstrap_servers"),
        ],
    )
    def test_what_is_not_to_be_done_is_refused(self, args: list[str], why: str) -> None:
        result = ran("dead-letters", *args)

        assert (result.exit_code, result.stdout) == (2, "")
        assert why in result.stderr

    def test_none_are_no_failure(self) -> None:
        with EmbeddedBroker() as broker:
            broker.create_topics(["acceptance-dead-letters"])

            result = ran("dead-letters", "--bootstrap-servers", broker.bootstrap_servers)

        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no dead letters\n")


class TestSettingsOfReplay:
    def fleet(self, *args: object) -> object:
        result = ran("replay", "-", *args, stdin=EVENT)
        assert result.exit_code == 0
        return json.loads(result.stdout)["fleet"]

    def test_the_fleet_is_local_or_as_the_settings_say(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("settings.toml").write_text('fleet = "file"')

        assert self.fleet() == "local"
        assert self.fleet("--settings", "settings.toml") == "file"
        monkeypatch.setenv("ACCEPTANCE_FLEET", "environment")
        assert self.fleet("--settings", "settings.toml") == "environment"
        assert self.fleet("--fleet", "flag") == "flag"

    def test_the_settings_of_the_service_can_be_used_as_they_are(self) -> None:
        Path("settings.toml").write_text(
            'bootstrap_servers = "kafka:9092"\ntopics = ["t"]\nenvelope = "cloudevents"\n'
            '[kafka]\n"sasl.password" = "x"\n'
        )

        result = ran("replay", "-", "--settings", "settings.toml", stdin=EVENT)

        assert summary(result.stderr) == {"message bad_payload(unrecognised_shape)": 1}

    def test_wrong_ones_are_refused_one_per_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACCEPTANCE_ENVELOPE", "xml")
        monkeypatch.setenv("ACCEPTANCE_IDLE_TIMEOUT", "never")

        result = ran("replay", "-", stdin=EVENT)

        assert (result.exit_code, result.stdout) == (2, "")
        one, two = result.stderr.splitlines()
        assert one == (
            "acceptance-consumer: envelope (environment ACCEPTANCE_ENVELOPE) is 'xml': "
            f"must be one of auto, {', '.join(format_names())}"
        )
        assert two.startswith("acceptance-consumer: idle_timeout (environment")

    def test_a_file_of_settings_that_is_not_there_is_refused(self) -> None:
        result = ran("replay", "-", "--settings", "none.toml", stdin=EVENT)

        assert (result.exit_code, result.stdout) == (2, "")
        assert "none.toml" in result.stderr


class TestFilesOfReplay:
    def refusal(self, *args: object, stdin: bytes = b"") -> str:
        result = ran("replay", *args, stdin=stdin)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        return line

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("missing.jsonl", "No such file or directory"),
            ("missing.gz", "No such file or directory"),
            ("folder", "Is a directory"),
            ("damaged.gz", "Compressed file ended before the end-of-stream marker was reached"),
            ("x" * 300, "File name too long"),
            ("", "Is a directory"),  # As Path reads it: this folder.
        ],
    )
    @pytest.mark.parametrize("terminal", [False, True])
    def test_one_that_cannot_be_read_is_refused_by_name(
        self, name: str, why: str, monkeypatch: pytest.MonkeyPatch, *, terminal: bool
    ) -> None:
        """Where there would be a progress bar as well, for which files are looked at before."""
        Path("folder").mkdir()
        Path("damaged.gz").write_bytes(gzip.compress(b"{}")[:9])
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")

        assert f"acceptance-consumer: {name}: {why}" in ran("replay", name).stderr
        assert ran("replay", name).exit_code == 2

    def test_a_damaged_record_is_named_by_file_and_line(self) -> None:
        good, bad = b'{"value_b64": "%b"}\n' % b64encode(EVENT), b'{"value_b64": "%"}\n'
        Path("records.jsonl").write_bytes(good + bad)

        assert self.refusal("records.jsonl").startswith(
            "acceptance-consumer: records.jsonl:2: damaged record: Invalid base64 encoded string"
        )
        assert self.refusal("-", stdin=bad).startswith("acceptance-consumer: -:1: damaged record: ")

    def test_a_format_that_there_is_not_is_refused_with_those_that_there_are(self) -> None:
        result = ran("replay", "--format", "csv", "-")

        assert result.exit_code == 2
        assert all(form in result.stderr for form in ("auto", "kcat", "records", "values", "file"))

    @pytest.mark.parametrize("name", ["folder", "missing/outcomes.jsonl"])
    def test_outcomes_that_cannot_be_written_are_refused_before_anything_is_read(
        self, name: str
    ) -> None:
        Path("folder").mkdir()

        result = ran("replay", "-", "--outcomes", name, stdin=EVENT)

        assert (result.exit_code, result.stdout) == (2, "")
        assert "--outcomes" in result.stderr
        assert name in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full, bash and a pseudo-terminal")
class TestPipes:
    def test_a_reader_that_has_seen_enough_ends_it_without_a_word(self) -> None:
        Path("big.jsonl").write_bytes(many())

        with subprocess.Popen(
            [*MODULE, "replay", "big.jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            first = json.loads(process.stdout.readline())
            process.stdout.close()
            said = process.stderr.read()

        assert first["request_id"] == "r0"
        assert (process.returncode, said) == (0, b"")

    def test_a_full_disk_is_a_failure_that_says_so(self) -> None:
        Path("capture.jsonl").write_bytes(EVENT)

        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*MODULE, "replay", "capture.jsonl"],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )

        assert done.returncode == 2
        assert done.stderr == (
            b"acceptance-consumer: standard output cannot be written: No space left on device\n"
        )

    def test_so_is_one_for_outcomes_and_no_record_is_lost(self) -> None:
        done = child("replay", "-", "--outcomes", "/dev/full", stdin=EVENT)

        assert done.returncode == 2
        assert len(as_json(done.stdout)) == 1
        assert done.stderr == (
            b"acceptance-consumer: outcomes cannot be written: No space left on device\n"
        )

    def test_outcomes_whose_reader_has_gone_do_not_end_the_records_quietly(self) -> None:
        script = '"$@" replay big.jsonl --outcomes >(true)'
        Path("big.jsonl").write_bytes(many())

        done = child("-c", script, "bash", *MODULE, command=["bash"])

        assert done.returncode == 2
        assert done.stderr == b"acceptance-consumer: outcomes cannot be written: Broken pipe\n"

    def test_a_terminal_shows_a_progress_bar_which_goes_before_the_summary(self) -> None:
        Path("big.jsonl").write_bytes(many())
        terminal, child_end = os.openpty()
        try:
            with subprocess.Popen(
                [*MODULE, "replay", "big.jsonl"],
                stdout=subprocess.DEVNULL,
                stderr=child_end,
                env={**os.environ, "TERM": "xterm"},
            ) as process:
                os.close(child_end)
                shown = b"".join(iter(lambda: _read(terminal), b"")).decode()
        finally:
            os.close(terminal)

        assert process.returncode == 0
        bar, erased, after = shown.rpartition("\x1b[2K")
        assert erased
        assert "replay" in bar
        assert "435.8/435.8 kB" in bar
        assert summary(after) == {"message accepted": 1_000, "request published": 1_000}


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # The other end is closed.
        return b""
