"""The table of log formats: what gateways, engines and loggers write around a response.

A row is data; `format_reader` reads it. Paths are as `member_paths.parse_path` takes them, and of
several the first that exists counts. Envelopes with rules of their own have modules, and a row
only to describe them.

To add a format: a row here, samples and their outcomes in the tests, and `make format`. To change a
row: also raise `STATE_VERSION`, since the same messages give other events.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from consumer.core.envelopes.joiners import aiperf_body, sglang_body
from schemas import SkipReason


class Skip(Struct, frozen=True):
    """Entries of a format that are not responses.

    Attributes:
        path: member that tells; of several joined by ` | `, the first that exists.
        reason: why they are skipped.
        values: its texts on such entries, with numbers and booleans as JSON writes them; without
            texts, its presence tells.
        absent: whether its absence tells instead.

    """

    path: str
    reason: SkipReason
    values: tuple[str, ...] = ()
    absent: bool = False


class Format(Struct, frozen=True, kw_only=True):
    """One log format.

    Attributes:
        name: name in the setting `envelope`, in metrics and in `explain`.
        title: what it is, for people.
        signature: members that an entry must have, with their JSON types: `text`, `number`,
            `boolean`, `object`, `array` or `any`, several joined by `|`; `null` allows null and
            absence. Names of one member in several versions are joined by ` | `. The first is
            looked up before the others, so it is the rarest name.
        entries: path of an array whose entries are the events; the paths below begin in an entry,
            and where they lead nowhere there, at the top.
        body: response as the server sent it: JSON, or text that holds JSON or server-sent events.
        body_base64: the same bytes in base64.
        base64_if: member that says whether `body` is base64: true, or the text `base64`.
        join: makes the body of what `body` leads to, or of the entry if `body` is empty, where a
            format does not hold the body in one piece.
        request_id: id of the request; without one, the body's own id counts.
        model: model that the client requested.
        endpoint: endpoint that was called.
        instance: serving instance.
        status: HTTP status.
        timestamp: when the response was sent.
        sequence: place among the events of an attempt, from 0.
        final: whether it is the attempt's last event.
        attempt: number of the attempt.
        labels: paths of members that become labels, by label.
        all_labels: path of an object whose members become labels.
        whole: whether an entry holds all of its response, and not one chunk or piece of it.
        others: why an entry is skipped whose body is not a response, where the source logs calls
            of other APIs as well.
        skips: entries that are not responses.
        switch_on: the setting of the source that makes it write this, in one sentence.
        survives: which acceptance numbers survive in it, in one sentence.
        tried_on: the software, with its version, whose output the tests hold.
        documents: documentation, source or reports after which the row and its samples were made.

    """

    name: str
    title: str
    signature: Mapping[str, str]
    entries: str | None = None
    body: tuple[str, ...] = ()
    body_base64: tuple[str, ...] = ()
    base64_if: str | None = None
    join: Callable[[bytes], bytes] | None = None
    request_id: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    endpoint: tuple[str, ...] = ()
    instance: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    timestamp: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    attempt: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    all_labels: str | None = None
    whole: bool = True
    others: SkipReason | None = None
    skips: tuple[Skip, ...] = ()
    switch_on: str = ""
    survives: str = ""
    tried_on: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()


_REQUEST_HEADER: Final = "x-request-id"
_BODY: Final = "object|array|text|null"

FORMATS: Final[tuple[Format, ...]] = (
    Format(
        name="litellm",
        title="LiteLLM StandardLoggingPayload",
        signature={"call_type": "text", "startTime": "any", "response": _BODY},
        body=("response",),
        request_id=("litellm_call_id", "id"),
        model=("model_group", "model"),
        instance=("api_base",),
        status=("error_information.error_code",),
        timestamp=("endTime",),
        others=SkipReason.UNRELATED_BODY,
        switch_on="`callbacks: [generic_api]` with `log_format` `json_array`, `ndjson` or "
        "`single`, or a callback of your own that sends `standard_logging_object`",
        survives="not streamed: all, with the unknown members of a choice in "
        "`provider_specific_fields`; streamed: nothing",
        tried_on=("LiteLLM proxy 1.108.7",),
        documents=("https://docs.litellm.ai/docs/proxy/logging_spec",),
    ),
    Format(
        name="kserve_blob",
        title="KServe inference logger, blob storage as JSON",
        signature={
            "reqType | ReqType": "text",
            "inferenceService | InferenceService": "text",
            "bytes | Bytes": "text|null",
        },
        body_base64=("bytes", "Bytes"),
        request_id=("id", "Id"),
        endpoint=("endpoint", "Endpoint"),
        timestamp=("occurrenceTime",),
        labels={
            "inferenceservicename": "inferenceService | InferenceService",
            "namespace": "namespace | Namespace",
            "component": "component | Component",
        },
        skips=(
            Skip(
                path="reqType | ReqType",
                values=("org.kubeflow.serving.inference.request",),
                reason=SkipReason.REQUEST_EVENT,
            ),
        ),
        others=SkipReason.UNRELATED_BODY,
        switch_on="`logger.storage` of the InferenceService, in the format `json`",
        survives="all, byte for byte",
        documents=("https://github.com/kserve/kserve/tree/master/pkg/logger",),
    ),
    Format(
        name="apisix",
        title="Apache APISIX kafka-logger",
        signature={"apisix_latency": "any", "request": "object", "response": "object"},
        body=("response.body",),
        request_id=(
            f"request.headers.{_REQUEST_HEADER}",
            f"response.headers.{_REQUEST_HEADER}",
        ),
        endpoint=("request.uri",),
        instance=("upstream",),
        status=("response.status",),
        timestamp=("start_time",),
        others=SkipReason.UNRELATED_BODY,
        switch_on="`include_resp_body: true` of the plugin `kafka-logger`",
        survives="all, up to the cut at `max_resp_body_bytes` (512 KiB); the texts that the "
        "plugin `ai-proxy` logs have no numbers",
        documents=("https://apisix.apache.org/docs/apisix/plugins/kafka-logger/",),
    ),
    Format(
        name="access_log",
        title="access log with the response body, as APISIX's log_format writes it",
        signature={"response_body": "text|object"},
        body=("response_body",),
        request_id=("request_id", _REQUEST_HEADER, "x_request_id"),
        endpoint=("uri", "request_uri", "request"),
        instance=("upstream_addr", "upstream_name"),
        status=("status",),
        timestamp=("@timestamp", "timestamp", "time"),
        others=SkipReason.UNRELATED_BODY,
        switch_on="a log format with the member `response_body`",
        survives="all, up to the gateway's limit on bodies",
        documents=("https://github.com/apache/apisix/issues/7198",),
    ),
    Format(
        name="kong",
        title="Kong kafka-log",
        signature={"started_at": "number", "client_ip": "text", "response": "object"},
        body=("ai.proxy.payload.response", "ai.ai-proxy.payload.response", "ai.payload.response"),
        request_id=(f"request.headers.{_REQUEST_HEADER}", "request.id"),
        model=("ai.proxy.meta.request_model", "ai.ai-proxy.meta.request_model"),
        endpoint=("request.uri",),
        instance=("service.host",),
        status=("response.status",),
        timestamp=("started_at",),
        skips=(Skip(path="ai", absent=True, reason=SkipReason.UNRELATED_EVENT),),
        others=SkipReason.UNRELATED_BODY,
        switch_on="the plugin `kafka-log`, and `logging.log_payloads: true` of `ai-proxy`",
        survives="not streamed: all; streamed: nothing, since Kong rebuilds the response",
        documents=(
            "https://developer.konghq.com/plugins/kafka-log/",
            "https://github.com/Kong/kong/tree/master/kong/llm",
        ),
    ),
    Format(
        name="sglang_log",
        title="SGLang request log",
        signature={"rid": "text|array", "event": "text", "obj": "any"},
        body=("out",),
        request_id=("rid",),
        timestamp=("timestamp",),
        skips=(
            Skip(
                path="event",
                values=("request.received", "request.received.openai"),
                reason=SkipReason.REQUEST_EVENT,
            ),
        ),
        switch_on="`--log-requests --log-requests-format json`, at any level",
        survives="all that SGLang counts, also where the client asked for nothing",
        tried_on=("SGLang 0.5.23, its own logger",),
        documents=("source of SGLang 0.5.23",),
    ),
    Format(
        name="sglang_metrics",
        title="SGLang metrics export",
        signature={"request_parameters": "text", "finish_reason": "object|text|null"},
        join=sglang_body,
        request_id=("id",),
        switch_on="`--export-metrics-to-file --export-metrics-to-file-dir DIR`",
        survives="all that SGLang counts, also where the client asked for nothing",
        tried_on=("SGLang 0.5.23, its own exporter",),
        documents=("source of SGLang 0.5.23",),
    ),
    Format(
        name="dynamo_audit",
        title="NVIDIA Dynamo audit record",
        signature={"requested_streaming": "boolean", "schema_version": "number"},
        body=("response",),
        request_id=("request_id",),
        model=("model",),
        skips=(Skip(path="event_type", values=("request",), reason=SkipReason.REQUEST_EVENT),),
        switch_on="`DYN_AUDIT_SINKS` and `DYN_AUDIT_FORCE_LOGGING`, until the middle of 2026",
        survives="what Dynamo keeps of a response: of chat completions, no numbers",
        documents=("https://github.com/ai-dynamo/dynamo/tree/main/lib/llm/src",),
    ),
    Format(
        name="dynamo_trace",
        title="NVIDIA Dynamo request trace",
        signature={"event_time_unix_ms": "number", "schema": "text", "event_type": "text"},
        body=("payload.response",),
        request_id=("payload.request_id",),
        model=("payload.model",),
        endpoint=("payload.endpoint",),
        timestamp=("event_time_unix_ms",),
        skips=(Skip(path="payload", absent=True, reason=SkipReason.UNRELATED_EVENT),),
        switch_on="`DYN_REQUEST_TRACE_RECORDS` with `request_payload`, and "
        "`DYN_REQUEST_TRACE_SINKS`",
        survives="what Dynamo keeps of a response: of chat completions, no numbers",
        documents=("https://docs.nvidia.com/dynamo/v1.7.0/reference/observability/request-traces",),
    ),
    Format(
        name="databricks",
        title="Databricks inference table",
        signature={"databricks_request_id": "text", "response": _BODY},
        body=("response",),
        request_id=("client_request_id", "databricks_request_id"),
        model=("request_metadata.model_name",),
        endpoint=("request_metadata.endpoint_name",),
        status=("status_code",),
        timestamp=("request_time", "timestamp_ms"),
        others=SkipReason.UNRELATED_BODY,
        switch_on="inference tables of the endpoint, and a job that writes their rows to Kafka",
        survives="all that the endpoint passes on, up to 1 MiB",
        documents=("https://docs.databricks.com/aws/en/ai-gateway/inference-tables",),
    ),
    Format(
        name="sagemaker",
        title="Amazon SageMaker data capture",
        signature={"captureData": "object", "eventMetadata": "object"},
        body=("captureData.endpointOutput.data",),
        base64_if="captureData.endpointOutput.encoding",
        request_id=("eventMetadata.inferenceId", "eventMetadata.eventId"),
        timestamp=("eventMetadata.inferenceTime",),
        skips=(
            Skip(
                path="captureData.endpointOutput",
                absent=True,
                reason=SkipReason.REQUEST_EVENT,
            ),
        ),
        others=SkipReason.UNRELATED_BODY,
        switch_on="`DataCaptureConfig` with `CaptureMode: Output`",
        survives="all, byte for byte",
        documents=(
            "https://docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture.html",
        ),
    ),
    Format(
        name="openai_batch",
        title="output of OpenAI's batch API and of vLLM's run-batch",
        signature={"custom_id": "text", "response": "object|null", "error": "any|null"},
        body=("response.body", "error"),
        request_id=("response.request_id", "id"),
        status=("response.status_code",),
        labels={"custom_id": "custom_id"},
        others=SkipReason.UNRELATED_BODY,
        switch_on="`vllm run-batch -o FILE`",
        survives="all",
        tried_on=("vLLM 0.33.0, its own classes",),
        documents=("https://docs.vllm.ai/en/latest/examples/offline_inference/openai_batch/",),
    ),
    Format(
        name="v2_inference",
        title="Open Inference Protocol (V2), as Seldon Core and Triton write it",
        signature={"outputs.0.data.0": "text", "model_name": "text"},
        body=("outputs.0.data.0",),
        request_id=("id",),
        others=SkipReason.INFERENCE,
        switch_on="Seldon Core 2 writes it to `seldon.NAMESPACE.model.NAME.outputs`",
        survives="all, where the first tensor holds the response as text",
        documents=("https://github.com/SeldonIO/seldon-core",),
    ),
    Format(
        name="triton_generate",
        title="Triton generate extension",
        signature={"text_output": "text", "model_name": "text"},
        body=("text_output",),
        request_id=("id",),
        others=SkipReason.TRITON_GENERATE,
        switch_on="the endpoint `/v2/models/NAME/generate`",
        survives="all, where the model returns the response as text; plain text has no numbers",
        documents=("triton-inference-server/server, docs/protocol/extension_generate.md",),
    ),
    Format(
        name="envoy_tap",
        title="Envoy tap, buffered",
        signature={"http_buffered_trace": "object"},
        body=("http_buffered_trace.response.body.as_string",),
        body_base64=("http_buffered_trace.response.body.as_bytes",),
        request_id=(f"http_buffered_trace.request.headers.{_REQUEST_HEADER}",),
        endpoint=("http_buffered_trace.request.headers.:path",),
        status=("http_buffered_trace.response.headers.:status",),
        others=SkipReason.UNRELATED_BODY,
        switch_on="the filter `envoy.filters.http.tap`, with `max_buffered_tx_bytes` above 1 KiB",
        survives="all, up to `max_buffered_tx_bytes`",
        tried_on=("Envoy 1.40.0",),
        documents=("envoyproxy/envoy, api/envoy/data/tap/v3/http.proto",),
    ),
    Format(
        name="envoy_tap_segments",
        title="Envoy tap, streamed",
        signature={"http_streamed_trace_segment": "object"},
        body=("http_streamed_trace_segment.response_body_chunk.as_string",),
        body_base64=("http_streamed_trace_segment.response_body_chunk.as_bytes",),
        request_id=("http_streamed_trace_segment.trace_id",),
        whole=False,
        skips=(
            *(
                Skip(path=f"http_streamed_trace_segment.{name}", reason=SkipReason.REQUEST_EVENT)
                for name in ("request_headers", "request_body_chunk", "request_trailers")
            ),
            Skip(
                path="http_streamed_trace_segment.response_body_chunk",
                absent=True,
                reason=SkipReason.UNRELATED_EVENT,
            ),
        ),
        switch_on="the filter `envoy.filters.http.tap` with `streaming: true`",
        survives="all; its ids are unique only within one Envoy, so that each needs a partition",
        tried_on=("Envoy 1.40.0",),
        documents=("envoyproxy/envoy, api/envoy/data/tap/v3/http.proto",),
    ),
    Format(
        name="aiperf",
        title="AIPerf raw export",
        signature={"start_perf_ns": "number", "responses": "array", "metadata": "object"},
        join=aiperf_body,
        request_id=("metadata.x_request_id",),
        status=("status",),
        timestamp=("metadata.request_end_ns",),
        labels={"benchmark_phase": "metadata.benchmark_phase"},
        others=SkipReason.UNRELATED_BODY,
        switch_on="`aiperf profile --export-level raw`",
        survives="all, as the server sent it",
        tried_on=("AIPerf 0.13.0",),
    ),
    Format(
        name="akto",
        title="Akto traffic mirror",
        signature={"akto_vxlan_id": "any", "responsePayload": "text|object"},
        body=("responsePayload.body", "responsePayload"),
        request_id=(f"requestHeaders.{_REQUEST_HEADER}",),
        endpoint=("path",),
        status=("statusCode",),
        timestamp=("time",),
        others=SkipReason.UNRELATED_BODY,
        switch_on="Akto's traffic collectors write it to the topic `akto.api.logs`",
        survives="all, as the server sent it",
        documents=("https://github.com/akto-api-security",),
    ),
)

# Envelopes that have rules of their own, and modules that follow them.
ENVELOPES: Final[tuple[Format, ...]] = (
    Format(
        name="native",
        title="native event, the contract of this service",
        signature={},
        body=("body",),
        body_base64=("body_base64",),
        whole=False,
        switch_on="your own logging, as schemas/README.md describes it",
        survives="all",
        tried_on=("the fleet of `demo`",),
    ),
    Format(
        name="cloudevents",
        title="CloudEvents 1.0 and 0.3: binary, structured, batched",
        signature={},
        body=("data",),
        body_base64=("data_base64",),
        switch_on="KServe: `logger` of the InferenceService, through a Knative broker or KafkaSink",
        survives="all, byte for byte",
        tried_on=(
            "KServe agent 0.16.0",
            "Python cloudevents 2.2.0",
            "cloudevents-kafka 4.0.1 (Java)",
        ),
    ),
    Format(
        name="body",
        title="bare body, the response or a chunk as the server sent it",
        signature={},
        whole=False,
        switch_on="a log shipper or proxy that writes bodies and nothing else",
        survives="all",
        tried_on=("responses of vLLM 0.33.0, SGLang 0.5.23 and llama.cpp",),
    ),
    Format(
        name="otlp",
        title="OTLP log records, as JSON or Protobuf",
        signature={},
        body=("body", "attributes"),
        whole=False,
        switch_on="the Kafka exporter of the OpenTelemetry Collector, in any encoding",
        survives="all, where the body of a record, or an attribute, holds one of these formats",
        tried_on=("OpenTelemetry Collector 0.165.0",),
    ),
)


def format_names() -> tuple[str, ...]:
    """Return the names of all envelopes and formats, in the order in which they are tried."""
    return tuple(form.name for form in (*ENVELOPES, *FORMATS))
