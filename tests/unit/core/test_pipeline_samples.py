"""Every sample, as its producer would send it: what becomes of its messages and requests."""

import gzip
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest

from consumer.core.message import CapturedMessage
from consumer.core.outcomes import RequestResult
from consumer.core.partition import Partition
from tests.paths import SAMPLES
from tests.unit.core import samples
from tests.unit.core.made import (
    TOPIC,
    cloudevent_headers,
    message,
    native_segment,
    pipeline,
    short,
    short_message,
)

# Outcome of each message, then those of the requests. Of a record: engine, accepted drafts by
# drafted ones, steps, and what is incomplete. Envelopes that are not supported are bad payloads.
EXPECTED: Final[dict[str, tuple[str, ...]]] = {
    # engines/dynamo
    "engines/dynamo/chat_nonstream_engine_fields_dropped.json": ("accepted", "no_stats(absent)"),
    "engines/dynamo/chat_nonstream_nvext_timing_only.json": ("accepted", "no_stats(absent)"),
    "engines/dynamo/native_generate_sglang_meta_info_passthrough.json": (
        "accepted",
        "sglang 62/200 in 40",
    ),
    # engines/fastdeploy
    "engines/fastdeploy/chat_nonstream_not_speculating.json": ("accepted", "no_stats(absent)"),
    "engines/fastdeploy/chat_nonstream_pr5947.json": ("accepted", "fastdeploy 68/180 in 60"),
    "engines/fastdeploy/chat_nonstream_without_heads.json": ("accepted", "unrecognised_stats"),
    "engines/fastdeploy/chat_stream_pr5947.sse": ("accepted", "fastdeploy 68/180 in 60"),
    # engines/fireworks
    "engines/fireworks/chat_nonstream_perf_metrics.json": (
        "accepted",
        "no_stats(unsupported_engine)",
    ),
    # engines/llamacpp
    "engines/llamacpp/captured_pr12603_counts.json": ("bad_payload(unrecognised_shape)",),
    "engines/llamacpp/chat_nonstream.json": ("accepted", "llamacpp 30/60 in None"),
    "engines/llamacpp/chat_nonstream_all_rejected.json": ("accepted", "llamacpp 0/60 in None"),
    "engines/llamacpp/chat_nonstream_n2_timings_of_first_choice_only.json": (
        "accepted",
        "unattributable",
    ),
    "engines/llamacpp/chat_nonstream_no_draft_keys_absent.json": ("accepted", "no_stats(absent)"),
    "engines/llamacpp/chat_stream_include_usage.sse": ("accepted", "llamacpp 30/60 in None"),
    "engines/llamacpp/chat_stream_without_usage.sse": ("accepted", "llamacpp 30/60 in None"),
    "engines/llamacpp/completion_native_nonstream.json": ("accepted", "llamacpp 30/60 in None"),
    "engines/llamacpp/completion_native_stream_no_done.sse": ("accepted", "llamacpp 30/60 in None"),
    "engines/llamacpp/proposed_pr27676_verif_steps_not_merged.json": (
        "accepted",
        "llamacpp 30/60 in 20",
    ),
    "engines/llamacpp/responses_nonstream_no_timings.json": (
        "accepted",
        "no_stats(endpoint_without_stats)",
    ),
    "engines/llamacpp/responses_stream_no_done.sse": ("accepted", "llamacpp 30/60 in None"),
    # engines/lmdeploy
    "engines/lmdeploy/chat_nonstream_reserved_null_fields.json": ("accepted", "no_stats(absent)"),
    # engines/lmstudio
    "engines/lmstudio/api_v0_stats_draft_counts_0_3_10.json": (
        "accepted",
        "lmstudio 54/72 in None",
    ),
    "engines/lmstudio/api_v0_usage_draft_counts_0_4_24.json": (
        "accepted",
        "lmstudio 176/492 in None",
    ),
    "engines/lmstudio/api_v1_chat_no_draft_counts.json": ("skipped(lmstudio_chat)",),
    "engines/lmstudio/openai_v1_empty_stats.json": ("accepted", "no_stats(absent)"),
    "engines/lmstudio/openai_v1_stats_draft_counts.json": ("accepted", "lmstudio 176/492 in None"),
    # engines/mlx_vlm
    "engines/mlx_vlm/chat_nonstream_mtp.json": ("accepted", "mlx_vlm 81/90 in 30"),
    "engines/mlx_vlm/chat_nonstream_no_drafter_nulls.json": ("accepted", "no_stats(absent)"),
    "engines/mlx_vlm/chat_stream_without_usage_no_draft_fields.sse": (
        "accepted",
        "no_stats(stream_without_usage_chunk)",
    ),
    # engines/ollama
    "engines/ollama/chat_nonstream_openai_endpoint.json": (
        "accepted",
        "no_stats(unsupported_engine)",
    ),
    # engines/openai
    "engines/openai/chat_no_prediction_zeros.json": ("accepted", "no_stats(absent)"),
    "engines/openai/chat_predicted_outputs_usage.json": ("accepted", "no_stats(absent)"),
    # engines/sambanova
    "engines/sambanova/chat_nonstream_usage_acceptance_rate.json": (
        "accepted",
        "no_stats(unsupported_engine)",
    ),
    # engines/sglang
    "engines/sglang/chat_nonstream_n2_sglext_list.json": ("accepted", "unattributable"),
    "engines/sglang/chat_nonstream_not_requested.json": ("accepted", "no_stats(absent)"),
    "engines/sglang/chat_nonstream_return_meta_info.json": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/chat_nonstream_sglext.json": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/chat_nonstream_zero_steps_no_sglext.json": ("accepted", "no_stats(absent)"),
    "engines/sglang/chat_stream_n2_sglext_list.sse": ("accepted", "unattributable"),
    "engines/sglang/chat_stream_sglext_with_usage.sse": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/chat_stream_sglext_without_usage.sse": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/completions_two_prompts_n1_first_prompt_only.json": (
        "accepted",
        "unattributable",
    ),
    "engines/sglang/generate_nonstream_dspark_capped.json": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/generate_nonstream_n2_list.json": ("accepted", "unattributable"),
    "engines/sglang/generate_nonstream_v0_5_12_to_0_5_20_aliases.json": (
        "accepted",
        "sglang 62/200 in 40",
    ),
    "engines/sglang/generate_nonstream_v0_5_21_plus.json": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/generate_nonstream_v0_5_3_and_older.json": (
        "accepted",
        "sglang None/None in 40",
    ),
    "engines/sglang/generate_nonstream_v0_5_4_to_0_5_5.json": (
        "accepted",
        "sglang None/None in 40",
    ),
    "engines/sglang/generate_nonstream_v0_5_6_to_0_5_8.json": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/generate_nonstream_v0_5_9_to_0_5_10.json": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/generate_nonstream_zero_steps.json": ("accepted", "no_stats(absent)"),
    "engines/sglang/generate_nonstream_zero_steps_v0_5_4_to_0_5_8.json": (
        "accepted",
        "no_stats(absent)",
    ),
    "engines/sglang/generate_stream.sse": ("accepted", "sglang 62/200 in 40"),
    "engines/sglang/proposed_pr34814_chat_nonstream_summary.json": ("accepted", "sglang 5/9 in 2"),
    "engines/sglang/proposed_pr34814_chat_stream_detailed.sse": ("accepted", "sglang 5/9 in 2"),
    "engines/sglang/proposed_pr34814_generate_detailed.json": ("accepted", "sglang 5/9 in 2"),
    # engines/smg
    "engines/smg/chat_nonstream_engine_without_counts.json": ("accepted", "no_stats(absent)"),
    "engines/smg/chat_nonstream_usage_prediction_tokens.json": ("accepted", "no_stats(absent)"),
    "engines/smg/chat_stream_usage_prediction_tokens.sse": ("accepted", "no_stats(absent)"),
    # engines/tensorrt_llm
    "engines/tensorrt_llm/chat_nonstream_n2_per_choice.json": ("accepted", "unattributable"),
    "engines/tensorrt_llm/chat_nonstream_pr19311.json": ("accepted", "tensorrt_llm 30/60 in 20"),
    "engines/tensorrt_llm/chat_nonstream_today_avg_only.json": ("accepted", "no_stats(absent)"),
    "engines/tensorrt_llm/chat_nonstream_zero_steps_absent.json": ("accepted", "no_stats(absent)"),
    "engines/tensorrt_llm/chat_stream_pr19311.sse": ("accepted", "tensorrt_llm 30/60 in 20"),
    "engines/tensorrt_llm/perf_metrics_record_fragment.json": ("bad_payload(unrecognised_shape)",),
    # engines/tgi
    "engines/tgi/chat_stream.sse": ("accepted", "no_stats(unsupported_engine)"),
    # engines/tokenspeed
    "engines/tokenspeed/generate_nonstream_no_verify_steps.json": ("accepted", "no_stats(absent)"),
    "engines/tokenspeed/generate_nonstream_pr1443.json": ("accepted", "tokenspeed 62/200 in 40"),
    # engines/vllm
    "engines/vllm/anthropic_messages_no_metrics.json": (
        "accepted",
        "no_stats(endpoint_without_stats)",
    ),
    "engines/vllm/chat_nonstream_all_rejected.json": ("accepted", "vllm 0/60 in 20"),
    "engines/vllm/chat_nonstream_detailed_with_timing.json": ("accepted", "vllm 30/60 in 20"),
    "engines/vllm/chat_nonstream_disabled_null.json": ("accepted", "no_stats(absent)"),
    "engines/vllm/chat_nonstream_n2_null.json": ("accepted", "no_stats(absent)"),
    "engines/vllm/chat_nonstream_summary.json": ("accepted", "vllm 30/60 in 20"),
    "engines/vllm/chat_nonstream_timing_only.json": ("accepted", "no_stats(absent)"),
    "engines/vllm/chat_nonstream_variable_draft_detailed.json": ("accepted", "vllm 7/12 in 6"),
    "engines/vllm/chat_nonstream_zero_steps.json": ("accepted", "vllm 0/0 in 0"),
    "engines/vllm/chat_stream_detailed_with_timing.sse": ("accepted", "vllm 30/60 in 20"),
    "engines/vllm/chat_stream_n2_no_metrics.sse": ("accepted", "no_stats(absent)"),
    "engines/vllm/chat_stream_summary.sse": ("accepted", "vllm 30/60 in 20"),
    "engines/vllm/chat_stream_without_include_usage.sse": (
        "accepted",
        "no_stats(stream_without_usage_chunk)",
    ),
    "engines/vllm/chat_stream_zero_steps.sse": ("accepted", "vllm 0/0 in 0"),
    "engines/vllm/completions_nonstream_summary.json": ("accepted", "vllm 30/60 in 20"),
    "engines/vllm/completions_stream_summary.sse": ("accepted", "vllm 30/60 in 20"),
    "engines/vllm/inference_generate_nonstream.json": ("accepted", "vllm 30/60 in 20"),
    "engines/vllm/prerelease_choice_speculative_decoding_stats.json": (
        "accepted",
        "vllm 30/60 in 20",
    ),
    "engines/vllm/responses_api_timing_only.json": ("accepted", "no_stats(endpoint_without_stats)"),
    # fleet/bodies
    "fleet/bodies/invalid_utf8.sse": ("accepted", "no_stats(stream_without_usage_chunk)"),
    "fleet/bodies/nul_and_controls.sse": ("accepted", "no_stats(stream_without_usage_chunk)"),
    "fleet/bodies/sse.br.bin": ("bad_payload(unsupported_encoding)",),
    "fleet/bodies/sse.deflate_raw.bin": ("accepted", "vllm 15/24 in 8"),
    "fleet/bodies/sse.deflate_zlib.bin": ("accepted", "vllm 15/24 in 8"),
    "fleet/bodies/sse.gzip.bin": ("accepted", "vllm 15/24 in 8"),
    "fleet/bodies/sse.zstd.bin": ("accepted", "vllm 15/24 in 8"),
    # fleet/chunks
    "fleet/chunks/envoy_tap_buffered_truncated.json": ("accepted", "incomplete(truncated)"),
    "fleet/chunks/envoy_tap_segments.jsonl": (
        "skipped(unrelated_event) + 6 x accepted + skipped(unrelated_event)",
        "vllm 15/24 in 8",
    ),
    "fleet/chunks/native_created_changes_every_chunk.jsonl": (
        "9 x accepted",
        "sglang 62/200 in 40",
    ),
    "fleet/chunks/native_gap.jsonl": ("5 x accepted", "vllm 15/24 in 8, gap"),
    "fleet/chunks/native_id_per_chunk.jsonl": ("7 x accepted", "tensorrt_llm 30/60 in 20"),
    "fleet/chunks/native_in_order.jsonl": ("6 x accepted", "vllm 15/24 in 8"),
    "fleet/chunks/native_n2_id_per_choice.jsonl": ("9 x accepted", "unattributable"),
    "fleet/chunks/native_out_of_order.jsonl": ("6 x accepted", "vllm 15/24 in 8"),
    "fleet/chunks/native_segments_cut_inside_a_character.jsonl": (
        "3 x accepted",
        "vllm 30/60 in 20",
    ),
    "fleet/chunks/utf8_split_part1.bin": ("accepted", "incomplete(idle_timeout)"),
    "fleet/chunks/utf8_split_part2.bin": ("accepted", "vllm 15/24 in 8"),
    # fleet/lines
    "fleet/lines/apisix_ai_proxy_llm_fields.json": ("accepted", "incomplete(empty_body)"),
    "fleet/lines/apisix_single.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/lines/apisix_truncated.json": ("accepted", "incomplete(truncated)"),
    "fleet/lines/dynamo_audit_v1_combined.jsonl": (
        "2 x accepted",
        "sglang 15/24 in 8",
        "incomplete(empty_body)",
    ),
    "fleet/lines/dynamo_audit_v1_split.jsonl": (
        "skipped(request_event) + accepted",
        "sglang 15/24 in 8",
    ),
    "fleet/lines/dynamo_request_trace.jsonl": (
        "3 x accepted + 2 x skipped(unrelated_event)",
        "sglang 15/24 in 8",
        "incomplete(empty_body)",
        "incomplete(empty_body)",
    ),
    "fleet/lines/envoy_ai_gateway_access_log.json": ("bad_payload(unrecognised_shape)",),
    "fleet/lines/helicone_kafka_value.json": ("bad_payload(unrecognised_shape)",),
    "fleet/lines/higress_access_log.json": ("bad_payload(unrecognised_shape)",),
    "fleet/lines/kong_single.json": ("accepted", "no_stats(absent)"),
    "fleet/lines/kserve_blob_batch.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/lines/kserve_blob_single.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/lines/litellm_slp.ndjson": ("2 x accepted", "no_stats(absent)", "no_stats(absent)"),
    "fleet/lines/litellm_slp_single.json": ("accepted", "no_stats(absent)"),
    "fleet/lines/sglang_log_requests_json.log": ("accepted", "sglang 15/24 in 8"),
    "fleet/lines/vllm_enable_log_outputs.log": ("bad_payload(unrecognised_format)",),
    # fleet/otlp
    "fleet/otlp/dynamo_audit_logs_otlp_json.json": ("accepted", "sglang 15/24 in 8"),
    "fleet/otlp/genai_operation_details_otlp_json.json": ("skipped(unrelated_event)",),
    # fleet/records
    "fleet/records/ce_batch.json": ("accepted", "vllm 15/24 in 8", "sglang 15/24 in 8"),
    "fleet/records/ce_empty_value.json": ("accepted", "incomplete(empty_body)"),
    "fleet/records/ce_missing_required.json": ("bad_payload(invalid_cloudevent)",),
    "fleet/records/ce_structured_b64_no_dct.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_structured_base64_sse.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_structured_broken_by_producer.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_structured_json_object.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_structured_no_dct_object.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_structured_no_headers.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_structured_null_attrs.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_structured_string_sse.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/ce_tombstone.json": ("skipped(tombstone)",),
    "fleet/records/ce_v03_base64.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/kserve_binary_no_content_type.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/kserve_binary_request.json": ("skipped(request_event)",),
    "fleet/records/kserve_binary_response_json.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/kserve_binary_response_sse.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/kserve_binary_response_sse_ct_eventstream.json": (
        "accepted",
        "sglang 15/24 in 8",
    ),
    "fleet/records/kserve_binary_with_statuscode.json": ("accepted", "failed_response"),
    "fleet/records/seldon_error_topic.json": ("bad_payload(unrecognised_format)",),
    "fleet/records/seldon_v2_output.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/timestamp_far_future.json": ("accepted", "vllm 15/24 in 8"),
    "fleet/records/timestamp_log_append.json": ("accepted", "vllm 15/24 in 8"),
    # fleet/sse
    "fleet/sse/01_vllm_plain.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/02_sglang_sglext.sse": ("accepted", "sglang 15/24 in 8"),
    "fleet/sse/03_sglang_named_event.sse": ("accepted", "sglang 15/24 in 8"),
    "fleet/sse/04_vllm_detailed_steps.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/05_missing_done.sse": ("accepted", "vllm 15/24 in 8, no_terminator"),
    "fleet/sse/06_disconnect_mid_json.sse": ("accepted", "incomplete(truncated)"),
    "fleet/sse/08_crlf.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/10_mixed_eol.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/11_multiline_data.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/12_comments.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/14_empty_data.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/15_id_retry_fields.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/16_no_space.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/19_nan_inf.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/20_error_mid_stream.sse": ("accepted", "failed_response"),
    "fleet/sse/21_error_event.sse": ("accepted", "failed_response"),
    "fleet/sse/23_error_only.sse": ("accepted", "failed_response"),
    "fleet/sse/24_no_usage_chunk.sse": ("accepted", "no_stats(stream_without_usage_chunk)"),
    "fleet/sse/26_usage_null.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/27_usage_in_final_choice.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/28_usage_after_done.sse": ("accepted", "no_stats(stream_without_usage_chunk)"),
    "fleet/sse/29_two_done.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/31_surrogate_pair_split.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/32_duplicate_keys.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/33_reasoning_both_names.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/35_duplicate_chunk.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/36_n2_interleaved.sse": ("accepted", "no_stats(absent)"),
    "fleet/sse/37_sglang_n2_spec_list.sse": ("accepted", "unattributable"),
    "fleet/sse/38_id_changes_retry.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/40_http_chunk_framing.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/41_json_in_sse_type.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/42_ndjson.sse": ("accepted", "vllm 15/24 in 8, no_terminator"),
    "fleet/sse/43_html.sse": ("accepted", "failed_response"),
    "fleet/sse/44_whitespace_only.sse": ("skipped(keep_alive)",),
    "fleet/sse/45_anthropic.sse": ("accepted", "no_stats(endpoint_without_stats)"),
    "fleet/sse/46_responses_api.sse": ("accepted", "no_stats(endpoint_without_stats)"),
    "fleet/sse/47_text_completions.sse": ("accepted", "vllm 15/24 in 8"),
    "fleet/sse/49_stats_zero_steps.sse": ("accepted", "vllm 0/0 in 0"),
    "fleet/sse/50_adaptive_k.sse": ("accepted", "vllm 15/17 in 8"),
    "fleet/sse/sglang_native_generate_cumulative.sse": ("accepted", "sglang 15/24 in 8"),
    # formats
    "formats/akto/mirrors.jsonl": (
        "3 x accepted",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
        "failed_response",
    ),
    "formats/databricks/ai_gateway.jsonl": (
        "3 x accepted",
        "vllm 15/24 in 8",
        "failed_response",
        "incomplete(empty_body)",
    ),
    "formats/databricks/custom_model.json": ("accepted", "vllm 15/24 in 8"),
    "formats/dynamo_audit/file_sink.jsonl": ("accepted", "vllm 15/24 in 8"),
    "formats/dynamo_trace/file_sink.jsonl": (
        "accepted + skipped(unrelated_event)",
        "vllm 15/24 in 8",
    ),
    "formats/envoy_tap/buffered.jsonl": ("2 x accepted", "vllm 15/24 in 8", "vllm 15/24 in 8"),
    "formats/envoy_tap/streamed_as_string.jsonl": (
        (
            "2 x skipped(request_event) + skipped(unrelated_event) + 3 x accepted + "
            "skipped(unrelated_event)"
        ),
        "vllm 15/24 in 8",
    ),
    "formats/kong/batch.json": ("accepted", "vllm 15/24 in 8", "vllm 15/24 in 8"),
    "formats/kong/not_streamed.json": ("accepted", "vllm 15/24 in 8"),
    "formats/kong/without_payloads.json": ("accepted", "incomplete(empty_body)"),
    "formats/openai_batch/vllm_run_batch.jsonl": (
        "2 x accepted + skipped(embeddings) + accepted",
        "vllm 15/24 in 8",
        "failed_response",
        "vllm 15/24 in 8",
    ),
    "formats/otlp/logs.bin": (
        "accepted",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
    ),
    "formats/otlp/logs.json": (
        "accepted",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
    ),
    "formats/otlp/two_batches.jsonl": ("accepted + skipped(unrelated_event)", "vllm 15/24 in 8"),
    "formats/sagemaker/captures.jsonl": (
        "2 x accepted + skipped(unrelated_body)",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
    ),
    "formats/sagemaker/inference_id.json": ("accepted", "vllm 15/24 in 8"),
    "formats/sglang_log/level_0_without_text.json": ("accepted", "sglang 15/24 in 8"),
    "formats/sglang_log/received_and_finished.log": (
        "skipped(request_event) + 2 x accepted",
        "sglang 15/24 in 8",
        "sglang 15/24 in 8",
    ),
    "formats/sglang_metrics/export.jsonl": (
        "2 x accepted",
        "sglang 15/24 in 8",
        "no_stats(absent)",
    ),
    "formats/v2_inference/bytes.jsonl": (
        "2 x accepted + 2 x skipped(inference)",
        "vllm 15/24 in 8",
        "vllm 15/24 in 8",
    ),
    "formats/v2_inference/triton_generate.jsonl": (
        "accepted + skipped(triton_generate)",
        "vllm 15/24 in 8",
    ),
    # formats
    "formats/kserve_blob/names_as_in_go.json": ("accepted", "vllm 15/24 in 8"),
}


