"""Captures as real programs wrote them, and as people paste them: what replay makes of each.

curl 7.88.1, kcat 1.7.1, the console consumer of Kafka 4.3.1 and mitmproxy 11.0.2 wrote the samples
on 1 December 2026. rpk and AIPerf are among the reports.
"""

import gzip
import io
import json
import tempfile
import tracemalloc
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.commands.captures.files import read_capture
from consumer.commands.captures.messages import CaptureError
from consumer.commands.replay import Replay
from consumer.core.message import TIMESTAMP_CREATE_TIME, CapturedMessage
from tests.paths import SAMPLES
from tests.unit.core.made import chunk, last_chunk, native, pipeline, whole

Json = dict[str, Any]

CAPTURES: Final = SAMPLES / "captures"
STREAM: Final = ["chatcmpl-c1 30/60 stop"]
WHOLE: Final = ["chatcmpl-w1 30/60 stop"]
TOPIC: Final = [
    "r-1 30/60 stop",
    "r-2 30/60 stop",
    "chatcmpl-c3 30/60 stop",
    "chatcmpl-w4 30/60 stop",
    "chatcmpl-w7 30/60 stop",
]
TOMBSTONE: Final = "skipped(tombstone)"
REPEATED: Final = "skipped(repeated_response)"
NULL: Final = "bad_payload(unrecognised_format)"
# The topic has a tombstone and the JSON null, which not every program tells apart.
EXPECTED: Final[dict[str, tuple[list[str], list[str]]]] = {
    "curl_stream.txt": (STREAM, []),
    "curl_stream_i.txt": (STREAM, []),
    "curl_stream_progress.txt": (STREAM, []),
    "curl_stream_v.txt": (STREAM, []),
    "curl_whole_v.txt": (WHOLE, []),
    "curl_gzip_i.bin": (WHOLE, []),
    "curl_two.txt": (WHOLE, [REPEATED]),
    "curl_two_i.txt": (WHOLE, [REPEATED]),
    "console_plain.txt": (TOPIC, [TOMBSTONE, TOMBSTONE]),
    "console_key.txt": (TOPIC, [TOMBSTONE, TOMBSTONE]),
    "console_headers.txt": (TOPIC, [TOMBSTONE, TOMBSTONE]),
    "console_only_headers.txt": (TOPIC, [TOMBSTONE, TOMBSTONE]),
    "console_timestamp.txt": (TOPIC, [TOMBSTONE, TOMBSTONE]),
    "console_all.txt": (TOPIC, [TOMBSTONE, TOMBSTONE]),
    "kcat_J.jsonl": (TOPIC, [TOMBSTONE, NULL]),
    "kcat_J_with_note.txt": (TOPIC, [TOMBSTONE, NULL]),
    "kcat_plain.txt": (TOPIC, [TOMBSTONE]),
    "kcat_key.txt": (TOPIC, [TOMBSTONE, TOMBSTONE]),
    "mitmproxy.har": ([*STREAM, *WHOLE], [REPEATED]),
}


def replayed(data: bytes, tmp_path: Path) -> tuple[list[str], list[str]]:
    """Return records, and what else became of messages and requests."""
    path = tmp_path / "pasted"
    path.write_bytes(data)
    output = io.BytesIO()
    replay = Replay(pipeline(), output)
    replay.run([str(path)], "auto")
    records = [
        f"{record['request_id']} {record['num_accepted_draft_tokens']}/{record['num_draft_tokens']}"
        f" {record['finish_reason']}"
        + (f" {record['incomplete_reason']}" if record["incomplete_reason"] else "")
        for record in map(json.loads, output.getvalue().splitlines())
    ]
    others = [
        f"{outcome}({reason})" if reason else str(outcome)
        for (_, outcome, reason, _), count in replay.totals.items()
        for _ in range(count)
        if outcome not in ("accepted", "published")
    ]
    return records, others


def read(data: bytes, tmp_path: Path) -> list[CapturedMessage]:
    path = tmp_path / "pasted"
    path.write_bytes(data)
    return [*read_capture(str(path), "auto")]


def values(data: bytes, tmp_path: Path) -> list[bytes | None]:
    return [message.value() for message in read(data, tmp_path)]


def sse(*bodies: Json, done: bool = True) -> bytes:
    events = b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies)
    return events + b"data: [DONE]\n\n" * done


