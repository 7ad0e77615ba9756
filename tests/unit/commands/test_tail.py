"""What is followed: records and letters that are row_filter, as lines, as JSON, as a table."""

import io
import json
import re

import msgspec
import pytest
from rich.console import Console

from consumer.commands.tail import JsonRows, LiveTable, PlainRows, Row, RowFilter, row_of
from consumer.core.dead_letters import letter_of_message
from consumer.core.message import CapturedMessage
from consumer.core.records import Origin
from consumer.settings.settings import Settings
from schemas import MessageOutcome, PublishedRecord
from tests.unit.core.made import TOPIC, encode, message, native, outcomes_of, whole

SETTINGS = Settings(output_topic="records", dead_letter_topic="dead")
ORIGIN = Origin("local", TOPIC, 0, {})
ALL = frozenset({"published", "bad_payload"})


def record(**changes: object) -> PublishedRecord:
    (result,) = outcomes_of([native("req-1", body=whole())])
    assert result.record is not None
    return msgspec.structs.replace(result.record, **changes)


def published(**changes: object) -> CapturedMessage:
    return CapturedMessage(at_topic="records", the_value=encode(record(**changes)))


def letter() -> CapturedMessage:
    bad = message(b'{"prompt": "canary"', 7)
    outcome = MessageOutcome.BAD_PAYLOAD
    content = letter_of_message(bad, outcome, "invalid_json", None, ORIGIN, None)
    return CapturedMessage(
        at_topic="dead", the_value=encode(content), timestamp_type=1, timestamp_ms=1_767_225_601_000
    )


def row(of: CapturedMessage, row_filter: RowFilter | None = None) -> Row:
    found = row_of(of, SETTINGS, row_filter or RowFilter(ALL))
    assert found is not None
    return found


class TestRows:
    def test_a_record_shows_its_numbers_and_where_it_came_from(self) -> None:
        assert row(published()).columns == (
            "00:00:00",
            "published",
            "vllm",
            "demo-8b",
            "req-1",
            "0.625",
            "2.88",
            "15/24",
            "8",
            f"{TOPIC}:0:0",
        )

    def test_what_is_not_known_is_a_dash(self) -> None:
        unknown = row(published(completed_at=None, model=None, num_draft_tokens=None))

        assert (unknown.columns[0], unknown.columns[3], unknown.columns[7]) == ("-", "-", "15/-")

    def test_a_record_that_is_not_complete_says_why(self) -> None:
        assert row(published(incomplete_reason="gap")).columns[1] == "published(gap)"

    def test_a_letter_shows_its_reason_and_source_and_no_payload(self) -> None:
        shown = row(letter())

        assert shown.columns[:2] == ("00:00:01", "bad_payload(invalid_json)")
        assert shown.columns[-1] == f"{TOPIC}:0:7"
        assert shown.content["value_base64"] is None

    @pytest.mark.parametrize(
        ("row_filter", "passes"),
        [
            (RowFilter(ALL), True),
            (RowFilter(frozenset({"bad_payload"})), False),
            (RowFilter(ALL, models=frozenset({"demo-8b"})), True),
            (RowFilter(ALL, models=frozenset({"other"})), False),
            (RowFilter(ALL, engines=frozenset({"vllm", "sglang"})), True),
            (RowFilter(ALL, engines=frozenset({"sglang"})), False),
        ],
    )
    def test_records_pass_a_filter(self, row_filter: RowFilter, *, passes: bool) -> None:
        assert (row_of(published(), SETTINGS, row_filter) is not None) is passes

    @pytest.mark.parametrize(
        ("row_filter", "passes"),
        [
            (RowFilter(ALL), True),
            (RowFilter(frozenset({"published"})), False),
            (RowFilter(ALL, models=frozenset({"demo-8b"})), False),
        ],
    )
    def test_letters_pass_a_filter(self, row_filter: RowFilter, *, passes: bool) -> None:
        assert (row_of(letter(), SETTINGS, row_filter) is not None) is passes

    @pytest.mark.parametrize("value", [None, b"", b"{}", b"no record", b'{"stats":' + b"[" * 9_999])
    def test_what_is_neither_is_passed_over(self, value: bytes | None) -> None:
        for topic in ("records", "dead"):
            strange = CapturedMessage(at_topic=topic, the_value=value)
            assert row_of(strange, SETTINGS, RowFilter(ALL)) is None


class TestViews:
    def test_lines_are_aligned_below_their_titles(self) -> None:
        out = io.StringIO()

        view = PlainRows(out)
        view.write(row(published()))
        view.write(row(letter()))

        titles, first, second = out.getvalue().splitlines()
        for title, cell in (("outcome", "published"), ("source", f"{TOPIC}:0:0")):
            assert first.index(cell) == titles.index(title)
        assert second.index("bad_payload") == titles.index("outcome")
        assert first.index("0.625") + len("0.625") == titles.index("rate") + len("rate")

    def test_names_that_are_too_long_leave_lines_aligned(self) -> None:
        out = io.StringIO()

        view = PlainRows(out)
        view.write(row(published(model="m" * 40, request_id="r" * 80)))

        titles, line = out.getvalue().splitlines()
        assert line.index(f"{TOPIC}:0:0") == titles.index("source")
        assert "m" * 23 + "…  " + "r" * 35 + "…" in line

    def test_json_is_the_record(self) -> None:
        out = io.StringIO()

        JsonRows(out).write(row(published()))

        assert json.loads(out.getvalue()) == json.loads(encode(record()))

    @pytest.mark.parametrize("width", [80, 100, 160])
    def test_a_terminal_shows_the_latest_rows_that_fit(self, width: int) -> None:
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=width, height=12)

        view = LiveTable(console)
        for number in range(20):
            view.write(row(published(request_id=f"req-{number}")))
        view.close()

        # The last drawing, without the codes that move the cursor and colour it.
        drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).rpartition("time, UTC ")[2]
        assert re.findall(r"req-\d+", drawn) == [f"req-{number}" for number in range(14, 20)]
        assert "20 rows" in drawn
        assert all(len(line) <= width for line in drawn.splitlines())

    def test_names_of_strangers_do_not_reach_the_terminal_as_commands(self) -> None:
        out = io.StringIO()

        PlainRows(out).write(row(published(model="\x1b[2Jdemo\n")))

        assert "\x1b" not in out.getvalue()
        assert len(out.getvalue().splitlines()) == 2
