"""The pipeline on captures: what is written of messages and requests, and in which order."""

import errno
import io
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from consumer.commands.captures.files import read_capture
from consumer.commands.captures.messages import CaptureError
from consumer.commands.exit_codes import OutputError
from consumer.commands.replay import Replay
from schemas import published
from tests.paths import SAMPLES
from tests.unit.core import samples
from tests.unit.core.made import chunk, last_chunk, native, pipeline, whole

Json = dict[str, Any]

BEGIN_MS = 1_767_225_600_000
VALID = Draft202012Validator(published.schema("acceptance-record")).is_valid


class Replayed:
    """What a replay has written."""

    def __init__(self, *names: object, **options: Any) -> None:
        records, outcomes = io.BytesIO(), io.BytesIO()
        replay = Replay(pipeline(**options), records, outcomes)
        replay.run(map(str, names), "auto")
        self.written = records.getvalue(), outcomes.getvalue()
        self.totals = replay.totals
        self.records, self.outcomes = map(as_json, self.written)

    @property
    def requests(self) -> list[str]:
        """The outcomes of requests, as the summary puts them."""
        return [short(line) for line in self.outcomes if line["kind"] == "request"]

    @property
    def messages(self) -> list[str]:
        return [short(line) for line in self.outcomes if line["kind"] == "message"]


def as_json(lines: bytes) -> list[Json]:
    return [json.loads(line) for line in lines.splitlines()]


def short(line: Json) -> str:
    return f"{line['outcome']}({line['reason']})" if line["reason"] else line["outcome"]


