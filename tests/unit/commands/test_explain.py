"""An explanation reports what the core does with any message of any log."""

import json
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from consumer.commands.explain.as_json import explanation_members
from consumer.commands.explain.explanation import explain
from consumer.commands.explain.text import paragraphs
from consumer.commands.topic_reader import UnreadableHeaders
from consumer.core.dead_letters import letter_of_message
from consumer.core.message import CapturedMessage
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Options, Pipeline
from consumer.core.reassembly.limits import Limits
from consumer.core.records import Origin
from consumer.core.response_event import Event
from schemas import ParsedResponse
from tests.unit.core import samples
from tests.unit.core.made import (
    ADAPTERS,
    TOPIC,
    chunk,
    cloudevent,
    encode,
    last_chunk,
    message,
    native,
    native_segment,
    pipeline,
    short,
    sse,
    whole,
)
from tests.unit.core.random_log import RandomLog

LIMITS = Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000)
STREAM = [
    native(sequence=0, body=chunk()),
    native(sequence=1, body=chunk(finish="stop")),
    native(sequence=2, body=last_chunk()),
    native(sequence=3, body="[DONE]"),
]


def log(*values: bytes | None) -> list[CapturedMessage]:
    return [message(value, offset, offset) for offset, value in enumerate(values)]


def explained(messages: Iterable[CapturedMessage], offset: int = 0, **more: Any) -> Any:
    """Explain a message of a log.

    Returns:
        the members of the JSON object as attributes, with `explanation`, `json` and `texts`.

    """
    known = list(messages)
    core = more.pop("core", None) or pipeline()
    target = next(one for one in known if one.offset() == offset)
    explanation = explain(core, target, known, **{"from_beginning": True, **more})
    encoded = encode(explanation_members(explanation))
    found = json.loads(encoded, object_hook=lambda members: SimpleNamespace(**members))
    found.explanation, found.json, found.texts = explanation, encoded, paragraphs(explanation)
    return found


def entry(explanation: Any) -> Any:
    (one,) = explanation.entries
    return one


def request(explanation: Any) -> Any:
    found = entry(explanation).request
    assert found is not None
    return found


def text_of(explanation: Any, heading: str) -> str:
    return "\n".join(text for name, text in explanation.texts if name == heading)


class TestEnvelope:
    @pytest.mark.parametrize(
        ("value", "options", "envelope"),
        [
            (native(body=whole()), {}, "native"),
            (encode(cloudevent(data=whole())), {}, "cloudevents"),
            (encode(whole()), {}, "body"),
            (
                encode({"trace": "t", "answer": whole()}),
                {"paths": {"request_id": "trace", "body": "answer"}},
                "paths",
            ),
            (b"no event", {}, None),
            (encode({"other": 1}), {}, None),
            (b"{", {}, None),
            (None, {}, None),
        ],
    )
    def test_it_is_the_one_that_opened_the_message(
        self, value: bytes | None, options: dict[str, Any], envelope: str | None
    ) -> None:
        assert explained(log(value), core=pipeline(**options)).envelope == envelope

    @pytest.mark.parametrize("name", samples.names())
    def test_every_sample_that_is_accepted_has_one(self, name: str) -> None:
        known = samples.messages(name)
        for one in known:
            explanation = explained(known, one.offset())
            assert explanation.outcome != "accepted" or explanation.envelope is not None


