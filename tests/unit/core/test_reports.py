"""Inputs from the field: of public reports (r), and written by real software (s)."""

import io
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from consumer.commands.replay import Replay
from tests.paths import SAMPLES
from tests.unit.core.made import pipeline

REPORTS: Final = SAMPLES / "reports"


class Outcome(NamedTuple):
    """What becomes of a capture.

    Attributes:
        records: request id, engine, accepted drafts / drafts in verify steps, finish reason, and
            what is incomplete.
        others: requests without a record, and messages that were not accepted.
        members: members of the records that matter here.
        paths: the setting.

    """

    records: tuple[str, ...]
    others: tuple[str, ...] = ()
    members: tuple[dict[str, Any], ...] = ()
    paths: dict[str, str] = {}  # noqa: RUF012  (never changed)


def vllm(*request_ids: str, finish: str = "stop") -> tuple[str, ...]:
    return tuple(f"{request_id} vllm 30/60 in 20, {finish}" for request_id in request_ids)


# What the real vLLM, SGLang and TensorRT-LLM response classes wrote.
WHOLE: Final = "chatcmpl-0cb1e29c658cda1495e60af593bd04cf"
WHOLE_NUMBERS: Final = "vllm 53/130 in 26, length"
STREAM: Final = "chatcmpl-4cbd87ad5c90a9587403e430ec66a787"
STREAM_NUMBERS: Final = "vllm 12/20 in 9, length"
SGLANG: Final = "e8e727891eb20109a91c2439d5ab8b4d sglang 10/18 in 18, length"
TRTLLM: Final = "tensorrt_llm 70/161 in 23, length"