def kcat(value: bytes | None, offset: int, *, partition: int = 0, topic: str = "t") -> Json:
    """Return a message as kcat shows it, a millisecond per offset after the beginning."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "tstype": "create",
        "ts": BEGIN_MS + offset,
        "broker": 1,
        "key": None,
        "payload": None if value is None else value.decode(),
    }


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return tmp_path / "capture.jsonl"


def write(path: Path, messages: Iterable[Json]) -> Path:
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    return path


def stream(request_id: str = "r1", *, end: bool = True) -> list[bytes]:
    """Return the events of a streamed request."""
    bodies: list[Json | str] = [chunk(), chunk(finish="stop"), last_chunk()]
    events = [native(request_id, sequence=n, body=body) for n, body in enumerate(bodies)]
    return [*events, native(request_id, sequence=3, body="[DONE]", final=True)] if end else events


class TestRecords:
    @pytest.mark.parametrize("folder", ["engines", "fleet"])
    def test_whatever_is_replayed_a_record_is_valid_and_every_message_has_its_outcome(
        self, folder: str
    ) -> None:
        names = [SAMPLES / name for name in samples.names() if name.startswith(folder)]
        replayed = Replayed(*names)

        assert len(replayed.records) > 10
        assert all(map(VALID, replayed.records))
        assert replayed.requests.count("published") == len(replayed.records)
        assert len(replayed.messages) == sum(
            len([*read_capture(str(name), "auto")]) for name in names
        )

    def test_a_record_says_where_its_events_were(self, capture: Path) -> None:
        write(capture, [kcat(event, 10 + n, partition=2) for n, event in enumerate(stream())])

        (record,) = Replayed(capture, fleet="f").records

        assert record["num_accepted_draft_tokens"] == 15
        assert record["request_id"] == "r1"
        assert record["stream_complete"] is True
        assert record["record_id"] == f"f/t/2/10/0/{BEGIN_MS + 10}"
        assert (record["source_first_offset"], record["source_last_offset"]) == (10, 13)

    def test_the_same_capture_gives_the_same_bytes(self) -> None:
        names = [SAMPLES / name for name in samples.names()]

        assert Replayed(*names).written == Replayed(*names).written

    def test_they_come_in_the_order_in_which_requests_end(self, capture: Path) -> None:
        slow, fast = stream("slow"), stream("fast")
        order = [slow[0], *fast, *slow[1:]]
        write(capture, [kcat(event, n) for n, event in enumerate(order)])

        assert [r["request_id"] for r in Replayed(capture).records] == ["fast", "slow"]

    def test_partitions_are_kept_apart_and_their_records_come_as_they_end(
        self, capture: Path
    ) -> None:
        """The same request id on two partitions is two requests."""
        events = stream()
        one, two = ([kcat(e, n, partition=p) for n, e in enumerate(events)] for p in (1, 0))
        write(capture, [*one[:2], *two[:1], *one[2:], *two[1:]])

        replayed = Replayed(capture)

        assert [r["source_partition"] for r in replayed.records] == [1, 0]
        assert replayed.messages == ["accepted"] * 8

    def test_so_are_topics(self, capture: Path) -> None:
        messages = [kcat(native(body=whole()), 0, topic=topic) for topic in ("b", "a")]

        records = Replayed(write(capture, messages)).records

        assert [record["source_topic"] for record in records] == ["b", "a"]


class TestEndOfInput:
    def test_what_is_open_is_closed_as_by_its_timeout(self, capture: Path) -> None:
        with_numbers, without = stream("with", end=False), stream("without")[:1]
        write(capture, [kcat(event, n) for n, event in enumerate([*without, *with_numbers])])

        replayed = Replayed(capture)

        assert replayed.requests == ["incomplete(idle_timeout)", "published"]
        (record,) = replayed.records
        assert record["request_id"] == "with"
        assert record["stream_complete"] is False
        assert record["incomplete_reason"] == "idle_timeout"
        assert VALID(record)

    def test_it_is_so_on_every_partition_in_the_order_of_their_first_messages(
        self, capture: Path
    ) -> None:
        messages = [kcat(native(body=last_chunk()), 0, partition=p) for p in (7, 0, 3)]

        records = Replayed(write(capture, messages)).records

        assert [record["source_partition"] for record in records] == [7, 0, 3]

    def test_a_timeout_within_the_capture_comes_at_its_place(self, capture: Path) -> None:
        """Stream time moves in blocks of offsets; 19 of them agree that the minutes passed."""
        abandoned = kcat(native("abandoned", body=last_chunk()), 0)
        later = [kcat(native(f"r{n}", body=whole(f"c{n}")), n) for n in range(1, 1_000)]
        for message in later:
            message["ts"] += 10_000 * message["offset"]

        records = Replayed(write(capture, [abandoned, *later])).records

        order = [record["request_id"] for record in records]
        assert 0 < order.index("abandoned") < len(order) - 1

    def test_an_empty_capture_gives_nothing(self, capture: Path) -> None:
        capture.touch()

        replayed = Replayed(capture)

        assert replayed.written == (b"", b"")
        assert not replayed.totals


class TestOffsets:
    def test_where_they_go_back_another_capture_begins(self, capture: Path) -> None:
        """Open requests end, messages that come again are not repeats, and record ids agree."""
        events = [native("open", body=last_chunk()), native("whole", body=whole("c2"))]
        messages = [kcat(event, n) for n, event in enumerate(events)]
        write(capture, [*messages, *messages])

        replayed = Replayed(capture)

        ids = [record["request_id"] for record in replayed.records]
        assert ids == ["whole", "open", "whole", "open"]
        assert len({record["record_id"] for record in replayed.records}) == 2
        assert replayed.messages == ["accepted"] * 4

    def test_where_they_go_on_repeats_are_such(self, capture: Path) -> None:
        messages = [kcat(native(body=whole()), offset) for offset in (0, 5)]

        assert Replayed(write(capture, messages)).messages == [
            "accepted",
            "skipped(repeated_response)",
        ]

    def test_they_may_leave_gaps_and_the_stream_goes_on_in_the_next_file(
        self, tmp_path: Path
    ) -> None:
        one, two, three, four = stream()
        first = write(tmp_path / "1", [kcat(one, 3), kcat(two, 90)])
        second = write(tmp_path / "2", [kcat(three, 91), kcat(four, 4_000)])

        assert Replayed(first, second).requests == ["published"]

    def test_bare_values_have_one_numbering_over_all_files(self, tmp_path: Path) -> None:
        for name, body_id in (("1", "a"), ("2", "b")):
            (tmp_path / name).write_bytes(json.dumps(whole(body_id)).encode() + b"\nbad\n")

        replayed = Replayed(tmp_path / "1", tmp_path / "2")

        assert [line["offset"] for line in replayed.outcomes] == [0, 0, 1, 2, 2, 3]
        assert {line["topic"] for line in replayed.outcomes} == {"capture"}
        assert len({record["record_id"] for record in replayed.records}) == 2


class TestOutcomes:
    def test_each_message_has_its_line_before_those_of_the_requests_that_it_ends(
        self, capture: Path
    ) -> None:
        values = [*stream(), b"bad", None]
        write(capture, [kcat(value, n, partition=4) for n, value in enumerate(values, 20)])
        place = {"topic": "t", "partition": 4}
        message = {"kind": "message", **place, "request_id": None}
        accepted = {**message, "outcome": "accepted", "reason": None}

        outcomes = Replayed(capture).outcomes

        assert outcomes == [
            {**accepted, "offset": 20},
            {**accepted, "offset": 21},
            {**accepted, "offset": 22},
            {**accepted, "offset": 23},
            {
                "kind": "request",
                "outcome": "published",
                "reason": None,
                **place,
                "offset": 20,
                "request_id": "r1",
            },
            {**message, "outcome": "bad_payload", "reason": "unrecognised_format", "offset": 24},
            {**message, "outcome": "skipped", "reason": "tombstone", "offset": 25},
        ]

    def test_totals_count_the_lines(self) -> None:
        replayed = Replayed(*(SAMPLES / name for name in samples.names()))

        assert replayed.totals == Counter(
            (line["kind"], line["outcome"], line["reason"], ()) for line in replayed.outcomes
        )
        assert {outcome for _, outcome, *_ in replayed.totals} > {"published", "bad_payload"}

    def test_a_message_of_several_events_has_one_line(self) -> None:
        replayed = Replayed(SAMPLES / "fleet/records/ce_batch.json")

        assert len(replayed.messages) == 1
        assert len(replayed.requests) > 1

    def test_they_need_not_be_written(self, capture: Path) -> None:
        capture.write_bytes(b"bad\n")
        replay = Replay(pipeline(), io.BytesIO())

        replay.run([str(capture)], "auto")

        assert replay.totals == {("message", "bad_payload", "unrecognised_format", ()): 1}


class Full(io.BytesIO):
    """A file on a disk without room, which shows when it is written or, being buffered, flushed."""

    def __init__(self, *, buffered: bool) -> None:
        super().__init__()
        self._buffered = buffered

    def write(self, data: Any) -> int:
        if self._buffered:
            return len(data)
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class TestFailures:
    @pytest.mark.parametrize("buffered", [False, True])
    def test_errors_of_outcomes_differ_from_errors_of_records(
        self, capture: Path, *, buffered: bool
    ) -> None:
        write(capture, [kcat(native(body=whole()), 0)])
        full = Full(buffered=buffered)

        with pytest.raises(OutputError, match=r"^outcomes cannot be written: No space left"):
            Replay(pipeline(), io.BytesIO(), full).run([str(capture)], "auto")
        with pytest.raises(OSError, match="No space left"):
            Replay(pipeline(), full).run([str(capture)], "auto")

    def test_records_of_files_before_one_that_cannot_be_read_are_written(
        self, capture: Path
    ) -> None:
        records = io.BytesIO()
        write(capture, [kcat(native(body=whole()), 0)])

        with pytest.raises(CaptureError, match=r"missing: No such file"):
            Replay(pipeline(), records).run([str(capture), f"{capture}.missing"], "auto")

        assert len(as_json(records.getvalue())) == 1