class TestUnknownObject:
    @pytest.mark.parametrize(
        ("paths", "missing"),
        [
            ({"body": "a.x", "request_id": "b"}, ["body at a.x"]),
            ({"body": "a", "request_id": "c"}, ["request_id at c"]),
            ({"body_base64": "c", "request_id": "d"}, ["request_id at d", "body_base64 at c"]),
            ({"each": "a", "body": "c"}, ["array at a"]),
            ({}, []),
        ],
    )
    def test_the_paths_that_lead_nowhere_are_named(
        self, paths: dict[str, str], missing: list[str]
    ) -> None:
        explanation = explained(log(encode({"a": {}, "b": "r"})), core=pipeline(paths=paths))

        assert text_of(explanation, "members").splitlines() == [
            "a, b",
            *(f"the setting paths finds no {one}" for one in missing),
        ]

    def test_the_only_envelope_that_counts_is_named(self) -> None:
        explanation = explained(log(encode(whole())), core=pipeline(envelope="kong"))

        assert text_of(explanation, "members").endswith(
            "\nthe setting envelope lets no format but kong count"
        )

    def test_its_members_are_named_and_what_a_native_event_needs(self) -> None:
        explanation = explained(log(encode({"body": {}, "reqest_id": "canary"})))

        assert explanation.reason == "unrecognised_shape"
        assert text_of(explanation, "members") == "body, reqest_id\na native event needs request_id"
        assert b"canary" not in explanation.json

    @pytest.mark.parametrize(
        ("members", "options", "needs_it"),
        [
            ({"body_base64": "e30="}, {}, True),
            ({"body_base64": "e30="}, {"envelope": "native"}, True),
            ({"body_base64": "e30="}, {"envelope": "cloudevents"}, False),
            ({"request_id": "r1", "bdy": 1}, {}, False),
            ({"other": 1}, {}, False),
        ],
    )
    def test_a_native_event_is_spoken_of_only_where_one_may_have_been_meant(
        self, members: dict[str, Any], options: dict[str, Any], *, needs_it: bool
    ) -> None:
        explanation = explained(log(encode(members)), core=pipeline(**options))

        assert explanation.reason == "unrecognised_shape"
        assert ("needs request_id" in text_of(explanation, "members")) is needs_it

    def test_its_names_are_cut_and_no_more_than_twelve_are_shown(self) -> None:
        explanation = explained(log(encode({f"{n:02}{'é' * 100}": n for n in range(15)})))

        names, more = text_of(explanation, "members").split(" and ")
        assert names.split(", ") == [f"{n:02}{'é' * 38}" for n in range(12)]
        assert more == "3 more"

    def test_names_are_made_printable_and_hold_no_credential(self) -> None:
        value = b'{"a\\nb\\u001b[2J": 1, "\\ud800": 2, "Bearer canary-canary": 3}'

        explanation = explained(log(value))

        assert text_of(explanation, "members") == "a?b?[2J, ?, Bearer [masked]"
        assert b"canary" not in explanation.json

    @pytest.mark.parametrize("value", [b"[1]", b"{broken", b"text", native(body=whole())])
    def test_of_any_other_message_no_member_is_named(self, value: bytes) -> None:
        assert explained(log(value)).unknown is None