def pretty(document: object) -> bytes:
    return json.dumps(document, indent=2).encode()


class TestRealOutputs:
    @pytest.mark.parametrize("compressed", [False, True])
    @pytest.mark.parametrize("name", EXPECTED)
    def test_every_message_is_read_and_nothing_else(
        self, name: str, tmp_path: Path, *, compressed: bool
    ) -> None:
        data = (CAPTURES / name).read_bytes()

        found = replayed(gzip.compress(data) if compressed else data, tmp_path)

        assert found == EXPECTED[name]

    def test_every_sample_is_expected(self) -> None:
        assert {path.name for path in CAPTURES.iterdir()} == EXPECTED.keys()

    def test_the_console_consumer_gives_all_parts_of_a_message(self) -> None:
        first, *_, last = read_capture(str(CAPTURES / "console_all.txt"), "auto")

        assert first.the_key == b"r-1"
        # The consumer escapes nothing, so that the text `a,b:c` in a header reads as two of them.
        assert first.the_headers == [
            ("content-type", b"application/json"),
            ("x-trace", b"a"),
            ("b", b"c"),
        ]
        assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_796_068_800_000)
        assert (last.partition(), last.offset()) == (0, 6)
        assert (last.the_key, last.the_headers) == (None, [])


class TestStreams:
    def test_streams_one_after_another_are_a_message_each(self, tmp_path: Path) -> None:
        one, two = (sse(chunk(i), chunk(i, finish="stop"), last_chunk(i)) for i in ("a", "b"))

        assert values(one + two, tmp_path) == [one, two]

    def test_so_they_are_without_an_end_marker(self, tmp_path: Path) -> None:
        one, two = (
            sse(chunk(i), chunk(i, finish="stop"), last_chunk(i), done=False) for i in ("a", "b")
        )

        assert values(one + two, tmp_path) == [one, two]

    def test_so_they_are_where_an_event_begins_each(self, tmp_path: Path) -> None:
        created = b'event: response.created\ndata: {"type": "response.created"}\n\n'
        completed = b'event: response.completed\ndata: {"type": "response.completed"}\n\n'

        assert values((created + completed) * 2, tmp_path) == [created + completed] * 2

    def test_an_item_of_a_response_begins_no_stream(self, tmp_path: Path) -> None:
        events = [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.in_progress", "response": {"id": "resp_1"}},
            {"type": "response.output_item.added", "item": {"id": "msg_1"}},
            {"type": "response.output_item.done", "item": {"id": "msg_1"}},
            {"type": "response.completed", "response": {"id": "resp_1"}},
        ]
        stream = b"".join(
            b"event: %b\n%b" % (str(event["type"]).encode(), sse(event, done=False))
            for event in events
        )

        assert values(stream, tmp_path) == [stream]

    def test_an_id_that_changes_with_each_chunk_begins_no_stream(self, tmp_path: Path) -> None:
        stream = sse(chunk("a"), chunk("b"), chunk("c", finish="stop"), last_chunk("d"))

        assert values(stream, tmp_path) == [stream]

    def test_of_streams_at_the_same_time_no_numbers_are_exchanged(self, tmp_path: Path) -> None:
        streams = [
            [chunk(i), chunk(i, finish="stop"), last_chunk(i, accepted=accepted)]
            for i, accepted in (("a", 10), ("b", 20))
        ]
        events = (sse(body, done=False) for bodies in zip(*streams, strict=True) for body in bodies)

        records, _ = replayed(b"".join(events), tmp_path)

        assert [record[:4] for record in records] == ["a 10", "b 20"]

    def test_after_a_stream_that_was_cut_off_the_next_one_is_read(self, tmp_path: Path) -> None:
        one, two = sse(chunk("a"), chunk("a"), done=False), sse(chunk("b"), last_chunk("b"))

        assert values(one + two, tmp_path) == [one, two]

    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_comments_and_ids_are_part_of_a_stream(self, end: bytes, tmp_path: Path) -> None:
        stream = (b": ping\n\nevent: x\nid: 1\ndata: {}\n\n: ping\n\n").replace(b"\n", end)

        assert values(stream, tmp_path) == [stream]

    def test_a_line_that_lost_its_field_name_stays_in_it(self, tmp_path: Path) -> None:
        events = sse(chunk(), chunk(finish="stop"), last_chunk())
        begin, _, end = events.rpartition(b"data: {")

        assert values(begin + b"{" + end, tmp_path) == [begin + b"{" + end]

    def test_captured_messages_may_follow(self, tmp_path: Path) -> None:
        stream = sse(chunk())
        line = b'{"topic": "t", "partition": 0, "offset": 5, "payload": "x"}'

        assert values(stream + line, tmp_path) == [stream, b"x"]

    def test_a_stream_that_was_cut_off_is_not_complete(self, tmp_path: Path) -> None:
        stream = sse(chunk(), chunk(finish="stop"), last_chunk(), done=False)

        records, _ = replayed(stream, tmp_path)

        assert records == ["c1 15/24 stop no_terminator"]


