"""Captures, as kcat, the binary-safe form and a text editor write them."""

import gzip
import json
import os
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress

from consumer.commands.captures.files import read_capture
from consumer.commands.captures.messages import CaptureError, CaptureFormat, record_line
from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
)
from tests.paths import SAMPLES
from tests.unit.core import samples

MOMENT = 1_767_225_600_123
STRANGE_BYTES = [
    b"",
    b"\n\r\t\b\f\x00\x1f\x7f",
    b'"\\/',
    b"\\ud83d\\ude00",
    "Grün \N{GREEN APPLE}\u2028\ufeff".encode(),
    b"\xff\xfe\x80 half a character: \xf0\x9f",
    b"\xed\xa0\xbd\xed\xb8\x80",  # A pair of surrogates, each encoded by itself.
    gzip.compress(b"data: [DONE]\n\n", mtime=0),
    bytes(range(256)),
]


def read(data: bytes, form: CaptureFormat = "auto", first_offset: int = 0) -> list[CapturedMessage]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        path.write_bytes(data)
        return [*read_capture(str(path), form, first_offset)]


def values(data: bytes, form: CaptureFormat = "auto") -> list[bytes | None]:
    return [message.value() for message in read(data, form)]


def refused(data: bytes, form: CaptureFormat = "auto") -> str:
    """Return why the capture is refused, from the name of the file on."""
    with pytest.raises(CaptureError) as caught:
        read(data, form)
    return str(caught.value).rpartition(os.sep)[2]


def unreadable(path: Path, form: CaptureFormat = "auto") -> str:
    with pytest.raises(CaptureError) as caught:
        list(read_capture(str(path), form, 0))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def as_kcat_writes(raw: bytes | None) -> bytes:
    """Write a string as kcat's JSON library does: bytes above 127 stay as they are."""
    if raw is None:
        return b"null"
    return json.dumps(raw.decode("latin-1"), ensure_ascii=False).encode("latin-1")


def kcat(
    payload: bytes | None,
    *,
    offset: int = 5,
    key: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    time: bytes = b'"tstype":"create","ts":1767225600123,',
) -> bytes:
    """Return a line of `kcat -J`, member by member as kcat writes it."""
    flat = [text for name, value in headers or [] for text in (name.encode(), value)]
    listed = b'"headers":[' + b",".join(map(as_kcat_writes, flat)) + b"]," if headers else b""
    return b'{"topic":"t","partition":3,"offset":%d,%b"broker":1,%b"key":%b,"payload":%b}\n' % (
        offset,
        time,
        listed,
        as_kcat_writes(key),
        as_kcat_writes(payload),
    )


def kcat_with(**members: Any) -> bytes:
    return json.dumps(
        {"topic": "t", "partition": 0, "offset": 5, "payload": "x"} | members
    ).encode()


def record(value: bytes | None = b"x", **members: Any) -> bytes:
    encoded = None if value is None else b64encode(value).decode()
    return json.dumps({"value_b64": encoded} | members).encode()