class TestEvent:
    def test_it_says_what_the_envelope_says(self) -> None:
        value = native(
            "r9", sequence=4, attempt=2, final=True, timestamp=1_767_225_600_500, body=chunk()
        )

        one = entry(explained(log(value)))

        assert (one.event, one.request_id, one.sequence, one.attempt) == ("chunk", "r9", 4, 2)
        assert (one.final, one.time) == (True, "2026-01-01T00:00:00.500Z")

    @pytest.mark.parametrize(
        ("value", "name"),
        [
            (native(body=whole()), "whole response"),
            (encode(cloudevent(data=whole())), "whole response"),
            (STREAM[0], "chunk"),
            (native(status=500), "no body"),
        ],
    )
    def test_it_is_named_after_what_it_carries(self, value: bytes, name: str) -> None:
        explanation = explained(log(value))

        assert entry(explanation).event == name
        assert "bytes" not in text_of(explanation, "event")

    def test_its_body_is_read_by_itself(self) -> None:
        body = entry(explained(log(STREAM[0], STREAM[2]), 1)).body

        assert body is not None
        assert (body.response_id, body.completion_tokens, body.model) == ("c1", 24, None)
        assert list(vars(body.stats)) == ["metrics.speculative_decoding"]

    @pytest.mark.parametrize(
        ("usage", "shown"),
        [
            ({"completion_tokens": 51}, "usage 51 completion tokens"),
            (
                {"prompt_tokens": 9, "completion_tokens": 51},
                "usage 9 prompt + 51 completion tokens",
            ),
        ],
    )
    def test_only_known_numbers_of_tokens_are_shown(
        self, usage: dict[str, int], shown: str
    ) -> None:
        explanation = explained(log(native(body=whole() | {"usage": usage})))

        assert f", {shown}," in text_of(explanation, "body")

    def test_a_segment_says_what_can_be_read_of_it_alone(self) -> None:
        whole_stream = sse(chunk(), last_chunk(), "[DONE]")
        pieces = [whole_stream[:20], whole_stream[20:]]
        known = log(*(native_segment(one, sequence=n) for n, one in enumerate(pieces)))

        one = entry(explained(known))

        assert (one.event, one.segment_bytes) == ("segment", 20)
        assert one.request is not None
        assert one.request.outcome == "published"

    def test_a_member_that_was_ignored_is_named_with_what_stands_in_for_it(self) -> None:
        explanation = explained(log(native(body=whole(), timestamp=12, status="200")))

        assert entry(explanation).odd_members == ["timestamp"]
        assert text_of(explanation, "odd") == (
            "timestamp: ignored. It is not a time from 2015 to 2099; the Kafka timestamp stands in "
            "for it."
        )


class TestMessage:
    def test_a_bad_payload_has_its_reason_and_where_its_letter_is(self) -> None:
        explanation = explained(log(native(body=7)))

        assert (explanation.outcome, explanation.reason) == ("bad_payload", "invalid_event")
        assert explanation.detail == "body is not an object, array or string"
        assert text_of(explanation, "dead letter").endswith(f"--show {TOPIC}:0:0")

    def test_a_letter_is_promised_only_if_the_service_would_say_the_same(self) -> None:
        assert text_of(explained(log(b"{broken")), "dead letter").startswith(
            "if the service has the same settings and writes dead letters, print it with\n"
        )

    def test_of_a_capture_without_topics_no_letter_can_be_shown(self) -> None:
        target = msgspec.structs.replace(message(b"{broken"), at_topic="capture")

        assert text_of(explained([target]), "dead letter") == ""

    def test_a_dead_letter_is_said_to_be_one(self) -> None:
        refused = message(b"{broken")
        result = pipeline().partition(TOPIC, 0, 0).feed(refused)
        origin = Origin("fleet-1", TOPIC, 0, {})
        letter = letter_of_message(refused, result.outcome, "invalid_json", None, origin, [])

        explanation = explained(log(encode(letter)))

        assert explanation.envelope == "dead_letter"
        assert text_of(explanation, "envelope").startswith("none: a dead letter of this service")

    def test_one_that_is_passed_over_has_its_reason(self) -> None:
        explanation = explained(log(None))

        assert (explanation.outcome, explanation.reason) == ("skipped", "tombstone")
        assert explanation.meaning.startswith("The message has no value")

    def test_headers_that_cannot_be_read_are_text_of(self) -> None:
        target = UnreadableHeaders(at_topic=TOPIC, the_value=encode(whole()))

        explanation = explained([target])

        assert (explanation.reason, explanation.headers) == ("invalid_headers", None)

    def test_only_the_names_of_headers_are_shown(self) -> None:
        target = message(STREAM[0], headers=[("authorization", b"canary")])

        explanation = explained([target])

        assert explanation.headers == ["authorization"]
        assert b"canary" not in explanation.json


