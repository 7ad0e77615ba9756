import base64
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import Any

import pytest

from consumer.core.message import TIMESTAMP_CREATE_TIME, CapturedMessage
from consumer.core.stream_time import BLOCK_BITS, REACH
from consumer.demo.fleet import (
    CANARY,
    CREDENTIAL_CANARY,
    MODELS,
    NOISE,
    REQUEST_KINDS,
    REQUESTS_PER_ROUND,
    ExpectedOutcome,
    Fleet,
    FleetMessage,
    MessageKind,
)
from schemas import (
    RequestOutcome,
    SkipReason,
)
from tests.support.fleet_records import differences
from tests.unit.core.made import TOPIC, pipeline

Json = dict[str, Any]

START = 1_767_225_600_000
SEEDS = [1, 2, 3]


@cache
def traffic(seed: int = 1, requests: int = 5 * REQUESTS_PER_ROUND) -> tuple[FleetMessage, ...]:
    """Messages of about that many requests, which are all finished."""
    return tuple(fresh_traffic(seed, requests))


def fresh_traffic(seed: int, requests: int) -> list[FleetMessage]:
    fleet = Fleet(seed=seed, rate=40, start=START)
    messages = []
    arrived = 0
    for message in fleet:
        messages.append(message)
        arrived += message.expected is not None or is_noise(message)
        if arrived >= requests:
            fleet.close()
    return messages


def is_noise(message: FleetMessage) -> bool:
    return message.kind in (MessageKind.BAD, MessageKind.UNRELATED)


def outcomes(seed: int = 1) -> list[ExpectedOutcome]:
    return outcomes_of(traffic(seed))


def outcomes_of(messages: Sequence[FleetMessage]) -> list[ExpectedOutcome]:
    return [message.expected for message in messages if message.expected is not None]


# --- The fleet as a whole


def test_the_same_seed_gives_the_same_messages() -> None:
    assert fresh_traffic(7, 300) == fresh_traffic(7, 300)


def test_another_seed_gives_other_messages() -> None:
    assert traffic(seed=7, requests=50) != traffic(seed=8, requests=50)


def test_another_start_moves_the_messages_in_time() -> None:
    now = list(islice(Fleet(seed=7, rate=40, start=START), 50))
    later = list(islice(Fleet(seed=7, rate=40, start=START + 60_000), 50))

    assert [message.timestamp + 60_000 for message in now] == [m.timestamp for m in later]


def test_messages_come_in_the_order_in_which_they_are_due() -> None:
    due = [message.timestamp for message in traffic()]

    assert due == sorted(due)
    assert due[0] >= START


def test_requests_overlap() -> None:
    """A fleet whose streams never interleave would test nothing of reassembly."""
    keys = [message.key for message in traffic() if message.kind is MessageKind.CHUNK]
    changes = sum(one != other for one, other in pairwise(keys))

    assert changes > len(keys) / 2


def test_requests_arrive_at_the_rate_asked_for() -> None:
    messages = traffic(requests=1_000)
    seconds = (messages[-1].timestamp - START) / 1000

    assert 1_000 / seconds == pytest.approx(40, rel=0.15)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_at_which_time_would_not_pass_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="requests per second"):
        Fleet(seed=1, rate=rate, start=START)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_occurs_within_one_round(seed: int) -> None:
    messages = traffic(seed, requests=REQUESTS_PER_ROUND)

    assert {expected.kind for expected in outcomes_of(messages)} == {k.name for k in REQUEST_KINDS}
    assert len({message.reason for message in messages if is_noise(message)}) == len(NOISE)
    assert {message.kind for message in messages} == set(MessageKind)


def test_every_outcome_of_the_design_occurs_that_traffic_can_cause() -> None:
    # The other two need an adapter that is missing, or two that claim the same.
    assert {expected.outcome for expected in outcomes()} == set(RequestOutcome) - {
        RequestOutcome.UNRECOGNISED_STATS,
        RequestOutcome.AMBIGUOUS_STATS,
    }