class TestKcatLines:
    def test_a_line_is_the_message_that_kcat_has_seen(self) -> None:
        line = kcat(b"value", key=b"key", headers=[("a", b"1"), ("b", None), ("a", b"2")])

        assert read(line) == [
            CapturedMessage(
                at_topic="t",
                at_partition=3,
                at_offset=5,
                the_key=b"key",
                the_value=b"value",
                the_headers=[("a", b"1"), ("b", None), ("a", b"2")],
                timestamp_type=TIMESTAMP_CREATE_TIME,
                timestamp_ms=MOMENT,
            )
        ]

    @pytest.mark.parametrize("raw", STRANGE_BYTES)
    def test_key_headers_and_payload_keep_their_bytes(self, raw: bytes) -> None:
        (message,) = read(kcat(raw, key=raw, headers=[("raw", raw)]), "kcat")

        assert message.key() == raw
        assert message.value() == raw
        assert message.headers() == [("raw", raw)]

    @given(st.binary())
    def test_any_payload_keeps_its_bytes(self, raw: bytes) -> None:
        assert values(kcat(raw)) == [raw]

    def test_a_null_payload_is_a_tombstone_and_an_empty_one_is_not(self) -> None:
        assert values(kcat(None) + kcat(b"")) == [None, b""]

    @pytest.mark.parametrize(
        ("time", "expected"),
        [
            (b'"tstype":"create","ts":7,', (TIMESTAMP_CREATE_TIME, 7)),
            (b'"tstype":"logappend","ts":7,', (TIMESTAMP_LOG_APPEND_TIME, 7)),
            (b'"tstype":"create","ts":-1,', (TIMESTAMP_CREATE_TIME, -1)),
            (b'"tstype":"unknown","ts":0,', (TIMESTAMP_NOT_AVAILABLE, -1)),
            (b"", (TIMESTAMP_NOT_AVAILABLE, -1)),
        ],
    )
    def test_timestamps(self, time: bytes, expected: tuple[int, int]) -> None:
        (message,) = read(kcat(b"x", time=time))

        assert message.timestamp() == expected

    def test_headers_and_key_may_be_missing(self) -> None:
        (message,) = read(kcat_with())

        assert (message.key(), message.headers()) == (None, [])

    def test_an_avro_payload_is_its_json(self) -> None:
        assert values(kcat_with(payload={"text": "Grün"}, value_schema_id=1)) == [
            '{"text": "Grün"}'.encode()
        ]

    def test_an_avro_payload_that_kcat_could_not_decode_is_no_tombstone(self) -> None:
        said = refused(kcat_with(payload=None, payload_error="no such schema"))

        assert said == "capture:1: kcat could not decode the payload; capture it without -s"

    def test_a_lone_surrogate_which_kcat_never_writes_does_no_harm(self) -> None:
        assert values(kcat_with(payload="a\ud800b")) == [b"a?b"]

    @pytest.mark.parametrize(
        ("members", "why"),
        [
            ({"offset": None}, "Expected `int`"),
            ({"offset": -1}, "Expected `int`"),
            ({"offset": 1 << 63}, "Expected `int`"),
            ({"offset": float("inf")}, "Expected `int`"),
            ({"offset": 1.5}, "Expected `int`"),
            ({"partition": "0"}, "Expected `int`, got `str` - at `$.partition`"),
            ({"tstype": "create", "ts": 1 << 63}, "Expected `int` <= 9223372036854775807"),
            ({"tstype": "create", "ts": 1.5}, "Expected `int`, got `float` - at `$.ts`"),
            ({"tstype": []}, ""),
            ({"topic": None}, "Expected `str`, got `null` - at `$.topic`"),
            ({"topic": "\udcff"}, "Expected `str` matching regex"),
            ({"headers": ["a"]}, "the last header has no value"),
            ({"headers": [None, "a"]}, "Expected `str`, got `null`"),
            ({"headers": {"a": ["1"]}}, "Expected `array | null`, got `object` - at `$.headers`"),
            ({"headers": 5}, "Expected `array | null`, got `int` - at `$.headers`"),
        ],
    )
    def test_a_damaged_line_is_refused_with_its_place(
        self, members: dict[str, Any], why: str
    ) -> None:
        said = refused(kcat(b"x") + kcat_with(**members))

        assert said.startswith(f"capture:2: damaged kcat line: {why}")


class TestRecords:
    @pytest.mark.parametrize("name", [n for n in samples.names() if n.startswith("fleet/records/")])
    def test_a_sample_is_the_message_that_its_producer_has_sent(self, name: str) -> None:
        assert read((SAMPLES / name).read_bytes()) == samples.messages(name)

    def test_only_the_value_is_required(self) -> None:
        assert read(record(b"x"), first_offset=7) == [
            CapturedMessage(at_offset=7, the_value=b"x", the_headers=[])
        ]

    @pytest.mark.parametrize("form", ["auto", "records"])
    @pytest.mark.parametrize(
        "written",
        [
            b"%b\n%b\n",
            b"%b\r\n\r\n%b",
            b"\n \n%b\n%b",
            b"\xef\xbb\xbf%b\n%b\n",
        ],
    )
    def test_one_per_line(self, written: bytes, form: CaptureFormat) -> None:
        assert values(written % (record(b"1"), record(b"2")), form) == [b"1", b"2"]

    @pytest.mark.parametrize("form", ["auto", "records"])
    @pytest.mark.parametrize("written", [b"%b\n%b\n", b"%b\r\n%b", b"\n%b%b", b"[\n%b,\n%b\n]\n"])
    def test_spread_over_lines_one_after_another_or_in_an_array(
        self, written: bytes, form: CaptureFormat
    ) -> None:
        one, two = (json.dumps(json.loads(record(raw)), indent=1).encode() for raw in (b"1", b"2"))

        assert values(written % (one, two), form) == [b"1", b"2"]

    def test_offsets_that_are_not_stated_are_counted(self) -> None:
        spread = json.dumps([json.loads(record()), json.loads(record())], indent=1).encode()

        assert [message.offset() for message in read(record() + b"\n" + record())] == [0, 1]
        assert [message.offset() for message in read(spread, first_offset=4)] == [4, 5]

    @pytest.mark.parametrize(
        ("members", "why"),
        [
            ({"value_b64": "a"}, "Invalid base64 encoded string - at `$.value_b64`"),
            ({"value_b64": "YQ==\n"}, "Invalid base64 encoded string - at `$.value_b64`"),
            ({"value_b64": "_-8="}, "Invalid base64 encoded string - at `$.value_b64`"),
            ({"value_b64": "ü"}, "Invalid base64 encoded string - at `$.value_b64`"),
            ({"value_b64": 5}, "Expected `bytes | null`, got `int` - at `$.value_b64`"),
            ({"key_b64": "*"}, "Invalid base64 encoded string - at `$.key_b64`"),
            ({"headers": [["a", "*"]]}, "Invalid base64 encoded string - at `$.headers[0][1]`"),
            ({"headers": [["a"]]}, "Expected `array` of length 2, got 1 - at `$.headers[0]`"),
            ({"headers": {"ab": "YQ=="}}, "Expected `array | null`, got `object` - at `$.headers`"),
            ({"offset": 1e999}, "Expected `int | null`, got `float` - at `$.offset`"),
            ({"partition": True}, "Expected `int | null`, got `bool` - at `$.partition`"),
            (
                {"timestamp_type": "CREATE_TIME", "timestamp": "now"},
                "Expected `int`, got `str` - at `$.timestamp`",
            ),
            ({"topic": 5}, "Expected `str`, got `int` - at `$.topic`"),
        ],
    )
    def test_a_damaged_record_is_refused_with_its_place(
        self, members: dict[str, Any], why: str
    ) -> None:
        damaged = json.loads(record()) | members
        spread = json.dumps(damaged, indent=1).encode()

        said = refused(record() + b"\n\n" + json.dumps(damaged).encode())
        assert said.startswith(f"capture:3: damaged record: {why}")
        said = refused(b"{\n" + record()[1:] + b"\n" + spread)
        assert said.startswith(f"capture:3: damaged record: {why}")

    def test_the_error_shows_no_content_of_a_damaged_record(self) -> None:
        assert "secret" not in refused(b'{"value_b64": "*secret*", "key_b64": "*secret*"}')