class TestRequest:
    def test_events_of_one_request_in_one_message_show_it_once(self) -> None:
        entries = [native(sequence=n, body=body) for n, body in enumerate([chunk(), last_chunk()])]

        headings = [name for name, _ in explained(log(b"\n".join(entries))).texts]

        assert [name for name in headings if name.startswith("record")] == ["record 0"]

    @pytest.mark.parametrize("offset", range(len(STREAM)))
    def test_any_message_of_a_stream_leads_to_its_record(self, offset: int) -> None:
        found = request(explained(log(*STREAM), offset))

        assert [part.offset for part in found.parts] == [0, 1, 2, 3]
        assert (found.outcome, found.incomplete, found.still_open) == ("published", None, False)
        assert found.meaning == "The service publishes an acceptance record."
        assert found.record is not None
        assert found.record.num_accepted_draft_tokens == 15

    def test_no_more_is_read_than_it_takes(self) -> None:
        known = log(*STREAM, native("other", body=whole()))
        taken: list[int] = []

        def reading() -> Iterator[CapturedMessage]:
            for one in known:
                taken.append(one.offset())
                yield one

        explain(pipeline(), known[1], reading(), from_beginning=True)

        assert taken == [0, 1, 2, 3]

    def test_messages_of_others_are_not_among_its_parts(self) -> None:
        others = [native("other", sequence=n, body=chunk()) for n in range(4)]
        mixed = [one for pair in zip(STREAM, others, strict=True) for one in pair]

        assert [part.offset for part in request(explained(log(*mixed))).parts] == [0, 2, 4, 6]

    def test_an_open_request_has_the_outcome_of_its_timeout_and_is_marked(self) -> None:
        explanation = explained(log(*STREAM[:2]))
        found = request(explanation)

        assert (short_of(found), found.still_open) == ("incomplete(idle_timeout)", True)
        assert text_of(explanation, "request").startswith(
            "still open at the last offset that was read; its timeout would make it "
        )

    def test_a_duplicate_belongs_to_the_request_that_is_open(self) -> None:
        explanation = explained(log(*STREAM[:2], STREAM[1], *STREAM[2:]), 2)

        assert explanation.reason == "duplicate"
        assert request(explanation).outcome == "published"

    def test_a_late_repeat_belongs_to_the_request_that_has_ended(self) -> None:
        explanation = explained(log(*STREAM, STREAM[1]), 4)

        assert explanation.reason == "late_repeat"
        assert request(explanation).last_offset == 3

    def test_attempts_are_kept_apart(self) -> None:
        again = [native(sequence=n, attempt=1, body=chunk("c2")) for n in range(2)]
        first = [native(sequence=0, attempt=0, body=chunk()), again[0], again[1]]
        known = log(*first, native(sequence=1, attempt=0, body=last_chunk(), final=True))

        assert request(explained(known, 3)).attempt == 0
        assert request(explained(known, 2)).attempt == 1
        assert [part.offset for part in request(explained(known, 3)).parts] == [0, 3]

    def test_a_late_repeat_is_listed_without_those_of_later_attempts(self) -> None:
        again = [native(sequence=n, attempt=1, body=chunk("c2")) for n in range(2)]
        first = [native(sequence=n, attempt=0, body=chunk(), final=n == 1) for n in range(2)]

        found = request(explained(log(*first, *again, first[1]), 4))

        assert [part.offset for part in found.parts] == [0, 1, 4]

    def test_each_event_of_a_batch_has_its_own(self) -> None:
        batch = encode(
            [cloudevent(id="a", data=whole()), {}, cloudevent(id="b", data=whole(accepted=3))]
        )
        known = [message(batch, headers=[("content-type", b"application/cloudevents-batch+json")])]

        one, none, other = explained(known).entries

        assert one.request is not None
        assert one.request.request_id == "a"
        assert none.refused == "bad_payload(invalid_cloudevent)"
        assert other.request is not None
        assert other.request.request_id == "b"

    @pytest.mark.parametrize(
        ("from_beginning", "first", "seen_whole"),
        [(True, 1, True), (False, 0, True), (False, 1, False)],
    )
    def test_it_says_whether_messages_may_lie_before_those_that_were_read(
        self, *, from_beginning: bool, first: int, seen_whole: bool
    ) -> None:
        known = log(*STREAM)[first:]

        explanation = explained(known, 2, from_beginning=from_beginning)

        assert request(explanation).seen_whole is seen_whole

    @pytest.mark.parametrize("seed", range(12))
    def test_every_message_of_any_log_has_the_outcome_and_request_of_an_undisturbed_pass(
        self, seed: int
    ) -> None:
        made = RandomLog(seed)
        core = pipeline(LIMITS)
        partition = core.partition(TOPIC, 0, 0)
        outcomes = {}
        for one in made.messages:
            outcomes[one.offset()] = partition.feed(one)
        partition.close_all()
        results = {result.response.place: result for result in partition.drain()}

        for one in [made.messages[number] for number in list(made.busy)[::7]]:
            found = explained(made.messages, one.offset(), core=core)

            result = outcomes[one.offset()]
            assert (found.outcome, found.reason) == (result.outcome, result.reason)
            for each in found.explanation.events:
                if isinstance(each.opened, Event) and result.outcome == "accepted":
                    assert each.request is not None
                if each.request is not None:
                    request_result = each.request.result
                    expected = results[request_result.response.place]
                    assert facts_of(request_result) == facts_of(expected)