def expanded(outcomes: str) -> list[str]:
    """Return the outcomes that `accepted + 2 x skipped` stands for."""
    groups = [re.fullmatch(r"(?:(\d+) x )?(.*)", group) for group in outcomes.split(" + ")]
    return [group[2] for group in groups if group for _ in range(int(group[1] or 1))]


def request_outcomes(partition: Partition) -> list[str]:
    partition.close_all()
    return [described(result) for result in partition.drain()]


def described(result: RequestResult) -> str:
    record = result.record
    if record is None:
        return short(result)
    text = f"{record.engine} {record.num_accepted_draft_tokens}/{record.num_draft_tokens}"
    incomplete = f", {record.incomplete_reason}" if record.incomplete_reason else ""
    return f"{text} in {record.num_spec_steps}{incomplete}"


def test_every_sample_has_its_expectation() -> None:
    assert samples.names() == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sample_ends_as_expected(name: str) -> None:
    messages = samples.messages(name)
    partition = pipeline().partition(TOPIC, 0, messages[0].offset())
    outcomes = [short_message(partition.feed(each)) for each in messages]
    of_messages, *of_requests = EXPECTED[name]
    assert outcomes == expanded(of_messages)
    assert request_outcomes(partition) == of_requests


# The same bodies in other envelopes