class TestCurl:
    def test_a_note_in_mid_line_is_cut_out(self, tmp_path: Path) -> None:
        noted = b'{ [9 bytes data]\ndata: {"id"{ [9 bytes data]\n: 1}\n\n'

        assert values(noted, tmp_path) == [b'data: {"id": 1}\n\n']

    def test_the_command_itself_is_not_a_message(self, tmp_path: Path) -> None:
        typed = b"me@host:~$ curl -N http://vllm/v1/completions \\\n  -d '{\"stream\": true}'\n"

        assert values(typed + b"data: {}\n\n", tmp_path) == [b"data: {}\n\n"]

    def test_of_a_proxy_the_first_response_has_no_body(self, tmp_path: Path) -> None:
        headers = b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/2 200 \r\na: b\r\n\r\n"

        assert values(headers + b'{"a": 1}', tmp_path) == [b'{"a": 1}']

    def test_a_body_without_a_line_end_may_be_before_the_next_headers(self, tmp_path: Path) -> None:
        one = b'HTTP/1.1 200 OK\r\n\r\n{"a": 1}'

        assert values(one + one, tmp_path) == [b'{"a": 1}'] * 2

    def test_a_page_is_one_message(self, tmp_path: Path) -> None:
        page = b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>\r\n<h1>502</h1>\r\n</html>\r\n"

        assert replayed(page * 2, tmp_path) == ([], ["failed_response"] * 2)

    def test_lines_of_messages_that_look_like_its_notes_stay(self, tmp_path: Path) -> None:
        assert values(b"bad\n* bad\n> bad\n< bad\n", tmp_path) == [
            b"bad",
            b"* bad",
            b"> bad",
            b"< bad",
        ]


class TestJson:
    def test_documents_over_several_lines_are_a_message_each(self, tmp_path: Path) -> None:
        one, two = pretty(whole("c1")), pretty(whole("c2"))

        assert values(one + b"\n" + two + b"\n", tmp_path) == [one, two]

    def test_lines_may_be_between_them(self, tmp_path: Path) -> None:
        document = pretty(whole())

        assert values(b"{}\n" + document + b"\n{}\n", tmp_path) == [b"{}", document, b"{}"]

    def test_a_line_may_have_any_number_of_them(self, tmp_path: Path) -> None:
        line = b"{}" * 100_000 + b' [{"a": 1}]{"a": \n2}'

        found = values(line, tmp_path)

        assert found == [*[b"{}"] * 100_000, b' [{"a": 1}]', b'{"a": \n2}']

    def test_brackets_in_strings_are_text(self, tmp_path: Path) -> None:
        document = pretty({"a": '}{"]\\', "b": "\\"})

        assert values(document + b"\n{}", tmp_path) == [document, b"{}"]

    def test_an_array_of_responses_is_one_message(self, tmp_path: Path) -> None:
        array = pretty([whole("c1"), whole("c2")])

        (value,) = values(array, tmp_path)

        assert value is not None
        assert json.loads(value) == json.loads(array)

    @pytest.mark.parametrize("write", [pretty, lambda array: json.dumps(array).encode()])
    def test_an_array_of_captured_messages_is_those(self, write: Any, tmp_path: Path) -> None:
        captured = [
            {"topic": "t", "partition": 0, "offset": n, "payload": f"{{{n}"} for n in range(3)
        ]

        assert values(write(captured), tmp_path) == [b"{0", b"{1", b"{2"]

    def test_a_line_that_was_cut_off_costs_no_other(self, tmp_path: Path) -> None:
        line = json.dumps(whole()).encode()
        cut = [line[:length] for length in range(1, len(line))]

        found = values(b"".join(part + b"\n" + line + b"\n" for part in cut), tmp_path)

        assert found[1::2] == [line] * len(cut)

    def test_a_byte_order_mark_is_no_part_of_them(self, tmp_path: Path) -> None:
        document = pretty(whole())

        assert values(b"\xef\xbb\xbf" + document, tmp_path) == [document]

    def test_utf_16_is_read_as_powershell_writes_it(self, tmp_path: Path) -> None:
        assert values('{"a": "ü"}\r\n'.encode("utf-16"), tmp_path) == ['{"a": "ü"}'.encode()]