def short_of(found: Any) -> str:
    return f"{found.outcome}({found.reason})" if found.reason else found.outcome


def facts_of(result: RequestResult) -> tuple[Any, ...]:
    response = result.response
    return (
        response.request_id,
        response.attempt,
        response.last_offset,
        short(result),
        result.record,
    )


class _Raising:
    engine: ClassVar[str] = "raising"
    places: ClassVar[tuple[str, ...]] = ("metrics.speculative_decoding",)

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        raise ValueError(responses)

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> None:
        raise NotImplementedError


class TestAdapters:
    def renamed(self) -> bytes:
        value = native(body=whole())
        return value.replace(b"mean_acceptance_length", b"mean_length_of_acceptance")

    def test_the_adapter_that_claims_is_distinguished_from_adapters_with_empty_places(self) -> None:
        adapters = request(explained(log(native(body=whole())))).adapters
        sglang, vllm = (a for a in adapters if a.engine in {"sglang", "vllm"})

        assert (vllm.engine, vllm.claims) == ("vllm", True)
        assert (sglang.engine, sglang.claims) == ("sglang", False)
        assert not any(place.filled for place in sglang.places)

    def test_beside_one_that_claims_those_that_find_nothing_share_a_line(self) -> None:
        shared, claiming = text_of(explained(log(native(body=whole()))), "adapters").splitlines()

        assert shared.startswith("nothing at the places of ")
        assert "sglang, tensorrt_llm" in shared
        assert claiming.startswith("vllm claims it: ")

    def test_an_unclaimed_place_shows_the_names_of_its_members(self) -> None:
        explanation = explained(log(self.renamed()))

        found = request(explanation)
        assert (found.outcome, found.dead_letter) == ("unrecognised_stats", True)
        *_, vllm = found.adapters
        assert vllm.places[0].members[0] == "mean_length_of_acceptance"
        assert "vllm does not claim it" in text_of(explanation, "adapters")
        assert "mean_length_of_acceptance" in text_of(explanation, "adapters")

    def test_of_one_that_does_not_claim_the_keys_that_are_missing_are_named(self) -> None:
        explanation = explained(log(self.renamed()))

        assert request(explanation).adapters[-1].missing == ["mean_acceptance_length"]
        assert text_of(explanation, "adapters").endswith(
            "its own key mean_acceptance_length is missing"
        )

    def test_of_one_without_own_keys_no_reason_is_invented(self) -> None:
        silent = type("Silent", (_Raising,), {"can_adapt": classmethod(lambda _, __: False)})

        core = Pipeline(Options(), [*ADAPTERS, silent])
        explanation = explained(log(native(body=whole())), core=core)

        assert request(explanation).adapters[-1].missing is None
        assert text_of(explanation, "adapters").endswith("; it gives no reason")

    def test_two_adapters_of_one_engine_are_distinguished_by_module(self) -> None:
        other = type("Other", (_Raising,), {"engine": "vllm"})

        found = request(
            explained(log(native(body=whole())), core=Pipeline(Options(), [*ADAPTERS, other]))
        )

        assert [answer.name for answer in found.adapters][-3:] == [
            "tokenspeed",
            "vllm (consumer.core.adapters.vllm)",
            f"vllm ({__name__})",
        ]

    def test_one_that_raises_is_named_with_what_it_raised(self) -> None:
        core = Pipeline(Options(), [*ADAPTERS, _Raising])

        explanation = explained(log(native(body=whole())), core=core)

        assert request(explanation).adapters[-1].raised == "ValueError"
        assert "raising does not claim it: its can_adapt raised ValueError" in text_of(
            explanation, "adapters"
        )

    def test_a_statement_that_differs_from_the_counts_is_named_beside_the_record(self) -> None:
        value = native(body=whole()).replace(
            b'"mean_acceptance_length":2.875', b'"mean_acceptance_length":9'
        )

        explanation = explained(log(value))

        assert request(explanation).differing == ["mean_acceptance_length"]
        assert text_of(explanation, "record").endswith(
            "the engine states otherwise: mean_acceptance_length"
        )

    def test_with_several_generations_no_adapter_is_asked(self) -> None:
        body = whole() | {"choices": [{"index": n, "message": {}} for n in range(2)]}

        explanation = explained(log(native(body=body)))

        assert request(explanation).outcome == "unattributable"
        assert text_of(explanation, "adapters").startswith(
            "not asked: the response has 2 generations"
        )
        assert "vllm would claim it" in text_of(explanation, "adapters")

    def test_of_numbers_of_a_wrong_type_the_key_is_named(self) -> None:
        body = whole()
        body["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] = "canary"

        explanation = explained(log(native(body=body)))
        outcome = text_of(explanation, "request")

        assert outcome.endswith(
            "Detail: Expected `int`, got `str` - at `$.num_accepted_draft_tokens`"
        )
        assert "canary" not in outcome

    def test_texts_in_statistics_are_never_shown(self) -> None:
        body = whole()
        body["metrics"]["speculative_decoding"] = {"other": "canary", "count": 3}

        explanation = explained(log(native(body=body)))

        assert b"canary" not in explanation.json
        assert text_of(explanation, "numbers") == (
            'metrics.speculative_decoding: {"other": null, "count": 3}'
        )


class TestPayload:
    VALUE = native(body=whole() | {"canary": "https://user:secret@host/"})

    def test_it_is_not_shown(self) -> None:
        assert b"canary" not in explained(log(self.VALUE)).json

    def test_unless_asked_for_and_then_it_is_cut_and_masked(self) -> None:
        shown = explained(log(self.VALUE), preview=4096).payload
        start = explained(log(self.VALUE), preview=10).payload

        assert shown is not None
        assert "canary" in shown
        assert "secret" not in shown
        assert start == self.VALUE[:10].decode()

    def test_what_holds_a_credential_by_the_look_of_it_is_masked(self) -> None:
        value = native(body=whole() | {"api_key": "canary"})

        shown = explained(log(value), preview=4096).payload

        assert shown is not None
        assert '"api_key":[masked]' in shown
        assert "canary" not in shown


def test_of_a_long_stream_people_see_the_first_messages_and_the_last() -> None:
    values = [native(sequence=n, body=chunk()) for n in range(30)]

    lines = text_of(explained(log(*values)), "reassembly").splitlines()

    assert lines[0].startswith("request 'r1', attempt 0: 30 events, offsets 0 to 29")
    assert lines[11] == "... 18 more ..."
    assert lines[-1].split() == ["29", "chunk", "29:", "accepted"]
