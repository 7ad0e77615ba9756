"""Dead letters become the messages and requests that they are about, or an obstacle."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from consumer.commands.dead_letters.letters import (
    REDRIVEN_HEADER,
    LetterFilter,
    LetterTopic,
    group_letters,
)
from consumer.commands.dead_letters.reprocess import (
    Obstacle,
    RestoredMessage,
    find_message_obstacle,
    is_source,
    messages_by_request,
    reprocess,
    reprocess_together,
    restore,
)
from consumer.commands.topic_reader import group_nearby
from consumer.core.dead_letters import letter_of_message, letter_of_request
from consumer.core.message import CapturedMessage, Headers
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Pipeline
from consumer.core.reassembly.limits import Limits
from consumer.core.records import Origin
from schemas import DeadLetter, MessageOutcome
from tests.unit.core.made import (
    BEGIN_MS,
    TOPIC,
    chunk,
    cloudevent,
    encode,
    last_chunk,
    message,
    native,
    pipeline,
    whole,
)
from tests.unit.core.random_log import RandomLog

ORIGIN = Origin("local", TOPIC, 0, {})
PLACE = ("dead", 0, 0)
BAD = message(b"{", 7, key=b"k", headers=[("kept", b"x"), ("authorization", b"y"), ("null", None)])


def letter_of(
    bad: CapturedMessage = BAD, reason: str = "invalid_json", *, reference: bool = False
) -> DeadLetter:
    outcome = MessageOutcome.BAD_PAYLOAD
    return letter_of_message(bad, outcome, reason, None, ORIGIN, bad.headers(), reference=reference)


def written(content: DeadLetter, offset: int = 0, at: int = 0) -> CapturedMessage:
    """Return a letter as it lies on its topic."""
    return CapturedMessage(
        at_topic="dead",
        at_offset=offset,
        the_value=encode(content),
        timestamp_type=1,
        timestamp_ms=BEGIN_MS + at,
    )


def notice(content: DeadLetter) -> CapturedMessage:
    headers: Headers = [(REDRIVEN_HEADER, content.record_id.encode())]
    return CapturedMessage(at_topic="dead", at_offset=99, the_headers=headers)


def bad_at(offset: int, reason: str = "invalid_json") -> DeadLetter:
    return letter_of(message(b"{", offset), reason)


class TestLetters:
    def test_those_that_were_redriven_are_marked(self) -> None:
        first, second = bad_at(1), bad_at(2)

        found = LetterTopic([written(first), written(second, 1), notice(second)]).select(
            LetterFilter()
        )

        assert [letter.redriven for letter in found] == [False, True]

    def test_one_that_was_written_twice_is_one(self) -> None:
        twice = bad_at(1)

        (found,) = LetterTopic([written(twice), written(twice, 1)]).select(LetterFilter())

        assert found.place == ("dead", 0, 1)

    def test_what_is_no_letter_is_counted(self) -> None:
        foreign = [CapturedMessage(the_value=value) for value in (b"{", b"", b"{}")]

        letters = LetterTopic([*foreign, written(bad_at(1))])

        assert (letters.foreign, len(letters.select(LetterFilter()))) == (3, 1)

    def test_one_that_is_nested_without_end_or_of_another_version_is_none(self) -> None:
        deep = encode(bad_at(1)).replace(b'"stats":null', b'"stats":{"a":' + b"[" * 9_999)
        newer = encode(msgspec.structs.replace(bad_at(1), schema_version=2))
        foreign = [CapturedMessage(the_value=value) for value in (deep, newer)]

        assert LetterTopic(foreign).foreign == 2

    def test_payloads_are_not_kept(self) -> None:
        (found,) = LetterTopic([written(letter_of())]).select(LetterFilter())

        assert (found.content.value_base64, found.content.headers) == (None, None)

    @pytest.mark.parametrize(
        ("wanted", "offsets"),
        [
            (LetterFilter(), [1, 2, 3]),
            (LetterFilter(kind="message"), [1, 2, 3]),
            (LetterFilter(kind="request"), []),
            (LetterFilter(outcomes=("malformed_stats",)), []),
            (LetterFilter(reasons=("too_deep", "invalid_event")), [2, 3]),
            (LetterFilter(since=BEGIN_MS + 20), [2, 3]),
            (LetterFilter(until=BEGIN_MS + 20), [1]),
            (LetterFilter(place=(TOPIC, 0, 2)), [2]),
            (LetterFilter(place=("dead", 0, 2)), [3]),
        ],
    )
    def test_a_filter_lets_pass_what_is_wanted(
        self, wanted: LetterFilter, offsets: list[int]
    ) -> None:
        reasons = ("invalid_json", "too_deep", "invalid_event")
        contents = [bad_at(n, reason) for n, reason in enumerate(reasons, 1)]
        letters = LetterTopic(written(one, n, 10 * (n + 1)) for n, one in enumerate(contents))

        found = letters.select(wanted)

        assert [letter.content.source_first_offset for letter in found] == offsets


class TestGroups:
    def test_the_most_frequent_comes_first_with_its_times_and_what_is_left_of_it(self) -> None:
        contents = [bad_at(1, "too_deep"), bad_at(2), bad_at(3), bad_at(4)]
        letters = LetterTopic(
            [*(written(one, n, n) for n, one in enumerate(contents)), notice(contents[3])]
        )

        often, once = group_letters(letters.select(LetterFilter()))

        assert (often.reason, often.count, often.redriven) == ("invalid_json", 3, 1)
        assert (often.first, often.last) == (BEGIN_MS + 1, BEGIN_MS + 3)
        assert often.example == (TOPIC, 0, 3)
        assert (once.reason, once.count) == ("too_deep", 1)


class TestRestored:
    def test_it_is_the_message_without_the_headers_that_were_masked(self) -> None:
        made = restore(letter_of())

        assert isinstance(made, RestoredMessage)
        assert made.missing == "the header authorization was masked"
        assert made.message == msgspec.structs.replace(
            BAD, the_headers=[("kept", b"x"), ("null", None)]
        )

    def test_nothing_lacks_where_nothing_was_masked(self) -> None:
        plain = message(b"{", 7, headers=[("kept", b"x")])

        assert restore(letter_of(plain)) == RestoredMessage(plain)

    @pytest.mark.parametrize(
        "content",
        [letter_of(reference=True), letter_of(message(b"{" + b"x" * (1 << 20)))],
    )
    def test_it_is_refused_where_bytes_are_missing(self, content: DeadLetter) -> None:
        made = restore(content)

        assert made == Obstacle(
            "the source message was deleted, and the letter does not hold all of its bytes"
        )

    @pytest.mark.parametrize(
        "damage", [{"value_base64": "!"}, {"value_base64": "e30="}, {"key_base64": "\xe9"}]
    )
    def test_it_is_refused_where_bytes_are_others(self, damage: dict[str, str]) -> None:
        made = restore(msgspec.structs.replace(letter_of(), **damage))

        assert made == Obstacle("the source message was deleted, and the letter is damaged")

    @pytest.mark.parametrize("timestamp", [-1, 1 << 70])
    def test_a_time_that_no_message_has_is_left_out(self, timestamp: int) -> None:
        made = restore(msgspec.structs.replace(letter_of(), source_timestamp=timestamp))

        assert isinstance(made, RestoredMessage)
        assert made.message.timestamp() == (0, -1)

    def test_missing_parts_of_key_and_headers_are_named(self) -> None:
        long_key = message(b"{", key=b"k" * 2000)
        content = msgspec.structs.replace(letter_of(long_key), headers=None)

        made = restore(content)

        assert isinstance(made, RestoredMessage)
        assert made.missing == "the key may be truncated; the letter does not hold the headers"

    @pytest.mark.parametrize("headers", [[("one", b"x" * 5_000)], [("many", b"x")] * 65])
    def test_truncated_headers_are_named(self, headers: Headers) -> None:
        made = restore(letter_of(message(b"{", headers=headers)))

        assert isinstance(made, RestoredMessage)
        assert made.missing == "the headers may be truncated"

    @pytest.mark.parametrize(("value", "same"), [(b"{", True), (b"}", False), (b"{{", False)])
    def test_the_source_is_known_by_size_and_digest(self, value: bytes, *, same: bool) -> None:
        assert is_source(letter_of(), message(value, 7)) is same


class TestMessageObstacle:
    def test_what_can_be_read_now_is_not_refused(self) -> None:
        home_made = message(encode({"trace": "t", "answer": whole()}))
        paths = {"request_id": "trace", "body": "answer"}

        assert find_message_obstacle(pipeline(paths=paths), home_made) is None
        assert find_message_obstacle(pipeline(), home_made) == Obstacle(
            "the outcome is still bad_payload(unrecognised_shape)"
        )

    def test_what_the_settings_still_pass_over_is(self) -> None:
        core = pipeline(skip=frozenset({(TOPIC, 0, 7)}))

        assert find_message_obstacle(core, message(encode(whole()), 7)) == Obstacle(
            "the setting skip names the message"
        )

    def test_a_message_that_crashes_the_core_is_not_redriven(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError

        core = pipeline()
        monkeypatch.setattr(core.opener, "open", broken)

        assert find_message_obstacle(core, BAD) == Obstacle(
            "the message crashes the service: ZeroDivisionError"
        )


def results_of(core: Pipeline, messages: list[CapturedMessage]) -> list[RequestResult]:
    partition = core.partition(TOPIC, 0, 0)
    for one in messages:
        partition.feed(one)
    partition.close_all()
    return partition.drain()


def outcome_of(result: RequestResult) -> tuple[object, ...]:
    return result.outcome, result.reason, result.record, result.response.place


class TestReprocess:
    @pytest.mark.parametrize("seed", range(12))
    def test_any_request_of_any_log_has_the_outcome_of_an_undisturbed_pass(self, seed: int) -> None:
        made = RandomLog(seed)
        core = pipeline(Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000))

        for result in results_of(core, made.messages):
            content = letter_of_request(result, ORIGIN)
            assert reprocess(core, content, made.messages) == result

    def test_no_more_is_read_than_it_takes(self) -> None:
        values = [
            native(sequence=0, body=chunk()),
            native(sequence=1, body=last_chunk(), final=True),
        ]
        known = [message(value, offset) for offset, value in enumerate([*values, *values])]
        (result, *_) = results_of(pipeline(), known)
        left = iter(known)

        assert reprocess(pipeline(), letter_of_request(result, ORIGIN), left) == result
        assert [one.offset() for one in left] == [2, 3]

    def test_messages_before_the_first_one_cannot_take_its_place(self) -> None:
        """Read without the list, the tail of another request of that id would swallow it."""
        tail = native(body=chunk("c0"))
        known = [
            message(tail),
            message(native(body=chunk()), 1),
            message(native(body=last_chunk()), 2),
        ]
        content = letter_at(1)

        result = reprocess(pipeline(), content, known)

        assert result is not None
        assert result.response.place == (1, 0)
        assert result.record is not None

    def test_a_deleted_first_message_gives_the_reason_retention(self) -> None:
        known = [message(native("other", body=whole()), 8)]

        result = reprocess(pipeline(), letter_at(7), known)

        assert result is not None
        assert result.reason == "retention"

    def test_without_messages_there_is_no_result(self) -> None:
        assert reprocess(pipeline(), letter_at(7), []) is None


def letter_at(offset: int, last: int | None = None, index: int = 0) -> DeadLetter:
    """Return a letter of a request that began at an offset."""
    (result, *_) = results_of(pipeline(), [message(native(body=whole()), offset)])
    changes: dict[str, Any] = {"source_last_offset": last or offset, "source_index": index}
    return msgspec.structs.replace(letter_of_request(result, ORIGIN), **changes)


class TestReprocessTogether:
    @pytest.mark.parametrize("seed", range(12))
    def test_all_requests_of_any_log_have_the_outcomes_of_an_undisturbed_pass(
        self, seed: int
    ) -> None:
        made = RandomLog(seed)
        core = pipeline(Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000))
        results = results_of(core, made.messages)
        contents = [letter_of_request(result, ORIGIN) for result in results]

        found = reprocess_together(core, contents, made.messages)

        assert [outcome_of(found[content.record_id]) for content in contents] == list(
            map(outcome_of, results)
        )

    def test_one_that_another_took_the_place_of_is_left_to_be_asked_for_alone(self) -> None:
        tail = native(body=chunk("c0"))
        known = [
            message(tail),
            message(native(body=chunk()), 1),
            message(native(body=last_chunk()), 2),
        ]

        assert reprocess_together(pipeline(), [letter_at(1, 2)], known) == {}

    def test_little_more_is_read_than_it_takes(self) -> None:
        known = [message(native(str(n), body=whole()), n) for n in range(2_000)]
        left = iter(known)
        content = letter_of_request(results_of(pipeline(), known)[7], ORIGIN)

        found = reprocess_together(pipeline(), [content], left)

        assert [result.response.place for result in found.values()] == [(7, 0)]
        assert len(list(left)) > 1_000


class TestNearbyRanges:
    def test_what_is_near_is_read_at_once(self) -> None:
        spans = [("b", 0, 5, 9), ("a", 0, 5_000, 5_001), ("a", 1, 0, 0), ("a", 0, 1, 3_500)]

        assert list(group_nearby(spans, lambda span: span)) == [
            [("a", 0, 1, 3_500), ("a", 0, 5_000, 5_001)],
            [("a", 1, 0, 0)],
            [("b", 0, 5, 9)],
        ]

    def test_what_is_far_is_not(self) -> None:
        spans = [("a", 0, 0, 0), ("a", 0, 9_000, 9_000)]

        assert list(group_nearby(spans, lambda span: span)) == [spans[:1], spans[1:]]


class TestParts:
    def test_they_are_the_messages_of_the_request_and_no_others(self) -> None:
        mine, other = native("mine", body=chunk()), native("other", body=chunk())
        known = [message(value, n) for n, value in enumerate([mine, other, b"{", mine])]

        content = letter_at(0, 3)
        found = messages_by_request(pipeline(), [content], known)

        assert [one.offset() for one in found[content.record_id]] == [0, 3]

    def test_of_a_batch_the_entry_decides(self) -> None:
        batch = encode([cloudevent(id="a", data=whole()), cloudevent(id="b", data=whole())])
        headers: Headers = [("content-type", b"application/cloudevents-batch+json")]
        again = [
            message(encode(cloudevent(id=name, data=whole())), n)
            for n, name in ((1, "a"), (2, "b"))
        ]

        content = letter_at(0, 2, index=1)
        found = messages_by_request(
            pipeline(), [content], [message(batch, headers=headers), *again]
        )

        assert [one.offset() for one in found[content.record_id]] == [0, 2]

    def test_without_the_first_message_there_are_none(self) -> None:
        content = letter_at(0, 1)
        found = messages_by_request(pipeline(), [content], [message(native(body=chunk()), 1)])

        assert found[content.record_id] == []

    def test_of_two_that_overlap_each_has_its_own(self) -> None:
        mine, other = native("mine", body=chunk()), native("other", body=chunk())
        known = [message(value, n) for n, value in enumerate([mine, other, mine, other])]
        first, second = letter_at(0, 2), letter_at(1, 2)

        found = messages_by_request(pipeline(), [first, second], known)

        offsets = [[one.offset() for one in parts] for parts in found.values()]
        assert offsets == [[0, 2], [1]]


def test_b64_of_a_mask_is_what_letters_hold() -> None:
    """This text distinguishes a masked header from others."""
    (_, masked, _) = letter_of().headers or []

    assert masked == ("authorization", b64encode(b"***").decode())
