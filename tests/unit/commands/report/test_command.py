"""`report` as people meet it, on files; what is read of a topic is tested on a real Kafka."""

import gzip
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest
from click.testing import CliRunner, Result

from consumer.commands import cli, parameter_types
from schemas import PublishedRecord
from tests.paths import ROOT
from tests.support.manual_clock import ManualClock
from tests.unit.commands.report.made import HOUR, NOON, record


def ran(*args: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli.main, ["report", *args], input=stdin)


def ran_with_output(output: int | BinaryIO) -> subprocess.CompletedProcess[bytes]:
    """Run the command with a standard output that `CliRunner` does not have."""
    command = (sys.executable, "-m", "consumer", "report", "-", "-o", "-")
    return subprocess.run(
        command,
        cwd=ROOT,
        input=lines(RECORDS),
        stdout=output,
        stderr=subprocess.PIPE,
        check=False,
    )


def lines(records: Iterable[PublishedRecord]) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in records)


def summary(result: Result) -> dict[str, int]:
    return {
        line.split(maxsplit=1)[1]: int(line.split()[0])
        for line in result.stderr.splitlines()
        if line.split()[0].isdecimal()
    }


RECORDS = [record(n, NOON + n * HOUR) for n in range(5)]


class TestFiles:
    def test_a_file_becomes_a_page(self) -> None:
        Path("records.jsonl").write_bytes(lines(RECORDS))
        result = ran("records.jsonl")

        assert (result.exit_code, result.stdout) == (0, "")
        assert summary(result)["records"] == 5
        page = Path("report.html").read_text(encoding="utf-8")
        assert page.startswith("<!doctype html>")
        assert "records.jsonl" in page

    def test_several_files_are_one_page(self) -> None:
        Path("a.jsonl").write_bytes(lines(RECORDS[:2]))
        Path("b.jsonl.gz").write_bytes(gzip.compress(lines(RECORDS[1:])))
        result = ran("a.jsonl", "b.jsonl.gz", "-o", "page.html")

        assert summary(result) == {
            "records": 5,
            "repeats of a record, counted once": 1,
            "not a record": 0,
        }
        assert Path("page.html").exists()

    def test_it_may_stand_in_a_pipe(self) -> None:
        result = ran("-", "-o", "-", stdin=lines(RECORDS))

        assert result.stdout.startswith("<!doctype html>")
        assert list(Path().iterdir()) == []

    def test_a_pipe_stays_a_pipe(self) -> None:
        os.mkfifo("page")
        reader = os.open("page", os.O_RDONLY | os.O_NONBLOCK)
        result = ran("-", "-o", "page", stdin=lines(RECORDS[:1]))

        assert result.exit_code == 0
        assert os.read(reader, 100).startswith(b"<!doctype html>")
        os.close(reader)

    def test_the_reader_of_a_pipe_may_stop(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        done = ran_with_output(writer)
        os.close(writer)

        assert (done.returncode, done.stderr) == (0, b"")

    def test_lines_that_are_no_record_are_counted(self) -> None:
        damaged = b'\xff\xfe\n\n{\n{"engine": "vllm"}\n' + lines(RECORDS) + lines(RECORDS)[:-40]
        result = ran("-", stdin=damaged)

        assert result.exit_code == 0
        assert summary(result)["not a record"] == 4
        assert "do not hold a readable acceptance record: 4." in Path("report.html").read_text()

    def test_an_empty_file_gives_a_page_that_says_so(self) -> None:
        result = ran("-", stdin=b"")

        assert result.exit_code == 0
        assert "no record in the range" in result.stderr
        assert "There is no acceptance record in this range." in Path("report.html").read_text()


class TestRange:
    def test_records_outside_of_it_are_left_out(self) -> None:
        result = ran(
            *("-", "--since", "2026-01-01T13:00:00Z", "--until", str(NOON + 3 * HOUR)),
            stdin=lines(RECORDS),
        )

        assert summary(result)["records"] == 2

    @pytest.mark.parametrize(
        ("ago", "records"),
        [("90m", 2), ("5400s", 2), ("3h", 4), ("0.125d", 4), ("99999d", 5), (f"{9**500}h", 5)],
    )
    def test_it_may_begin_so_long_ago(
        self, ago: str, records: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            parameter_types, "SystemClock", lambda: ManualClock(wall=NOON + 4 * HOUR)
        )

        assert summary(ran("-", "--since", ago, stdin=lines(RECORDS)))["records"] == records

    @pytest.mark.parametrize(
        "time", ["yesterday", "24", "24 hours", "-1h", "2026-13-01T00:00:00Z", "9" * 20]
    )
    def test_a_time_that_is_none_is_refused_with_examples(self, time: str) -> None:
        result = ran("-", "--since", time)

        assert result.exit_code == 2
        assert "is not a time; give RFC 3339" in result.stderr

    def test_one_that_ends_before_it_begins_is_refused(self) -> None:
        result = ran("-", "--since", str(NOON), "--until", str(NOON))

        assert result.exit_code == 2
        assert "--until is not after --since" in result.stderr


class TestRefusals:
    def test_a_missing_file_leaves_no_page(self) -> None:
        Path("report.html").write_text("of yesterday")
        result = ran("missing.jsonl")

        assert result.exit_code == 2
        assert "missing.jsonl: No such file or directory" in result.stderr
        assert Path("report.html").read_text() == "of yesterday"

    def test_a_place_that_cannot_be_written_to_is_named(self) -> None:
        result = ran("-", "-o", "missing/report.html", stdin=lines(RECORDS))

        assert result.exit_code == 2
        assert "missing/report.html cannot be written: No such file" in result.stderr

    def test_a_full_standard_output_is_said(self) -> None:
        with Path("/dev/full").open("wb") as full:
            done = ran_with_output(full)

        assert done.returncode == 2
        assert b"cannot be written: No space left on device" in done.stderr

    def test_without_files_it_has_to_know_the_cluster(self) -> None:
        result = ran()

        assert result.exit_code == 2
        assert "bootstrap_servers (not given): is required" in result.stderr