def test_every_model_publishes() -> None:
    published = {
        (expected.engine, expected.model)
        for expected in outcomes()
        if expected.outcome is RequestOutcome.PUBLISHED
    }

    assert published == {(model.engine, model.name) for model in MODELS}


def test_closing_ends_the_traffic_with_every_request_finished() -> None:
    messages = traffic(requests=200)
    counting = {request_of(m) for m in messages if m.reason is None}

    assert counting == {expected.request_id for expected in outcomes_of(messages)}


def test_a_request_has_one_outcome_with_its_last_accepted_message() -> None:
    messages = traffic()
    ids = [expected.request_id for expected in outcomes_of(messages)]
    open_ids = set(ids)
    for message in messages:
        if message.reason is None:
            assert request_of(message) in open_ids
        if message.expected is not None:
            open_ids.remove(message.expected.request_id)

    assert len(ids) == len(set(ids))
    assert not open_ids


# --- What the core makes of the traffic


@pytest.mark.parametrize("seed", SEEDS)
def test_the_core_returns_every_expected_outcome(seed: int) -> None:
    messages = traffic(seed)
    partition = pipeline().partition(TOPIC, 0, 0)
    for offset, message in enumerate(messages):
        assert partition.feed(captured(message, offset)).reason == message.reason, message.kind
    offset = len(messages)
    for after, blocks in ((0, 1), (300_000, REACH + 3)):  # Stream time passes every timeout.
        at = messages[-1].timestamp + after
        later = FleetMessage(None, None, (), MessageKind.UNRELATED, at)
        for _ in range(blocks << BLOCK_BITS):
            partition.feed(captured(later, offset))
            offset += 1
    results = partition.drain()
    assert partition.open_requests == 0
    assert Counter((result.outcome, result.reason) for result in results) == Counter(
        (expected.outcome, expected.reason) for expected in outcomes(seed)
    )
    records = [result.record for result in results if result.record is not None]
    assert len(records) > 300
    assert differences(outcomes(seed), records) == []


def captured(message: FleetMessage, offset: int) -> CapturedMessage:
    return CapturedMessage(
        at_topic=TOPIC,
        at_offset=offset,
        the_key=message.key,
        the_value=message.value,
        the_headers=list(message.headers),
        timestamp_type=TIMESTAMP_CREATE_TIME,
        timestamp_ms=message.timestamp,
    )


# --- Canaries


def test_every_message_carries_the_credential() -> None:
    for message in traffic():
        assert any(CREDENTIAL_CANARY.encode() in value for _, value in message.headers)


def test_every_prompt_and_every_answer_carries_the_canary() -> None:
    answers = [chunk for chunks in chunks_by_request().values() for chunk in chunks]
    prompts = [
        json.loads(m.value or b"") for m in traffic() if m.kind is MessageKind.KSERVE_REQUEST
    ]
    texts = list(contents([answers, prompts]))

    assert all(CANARY in text for text in texts)
    assert len(texts) > len(answers) / 2
    assert len(list(contents(prompts))) == len(prompts)


def test_most_bad_payloads_carry_the_canary() -> None:
    bad = [m.value or b"" for m in traffic() if m.kind is MessageKind.BAD]

    assert sum(CANARY.encode() in value for value in bad) == sum(value != b"" for value in bad)


def test_no_expected_record_carries_a_canary() -> None:
    for expected in outcomes():
        assert "canary" not in repr(expected)


# --- Numbers


def test_tokens_follow_from_steps_and_accepted_drafts_and_are_cut_at_most_once() -> None:
    """1 + steps + accepted, minus the tokens of the last step beyond the limit."""
    exact, cut = 0, 0
    for expected in outcomes():
        record = expected.record
        if record is None or record.completion_tokens is None or expected.engine == "llamacpp":
            continue
        assert record.num_spec_steps is not None
        assert record.num_accepted_draft_tokens is not None
        raw = 1 + record.num_spec_steps + record.num_accepted_draft_tokens
        assert record.completion_tokens <= raw <= record.completion_tokens + 5
        exact += raw == record.completion_tokens
        cut += raw != record.completion_tokens

    assert exact
    assert cut