class TestBareValues:
    def test_one_per_line_with_offsets_from_the_first(self) -> None:
        assert read(b'{"a":1}\nb\n', first_offset=3) == [
            CapturedMessage(at_offset=3, the_value=b'{"a":1}'),
            CapturedMessage(at_offset=4, the_value=b"b"),
        ]

    @pytest.mark.parametrize("data", [b"a\nb\n", b"a\r\nb\r\n", b"a\nb", b"\n\na\n \nb\n\n"])
    def test_line_ends_and_blank_lines_are_no_part_of_them(self, data: bytes) -> None:
        assert values(data) == [b"a", b"b"]

    def test_where_the_form_is_pinned_a_blank_line_is_an_empty_value(self) -> None:
        assert values(b"a\n\nb\n", "values") == [b"a", b"", b"b"]

    @pytest.mark.parametrize(
        "value",
        [
            b" \xff\xfe{",
            b"[1, 2]",
            b"5",
            b'{"topic": "t", "offset": 1}',
            b"[" * 100_000,
            b"9" * 10_000,
            b'{"a": NaN, "a": 1e999}',
        ],
    )
    def test_a_line_that_is_nothing_else_is_a_value_as_it_stands(self, value: bytes) -> None:
        assert values(value) == [value]

    @pytest.mark.parametrize("line", [kcat(b"payload"), record(b"value") + b"\n"])
    def test_a_line_that_was_cut_off_is_one(self, line: bytes) -> None:
        assert values(line + line[:-9])[1] == line[:-9]

    def test_a_line_of_50_megabytes_is_one_message(self) -> None:
        line = b'{"a": "' + b"x" * 50_000_000 + b'"}'

        assert values(line + b"\nb") == [line, b"b"]


class TestForms:
    def test_each_line_is_recognised_by_itself(self) -> None:
        assert values(b"bare\n" + kcat(b"kcat") + record(b"record") + b"\nbare") == [
            b"bare",
            b"kcat",
            b"record",
            b"bare",
        ]

    def test_each_of_the_values_that_spread_over_lines_is_so_too(self) -> None:
        one = json.dumps(json.loads(kcat(b"kcat")), indent=2).encode()
        other = b'{\n "a": 1\n}'

        assert values(one + b"\n" + other + record(b"record") + b"{ \n") == [
            b"kcat",
            other,
            b"record",
            b"{ ",
        ]

    @pytest.mark.parametrize(
        "value",
        [
            b'{\n "a": 1\n}',
            b'[{"a": 1},\n {"a": 2}\n]',
            b"[]",
            b'{\n "value_b64": "YQ',
            b"{",
        ],
    )
    def test_other_json_that_spreads_over_lines_is_one_value(self, value: bytes) -> None:
        assert values(value + b"\n") == [value]

    @pytest.mark.parametrize(
        ("form", "data", "line"),
        [
            ("kcat", record(), 1),
            ("kcat", kcat(b"x") + b"bare", 2),
            ("kcat", kcat(b"x") + b"\n" + kcat(b"x")[:-5], 3),
            ("records", kcat(b"x"), 1),
            ("records", record() + b"\n[]", 2),
            ("records", b'\n{\n "value_b64"', 2),
            ("records", b'{\n "value_b64": null\n}\n\n{"a": 1}', 5),
        ],
    )
    def test_what_is_not_of_the_pinned_form_is_refused_with_its_place(
        self, form: CaptureFormat, data: bytes, line: int
    ) -> None:
        assert refused(data, form) == (
            f"capture:{line}: not a captured message of the format {form!r}; "
            "correct it, or omit --format"
        )

    def test_pinned_to_values_no_line_is_anything_else(self) -> None:
        lines = [kcat(b"x").strip(), record(), b"{", b"[", b'"value_b64"']

        assert values(b"\n".join(lines), "values") == lines

    def test_pinned_to_file_the_whole_file_is_one_value(self) -> None:
        assert values(b"data: a\r\n\r\ndata: b\n\n", "file") == [b"data: a\r\n\r\ndata: b\n\n"]
        assert values(b"", "file") == [b""]

    @pytest.mark.parametrize("form", ["auto", "kcat", "records", "values"])
    def test_an_empty_file_holds_no_message(self, form: CaptureFormat) -> None:
        assert values(b"", form) == []