EXPECTED: Final[dict[str, Outcome]] = {
    "r02_gateway_bare_usage_line": Outcome(vllm("gpu-2", "chatcmpl-a2")),
    "r05_usage_chunk_choices_absent_null_object_sse": Outcome(
        vllm("chatcmpl-b0", "chatcmpl-b1", "chatcmpl-b2")
    ),
    "r06_usage_chunk_choices_absent_null_object_native_chunks": Outcome(vllm("r0", "r1", "r2")),
    "r08_finish_reason_empty_string_in_chunks": Outcome(
        ("9c1d sglang 62/200 in 40, stop", *vllm("e-2", finish="length"))
    ),
    "r09_content_filter_chunk_with_empty_id_sse": Outcome(
        vllm("chatcmpl-f1"), members=({"model": "qwen3-32b", "response_id": "chatcmpl-f1"},)
    ),
    "r11_engine_abort_then_done": Outcome(
        vllm("chatcmpl-g2", finish="abort"), ("2 x no_stats(aborted)",)
    ),
    "r13_vllm_mean_of_committed_tokens": Outcome(
        ("chatcmpl-h1 vllm 5/5 in 1, stop",), members=({"mean_acceptance_length": 6.0},)
    ),
    "r14_tokenspeed_meta_info_names": Outcome(("t1 tokenspeed 62/200 in 40, stop",)),
    "r19_one_x_request_id_for_two_calls_native_chunks": Outcome(
        ("trace8 vllm 30/60 in 20, tool_calls", "trace8 vllm 15/30 in 10, stop"),
        members=({"attempt": 0}, {"attempt": 1}),
    ),
    "r20_schema_registry_json_frame": Outcome(vllm("sr-1", "chatcmpl-sr2")),
    "r22_connect_string_payload": Outcome(vllm("kc-2")),
    "r24_dapr_response_bodies": Outcome(vllm("chatcmpl-dp1", "chatcmpl-dp2")),
    "r26_cloudevent_headers_with_dash": Outcome(
        vllm("9b1f"),
        ("skipped(request_event)",),
        members=({"labels": {"inferenceservicename": "qwen3"}},),
    ),
    "r29_container_log_line_around_the_answer": Outcome(vllm("chatcmpl-lg1", "lg-2")),
    "r31_api_mirror_log_without_request_id": Outcome(vllm("chatcmpl-ak1", "chatcmpl-ak2")),
    "r32_several_native_events_in_one_message": Outcome(vllm("nd-1", "nd-2", "na-1", "na-2")),
    "r33_litellm_payload_single_array_ndjson_with_paths": Outcome(
        vllm("sl0", "sl1", "sl2", "sl3", "sl4")
    ),
    "r34_native_timestamps_as_programs_write_them": Outcome(
        vllm("ts-1", "ts-2", "ts-3", "ts-4", "ts-5", "ts-6", "ts-7")
    ),
    "r36_sequence_from_one": Outcome(vllm("ob-1")),
    "r37_final_on_the_finish_reason_chunk": Outcome(
        vllm("fi-1", "fi-2"),
        ("2 x skipped(late_repeat)",),  # The end markers.
    ),
    "r38_gzipped_native_event": Outcome(vllm("gz-1", "gz-2")),
    "r42_answers_of_other_apis_in_kserve_events": Outcome(
        (),
        (
            "failed_response",
            "2 x skipped(triton_generate)",
            *(f"skipped({api})" for api in ("tokenize", "detokenize", "tgi_generate", "ollama")),
            "skipped(transcription)",
        ),
    ),
    "r45_rpk_topic_consume_json": Outcome(vllm("rp-0", "rp-1")),
    "r51_network_pieces_as_text_not_whole_lines": Outcome(vllm("tx-1")),
    "r53_dotted_member_names_with_paths": Outcome(
        vllm("dn-1"),
        paths={
            "request_id": "trace.id",
            "body": "http.response.body.content",
            "status": "http.response.status_code",
            "timestamp": "@timestamp",
        },
    ),
    "r54_events_separated_by_one_newline": Outcome(vllm("chatcmpl-nl1", "chatcmpl-nl2")),
    "r56_apisix_log_format_single_and_default_batch": Outcome(vllm("ap-0", "ap-1", "ap-2")),
    "r58_one_x_request_id_for_two_calls_bare_chunks": Outcome(
        (
            "chatcmpl-trace7 vllm 30/60 in 20, tool_calls",
            "chatcmpl-trace7 vllm 15/30 in 10, stop",
        ),
        members=({"attempt": 0}, {"attempt": 1}),
    ),
    "r61_home_made_event_with_texts_for_numbers": Outcome(
        vllm("m-1", "m-2"),
        paths={"request_id": "rid", "body": "answer", "status": "code", "timestamp": "ts"},
    ),
    "r64_collected_chunks_without_data_prefix": Outcome(
        (
            "chatcmpl-rj1 vllm 30/60 in 20, stop, no_terminator",
            *vllm("chatcmpl-rj2", "chatcmpl-rj3"),
            "chatcmpl-rj4 vllm 30/60 in 20, stop, no_terminator",
        )
    ),
    "s01_otel_collector_raw_filelog": Outcome(
        (f"{WHOLE} {WHOLE_NUMBERS}", f"{STREAM} {STREAM_NUMBERS}")
    ),
    "s04_otel_collector_otlp_json_and_proto": Outcome(
        (f"{WHOLE} {WHOLE_NUMBERS}", f"{STREAM} {STREAM_NUMBERS}") * 2
    ),
    "s06_python_ce1_structured_text": Outcome(
        (f"py0-ce {WHOLE_NUMBERS}", f"py1-ce {STREAM_NUMBERS}")
    ),
    "s08_python_ce1_binary_default_marshaller": Outcome(
        (f"py0-ce {WHOLE_NUMBERS}", f"py1-ce {STREAM_NUMBERS}")
    ),
    "s11_java_ce_structured_sse_labelled_json": Outcome(
        (
            "chatcmpl-00ed6b0272218fdc44df96ff28541424-ce vllm 12/22 in 9, length",
            "chatcmpl-fb81392137161c16b00fd7bb4ecadea2-ce tensorrt_llm 32/60 in 20, length",
        )
    ),
    "s15_litellm_standard_payload_single": Outcome(
        (
            "29f9783f-4f7c-4d3a-82ed-779cefbbb11c vllm 3/25 in 5, length",
            "28e9a129-3593-4014-a7f7-bb77c0fbc055 sglang 81/155 in 31, length",
            f"20defe92-e8de-46a5-bd7a-549da32eb318 {TRTLLM}",
        ),
        ("2 x no_stats(absent)",),  # LiteLLM puts streams together without the numbers.
    ),
    "s16_litellm_generic_api_default_array": Outcome(
        (
            f"71116fdf-a475-4188-86c9-a22964891536 {WHOLE_NUMBERS}",
            "d350885a-e548-4267-bddd-0ee346216e4f vllm 73/92 in 23, length",
            "28e9a129-3593-4014-a7f7-bb77c0fbc055 sglang 81/155 in 31, length",
        )
    ),
    "s17_litellm_model_response_of_trtllm": Outcome(
        (f"chatcmpl-04c9d78d82b335998604871926debfdb {TRTLLM}",)
    ),
    "s19_connect_json_converter_default": Outcome((f"{WHOLE} {WHOLE_NUMBERS}",)),
    "s20_connect_filestream_of_an_sse_log": Outcome(
        (SGLANG,),
        ("9 x skipped(keep_alive)", "skipped(orphan_end)"),  # The usage chunk had ended it.
        members=({"completion_tokens": 29, "prompt_tokens": 88},),
    ),
    "s24_bare_sse_event_per_message": Outcome(
        (SGLANG,),
        ("skipped(orphan_end)",),
        members=({"completion_tokens": 29, "prompt_tokens": 88},),
    ),
    "s26_llamacpp_real_server_draft_model": Outcome(
        (
            "chatcmpl-LDzpa1RvrNYP8FM5qiL86o8QEb0VQJMQ llamacpp 16/88 in None, length",
            "chatcmpl-VTcHEJjOOLLrKshKEfF2CtVzEKaeX0gC llamacpp 16/88 in None, length",
            "chatcmpl-83vdjh6rvrr9ymWmTG9IMs1DEeVabJba llamacpp 16/88 in None, length",
            "chatcmpl-nWGPyUVeCJWvXKlvnSxU4gTAQeILIuAC llamacpp 2/19 in None, length",
            "chatcmpl-fhtQv3hh51pzWyHYFKfZoOeju7qhHjR5 llamacpp 13/59 in None, length",
            "chatcmpl-5wJQTfem3tOE074WK3czg0K1VSW3UdDa llamacpp 13/59 in None, length",
            "None llamacpp 13/59 in None, limit",
            "None llamacpp 13/59 in None, limit",
            "resp_L91pj4481ik6tmaHYXnKg8R3XRxf1ZDg llamacpp 10/32 in None, None",
        ),
        ("no_stats(absent)", "2 x no_stats(endpoint_without_stats)", "2 x unattributable"),
    ),
    "s27_aiperf_raw_export": Outcome(
        (
            "ec7f8a90-1599-4a09-907d-25b7471cd1b3 vllm 77/114 in 33, length",
            f"adc970d9-1ac4-40a1-84a3-bff79a4b3704 {WHOLE_NUMBERS}",
        )
    ),
}