class TestConsole:
    def test_a_key_may_be_json(self, tmp_path: Path) -> None:
        (message,) = read(b'{"k": 1}\t{"a": 1}\n', tmp_path)

        assert (message.the_key, message.the_value) == (b'{"k": 1}', b'{"a": 1}')

    def test_json_that_is_indented_with_tabs_has_no_key(self, tmp_path: Path) -> None:
        document = json.dumps({"a": {"b": 1}}, indent="\t").encode()

        assert values(document, tmp_path) == [document]

    def test_a_value_with_a_place_has_all_its_lines(self, tmp_path: Path) -> None:
        place = b"CreateTime:%d\t"

        found = values(place % 1 + b'{"a": 1}\n{"a": 2}\n' + place % 2 + b"other\n\n", tmp_path)

        assert found == [b'{"a": 1}\n{"a": 2}', b"other\n"]

    @pytest.mark.parametrize(
        ("line", "timestamp"),
        [
            (b"LogAppendTime:5\t{}", (2, 5)),
            (b"NO_TIMESTAMP\t{}", (0, -1)),
            (b"CreateTime:-1\t{}", (1, -1)),
        ],
    )
    def test_timestamps(self, line: bytes, timestamp: tuple[int, int], tmp_path: Path) -> None:
        (message,) = read(line, tmp_path)

        assert (message.timestamp(), message.value()) == (timestamp, b"{}")

    def test_its_own_notes_are_not_messages(self, tmp_path: Path) -> None:
        notes = b"Option --property is deprecated and\n", b"Processed a total of 1 messages\n"

        assert values(b"{}\n".join(notes), tmp_path) == [b"{}"]


class TestRpk:
    RECORD: Final[Json] = {
        "topic": "t",
        "key": "k",
        "value": '{"a": 1}',
        "headers": [{"key": "h", "value": "1"}],
        "timestamp": 7,
        "partition": 3,
        "offset": 5,
    }

    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_record_is_the_message(self, indent: int | None, tmp_path: Path) -> None:
        text = json.dumps(self.RECORD, indent=indent).encode() + b"\n"

        assert (
            read(text * 2, tmp_path)
            == [
                CapturedMessage(
                    at_topic="t",
                    at_partition=3,
                    at_offset=5,
                    the_key=b"k",
                    the_value=b'{"a": 1}',
                    the_headers=[("h", b"1")],
                    timestamp_type=TIMESTAMP_CREATE_TIME,
                    timestamp_ms=7,
                )
            ]
            * 2
        )

    def test_without_a_value_it_is_a_tombstone(self, tmp_path: Path) -> None:
        place = {name: self.RECORD[name] for name in ("topic", "partition", "offset", "timestamp")}

        assert values(json.dumps(place).encode(), tmp_path) == [None]

    @pytest.mark.parametrize(
        ("members", "why"),
        [
            ({"value_size": 7}, "rpk wrote no value; capture it without --meta-only"),
            ({"headers": [{}]}, "damaged record of rpk: "),
            ({"offset": -1}, "damaged record of rpk: "),
        ],
    )
    def test_a_record_that_is_not_whole_is_refused(
        self, members: Json, why: str, tmp_path: Path
    ) -> None:
        with pytest.raises(CaptureError, match=f"pasted:1: {why}"):
            read(json.dumps(self.RECORD | members).encode(), tmp_path)


def har(*contents: Json, **members: Any) -> bytes:
    entries = [{"response": {"content": content}} | members for content in contents]
    return pretty({"log": {"version": "1.2", "entries": entries}})