def test_models_differ_in_their_acceptance() -> None:
    accepted, drafted = Counter[str](), Counter[str]()
    for expected in outcomes():
        if expected.record is not None:
            accepted[expected.model] += expected.record.num_accepted_draft_tokens or 0
            drafted[expected.model] += expected.record.num_draft_tokens or 0
    rates = sorted(accepted[model] / drafted[model] for model in drafted)

    assert rates[0] > 0.3
    assert rates[-1] < 0.9
    assert rates[-1] - rates[0] > 0.2


def test_generations_without_a_verify_step_occur() -> None:
    """vLLM reports them as zeros, the other engines report nothing."""
    empty = [e for e in outcomes() if e.record and e.record.num_spec_steps == 0]

    assert empty
    assert {expected.engine for expected in empty} == {"vllm"}


# --- Wire formats


def test_streams_end_as_their_kind_says() -> None:
    chunks = chunks_by_request()
    for expected in outcomes():
        if expected.outcome is RequestOutcome.FAILED_RESPONSE:
            continue
        if expected.streamed and expected.stream_complete:
            assert "[DONE]" in chunks[expected.request_id], expected.kind
        elif not expected.stream_complete and not expected.after_timeout:
            assert "[DONE]" not in chunks[expected.request_id], expected.kind


def test_vllm_sends_its_numbers_with_the_usage_chunk_only() -> None:
    chunks = chunks_by_request()
    for expected in outcomes():
        if expected.engine != "vllm" or not expected.streamed:
            continue
        with_numbers = [chunk for chunk in chunks[expected.request_id] if "metrics" in chunk]
        assert len(with_numbers) <= 1
        for chunk in with_numbers:
            assert isinstance(chunk, dict)
            assert chunk["choices"] == []
            assert chunk["usage"]
            assert None not in chunk["metrics"]["speculative_decoding"].values()


def test_sglang_sends_its_numbers_before_the_usage_chunk_and_without_one() -> None:
    chunks, places = chunks_by_request(), Counter[bool]()
    for expected in outcomes():
        if "sglang chat" in expected.kind and expected.streamed and expected.record:
            parsed = [c for c in chunks[expected.request_id] if isinstance(c, dict)]
            (place,) = [n for n, chunk in enumerate(parsed) if "sglext" in chunk]
            after = parsed[place + 1 :]
            assert all(chunk["choices"] == [] and chunk["usage"] for chunk in after)
            places[bool(after)] += 1

    assert places[True]
    assert places[False]


def test_tensorrt_llm_sends_its_numbers_with_the_finish() -> None:
    chunks, seen = chunks_by_request(), 0
    for expected in outcomes():
        for chunk in chunks[expected.request_id] if expected.engine == "tensorrt_llm" else []:
            for choice in chunk.get("choices", []) if isinstance(chunk, dict) else []:
                assert ("speculative_decoding" in choice) <= bool(choice.get("finish_reason"))
                seen += "speculative_decoding" in choice

    assert seen


def test_kserve_calls_a_stream_json_and_gives_both_events_one_identity() -> None:
    messages = traffic()
    requests = {header(m, "ce_id"): m for m in messages if m.kind is MessageKind.KSERVE_REQUEST}
    responses = {header(m, "ce_id"): m for m in messages if m.kind is MessageKind.KSERVE_RESPONSE}

    assert requests.keys() == responses.keys()
    assert any((message.value or b"").startswith(b"data: ") for message in responses.values())
    for ce_id, response in responses.items():
        request = requests[ce_id]
        assert request.key is response.key is None
        assert header(response, "content-type") == "application/json"
        assert header(request, "ce_source") == header(response, "ce_source")
        assert header(request, "ce_type") == "org.kubeflow.serving.inference.request"
        assert header(response, "ce_type") == "org.kubeflow.serving.inference.response"
        assert header(response, "ce_time").endswith("Z")