class TestFiles:
    @pytest.mark.parametrize("form", ["auto", "kcat", "file"])
    def test_gzip_is_read_as_what_it_holds(self, tmp_path: Path, form: CaptureFormat) -> None:
        path = tmp_path / "capture.jsonl.gz"
        path.write_bytes(gzip.compress(kcat(b"1")) + gzip.compress(kcat(b"2")))

        read_values = [one.value() for one in read_capture(str(path), form, 0)]

        assert read_values == ([kcat(b"1") + kcat(b"2")] if form == "file" else [b"1", b"2"])

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (
                gzip.compress(b"x" * 1000, mtime=0)[:-12],
                "Compressed file ended before the end-of-stream",
            ),
            (
                gzip.compress(b"x" * 1000, mtime=0)[:10] + b"\xff" * 20,
                "Error -3 while decompressing",
            ),
            (gzip.compress(b"x", mtime=0) + b"junk", "Not a gzipped file"),
        ],
    )
    def test_damaged_gzip_is_refused(self, tmp_path: Path, data: bytes, why: str) -> None:
        path = tmp_path / "capture.gz"
        path.write_bytes(data)

        assert unreadable(path).startswith(why)

    @pytest.mark.parametrize("name", ["missing", "missing.gz"])
    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path, name: str) -> None:
        assert unreadable(tmp_path / name) == "No such file or directory"

    @pytest.mark.parametrize("name", ["folder", "folder.gz"])
    def test_a_folder_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).mkdir()

        assert unreadable(tmp_path / name) == "Is a directory"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "capture"
        path.touch(0o000)

        assert unreadable(path) == "Permission denied"

    @pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
    @pytest.mark.parametrize("form", ["auto", "file"])
    def test_a_file_that_opens_and_cannot_be_read_is_refused(self, form: CaptureFormat) -> None:
        assert unreadable(Path("/proc/self/mem"), form) == "Input/output error"

    def test_standard_input_that_is_closed_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", None)

        assert unreadable(Path("-")) == "standard input is closed"

    @pytest.mark.parametrize("form", ["auto", "file"])
    @pytest.mark.parametrize("name", ["capture", "capture.gz"])
    def test_progress_counts_every_byte_of_the_file(
        self, tmp_path: Path, name: str, form: CaptureFormat
    ) -> None:
        path = tmp_path / name
        data = b"bare\r\n" + kcat(b"x") + record()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        progress = Progress(disable=True)
        task = progress.add_task("", total=path.stat().st_size)

        for _ in read_capture(
            str(path), form, 0, lambda file: progress.wrap_file(file, task_id=task)
        ):
            pass

        assert progress.tasks[0].completed == path.stat().st_size


@given(
    key=st.none() | st.binary(max_size=9),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
    timestamp=st.sampled_from(
        [
            (TIMESTAMP_CREATE_TIME, MOMENT),
            (TIMESTAMP_LOG_APPEND_TIME, MOMENT),
            (TIMESTAMP_NOT_AVAILABLE, -1),
        ]
    ),
    offset=st.integers(0, (1 << 63) - 1),
)
def test_what_is_written_is_read_again_as_it_was(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | str | None]],
    timestamp: tuple[int, int],
    offset: int,
) -> None:
    message = CapturedMessage(
        at_topic="t",
        at_partition=3,
        at_offset=offset,
        the_key=key,
        the_value=value,
        the_headers=headers,
        timestamp_type=timestamp[0],
        timestamp_ms=timestamp[1],
    )

    assert read(record_line(message)) == [message]