class TestHar:
    def test_base64_is_decoded(self, tmp_path: Path) -> None:
        body = sse(chunk())
        content = {"text": b64encode(body).decode(), "encoding": "base64"}

        assert values(har(content), tmp_path) == [body]

    def test_what_no_engine_answers_is_left_out(self, tmp_path: Path) -> None:
        page = {"mimeType": "text/html", "text": "<html>"}
        answer = {"mimeType": "application/json; charset=utf-8", "text": "{}"}

        assert values(har(page, answer, {"mimeType": "application/json"}, {}), tmp_path) == [b"{}"]

    @pytest.mark.parametrize(
        ("started", "milliseconds", "expected"),
        [
            ("2026-12-01T00:00:00.500Z", 250, (1, 1_796_083_200_750)),
            ("2026-12-01T01:00:00.000+01:00", -1, (1, 1_796_083_200_000)),
            ("yesterday", 1, (0, -1)),
            (5, 1, (0, -1)),
        ],
    )
    def test_the_time_of_a_message_is_the_end_of_its_response(
        self, started: Any, milliseconds: float, expected: tuple[int, int], tmp_path: Path
    ) -> None:
        (message,) = read(har({"text": "{}"}, startedDateTime=started, time=milliseconds), tmp_path)

        assert message.timestamp() == expected

    def test_a_damaged_one_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CaptureError, match=r"pasted:1: damaged HAR file: .* `\$\.response"):
            read(har({"text": 5}), tmp_path)


class TestAiperf:
    RECORD: Final[Json] = {
        "metadata": {"x_request_id": "x1", "request_end_ns": 1_796_070_775_248_129_619},
        "start_perf_ns": 5,
        "status": 200,
        "responses": [{"perf_ns": 6, "text": json.dumps(whole())}],
    }

    def test_a_record_has_the_request_id_of_aiperf(self, tmp_path: Path) -> None:
        assert replayed(json.dumps(self.RECORD).encode(), tmp_path) == (["x1 15/24 stop"], [])

    def test_a_request_that_failed_has_no_record(self, tmp_path: Path) -> None:
        failed = self.RECORD | {
            "status": None,
            "responses": [],
            "error": {"code": 500, "type": "Internal", "message": "no"},
        }

        assert replayed(json.dumps(failed).encode(), tmp_path) == ([], ["failed_response"])


@pytest.mark.parametrize("kind", ["lines", "array", "streams", "documents"])
def test_memory_does_not_grow_with_the_capture(kind: str, tmp_path: Path) -> None:
    line = native(body=whole())
    record = {"topic": "t", "partition": 0, "offset": 5, "payload": line.decode()}
    one = {
        "lines": json.dumps(record).encode() + b"\n",
        "array": pretty(record) + b",\n",
        "streams": sse(chunk(), last_chunk()),
        "documents": pretty(record) + b"\n",
    }[kind]
    path = tmp_path / "large"
    path.write_bytes(b"[\n" * (kind == "array") + one * (2_000_000 // len(one)))

    tracemalloc.start()
    count = sum(1 for _ in read_capture(str(path), "auto"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 2_000_000 // len(one)
    assert peak < 500_000


PARTS: Final = [
    b"data: {}\n\n",
    b"data: [DONE]\n\n",
    b": ping\n",
    b"HTTP/1.1 200 OK\r\n",
    b"content-encoding: br\r\n",
    b"\r\n",
    b"{ [9 bytes data]\n",
    b"* note\n",
    b"< a: b\n",
    b"\r100   560    0   525  100    35    654     43 --:--:-- --:--:-- --:--:--   698",
    b"$ curl -N \\\n",
    b"CreateTime:5\t",
    b"Partition:0\tOffset:7\t",
    b"NO_HEADERS\tkey\t",
    b"null\n",
    b'{"topic": "t", "partition": 0, "offset": 5, "payload": "x"}',
    b'{"log": {"entries": []}}',
    b'"a\\"}{["',
    b"<html>\n",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\n",
    b"\t",
    b"\xff\xfe\x00",
]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join))
@settings(deadline=None)
def test_whatever_is_pasted_is_read_or_refused_in_words(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(CaptureError):
        read(data, Path(folder))


@given(
    st.lists(st.sampled_from([b"{", b"}", b"[", b"]", b",\n", b"\n", b'"a"', b" "]), max_size=20)
)
@settings(deadline=None)
def test_of_json_no_byte_is_lost_but_white_space_and_commas(parts: list[bytes]) -> None:
    data = b"".join(parts)

    with tempfile.TemporaryDirectory() as folder:
        found = b"".join(value or b"" for value in values(data, Path(folder)))

    assert found.translate(None, b" ,\n") == data.translate(None, b" ,\n")