Sent = Callable[[bytes], list[CapturedMessage]]


def in_binary_cloudevent(body: bytes) -> list[CapturedMessage]:
    headers = [*cloudevent_headers(), ("content-type", b"application/json")]
    return [message(body, headers=headers)]


def in_segments(body: bytes) -> list[CapturedMessage]:
    borders = [*range(0, len(body), 100), len(body)]
    pieces = [body[a:b] for a, b in pairwise(borders)]
    last = len(pieces) - 1
    return [
        message(native_segment(piece, sequence=number, final=number == last), number)
        for number, piece in enumerate(pieces)
    ]


def compressed(body: bytes) -> list[CapturedMessage]:
    return [message(gzip.compress(body))]


BODIES: Final = [
    name
    for name in EXPECTED
    if EXPECTED[name][0] == "accepted" and ("/sse/" in name or name.startswith("engines/"))
]


@pytest.mark.parametrize("sent", [in_binary_cloudevent, in_segments, compressed])
@pytest.mark.parametrize("name", BODIES)
def test_the_envelope_does_not_change_the_response(name: str, sent: Sent) -> None:
    body = (SAMPLES / name).read_bytes()
    partition = pipeline().partition(TOPIC, 0, 0)
    outcomes = [short_message(partition.feed(each)) for each in sent(body)]
    assert set(outcomes) <= {"accepted", "skipped(late_repeat)"}  # What follows an end marker.
    [expected] = EXPECTED[name][1:]
    if sent is in_segments:  # The event says that it is the last, so that nothing is missing.
        expected = expected.removesuffix(", no_terminator")
    assert request_outcomes(partition) == [expected]


def test_two_network_chunks_that_cut_a_character_are_one_response() -> None:
    partition = pipeline().partition(TOPIC, 0, 0)
    for number in (1, 2):
        piece = (SAMPLES / f"fleet/chunks/utf8_split_part{number}.bin").read_bytes()
        partition.feed(message(native_segment(piece), number))
    assert request_outcomes(partition) == ["vllm 15/24 in 8"]