def test_structured_cloudevents_carry_their_body_in_all_three_ways() -> None:
    ways = Counter[str]()
    for message in traffic():
        if message.kind is MessageKind.STRUCTURED:
            event = json.loads(message.value or b"")
            assert header(message, "content-type").startswith("application/cloudevents+json")
            way = "base64" if "data_base64" in event else type(event["data"]).__name__
            ways[way] += 1

    assert set(ways) == {"base64", "str", "dict"}


def test_raw_segments_are_cut_inside_a_character() -> None:
    cut = 0
    for message in traffic():
        if message.kind is MessageKind.SEGMENT:
            raw = base64.b64decode(json.loads(message.value or b"")["body_base64"])
            try:
                raw.decode()
            except UnicodeDecodeError:
                cut += 1

    assert cut


def test_repeats_and_disorder_are_what_they_say() -> None:
    messages = traffic()
    repeats = Counter(m.reason for m in messages if m.kind is MessageKind.REPEAT)
    sequences = defaultdict[str, list[int]](list)
    seen: set[tuple[bytes | None, bytes | None]] = set()
    for message in messages:
        if message.kind is MessageKind.REPEAT:
            assert (message.key, message.value) in seen
        seen.add((message.key, message.value))
        if message.kind is MessageKind.CHUNK:
            event = json.loads(message.value or b"")
            sequences[event["request_id"]].append(event["sequence"])
    kinds = {expected.request_id: expected.kind for expected in outcomes_of(messages)}
    disordered = {kinds[one] for one, order in sequences.items() if order != sorted(order)}
    gaps = {kinds[one] for one, order in sequences.items() if len(order) <= max(order)}

    assert set(repeats) == {
        SkipReason.DUPLICATE,
        SkipReason.LATE_REPEAT,
        SkipReason.REPEATED_RESPONSE,
    }
    assert disordered == {"out of order"}
    assert gaps == {"lost chunk"}


# --- A reader of the formats, as simple as the traffic allows


def request_of(message: FleetMessage) -> str:
    if message.kind in (MessageKind.KSERVE_RESPONSE, MessageKind.KSERVE_REQUEST):
        return header(message, "ce_id")
    return (message.key or b"").decode()


def header(message: FleetMessage, name: str) -> str:
    return dict(message.headers)[name].decode()


def contents(value: object) -> Iterator[str]:
    """Yield every prompt and every answer."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name in ("content", "text") and isinstance(member, str) and member:
                yield member
            else:
                yield from contents(member)
    elif isinstance(value, list):
        for member in value:
            yield from contents(member)


@cache
def chunks_by_request(seed: int = 1) -> dict[str, list[Json | str]]:
    events = defaultdict[str, list[Json]](list)
    chunks = dict[str, list[Json | str]]()
    for message in traffic(seed):
        if message.reason is not None:
            continue
        request, value = request_of(message), message.value or b""
        match message.kind:
            case MessageKind.CHUNK | MessageKind.SEGMENT:
                events[request].append(json.loads(value))
            case MessageKind.RESPONSE:
                chunks[request] = parse(raw(json.loads(value)["body"]))
            case MessageKind.STRUCTURED:
                event = json.loads(value)
                encoded = event.get("data_base64")
                body = base64.b64decode(encoded) if encoded else raw(event["data"])
                chunks[request] = parse(body)
            case _:
                chunks[request] = parse(value)
    for request, parts in events.items():
        parts.sort(key=lambda event: event["sequence"])
        if "body" in parts[0]:
            chunks[request] = [event["body"] for event in parts]
        else:
            pieces = (base64.b64decode(event["body_base64"]) for event in parts)
            chunks[request] = parse(b"".join(pieces))
    return chunks


def raw(body: Json | str) -> bytes:
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def parse(body: bytes) -> list[Json | str]:
    if not body.startswith(b"data: "):
        return [json.loads(body)]
    chunks: list[Json | str] = []
    for event in body.decode().split("\n\n"):
        name, _, data = event.rpartition("data: ")
        if name or not data:
            continue  # A named event, or the empty rest.
        try:
            chunks.append("[DONE]" if data == "[DONE]" else json.loads(data))
        except json.JSONDecodeError:
            chunks.append(data)
    return chunks