# A case leaves this list with the change that makes it pass.
NOT_YET: Final[dict[str, str]] = {}


def replayed(name: str, paths: dict[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records of a capture, and its other outcomes with their number."""
    output = io.BytesIO()
    replay = Replay(pipeline(paths=paths), output)
    replay.run([str(REPORTS / f"{name}.jsonl")], "auto")
    records = [msgspec.json.decode(line) for line in output.getvalue().splitlines()]
    others = [
        (f"{count} x " if count > 1 else "") + (f"{outcome}({reason})" if reason else str(outcome))
        for (kind, outcome, reason, _), count in replay.totals.items()
        if kind in ("message", "request") and outcome not in ("accepted", "published")
    ]
    return records, others


def described(record: dict[str, Any]) -> str:
    drafts = f"{record['num_accepted_draft_tokens']}/{record['num_draft_tokens']}"
    incomplete = f", {record['incomplete_reason']}" if record["incomplete_reason"] else ""
    return (
        f"{record['request_id']} {record['engine']} {drafts} in {record['num_spec_steps']}, "
        f"{record['finish_reason']}{incomplete}"
    )


def test_every_report_has_its_outcome() -> None:
    assert sorted(path.stem for path in REPORTS.glob("*.jsonl")) == sorted(EXPECTED)
    assert NOT_YET.keys() <= EXPECTED.keys()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=NOT_YET[name]))
        if name in NOT_YET
        else name
        for name in EXPECTED
    ],
)
def test_a_report_ends_as_it_should(name: str) -> None:
    expected = EXPECTED[name]
    records, others = replayed(name, expected.paths)
    assert sorted(map(described, records)) == sorted(expected.records)
    assert sorted(others) == sorted(expected.others)
    for record, members in zip(records, expected.members, strict=bool(expected.members)):
        assert {member: record[member] for member in members} == members
    times = [record[member] for record in records for member in ("started_at", "completed_at")]
    assert [time for time in times if time is not None and not time.startswith("2026-")] == []
