"""The table of log formats: what gateways, engines and loggers write around a response.

A row is data; `format_reader` reads it. Paths are as `member_paths.parse_path` takes them, and of
several the first that exists counts. Native events, CloudEvents and bare bodies have modules of
their own, since they have rules of their own.

To add a format: a row here, samples and their outcomes in the tests, and `make format`.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from schemas import SkipReason


class Skip(Struct, frozen=True):
    """Entries of a format that are not responses.

    Attributes:
        path: member that tells.
        values: its texts on such entries; numbers and booleans as JSON writes them.
        reason: why they are skipped.

    """

    path: str
    values: tuple[str, ...]
    reason: SkipReason


class Format(Struct, frozen=True, kw_only=True):
    """One log format.

    Attributes:
        name: name in the setting `envelope`, in metrics and in `explain`.
        title: what it is, for people.
        signature: members that an entry must have, with their JSON types: `text`, `number`,
            `boolean`, `object`, `array` or `any`, several joined by `|`; `null` allows null and
            absence. The first is looked up before the others, so it is the rarest name.
        entries: path of an array whose entries are the events; the paths below begin in an entry,
            and where they lead nowhere there, at the top.
        body: response as the server sent it: JSON, or text that holds JSON or server-sent events.
        body_base64: the same bytes in base64.
        base64_if: member that says whether `body` is base64: true, or the text `base64`.
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
        skips: entries that are not responses.
        switch_on: the setting of the source that makes it write this, in one sentence.
        survives: which acceptance numbers survive in it, in one sentence.
        sources: what it was tried on: real software with its version, a report, or documentation.

    """

    name: str
    title: str
    signature: Mapping[str, str]
    entries: str | None = None
    body: tuple[str, ...] = ()
    body_base64: tuple[str, ...] = ()
    base64_if: str | None = None
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
    skips: tuple[Skip, ...] = ()
    switch_on: str = ""
    survives: str = ""
    sources: tuple[str, ...] = ()


FORMATS: Final[tuple[Format, ...]] = (
    Format(
        name="litellm",
        title="LiteLLM StandardLoggingPayload",
        signature={"call_type": "text", "response": "object|text|null", "startTime": "any"},
        body=("response",),
        request_id=("litellm_call_id", "id"),
        model=("model_group", "model"),
        instance=("api_base",),
        timestamp=("endTime",),
        switch_on="`callbacks: [generic_api]` with `log_format` `json_array`, `ndjson` or `single`",
        survives="all that LiteLLM keeps of a response that is not streamed; nothing of a stream",
        sources=("LiteLLM proxy 1.108.7",),
    ),
    Format(
        name="apisix",
        title="Apache APISIX kafka-logger, or a logger with its members",
        signature={"route_id": "any", "response": "object", "request": "object"},
        body=("response.body",),
        request_id=("request.headers.x-request-id", "response.headers.x-request-id"),
        endpoint=("request.uri",),
        instance=("upstream",),
        status=("response.status",),
        timestamp=("start_time",),
        switch_on="`include_resp_body: true` of `kafka-logger`",
        survives="all, up to the plugin's cut at `max_resp_body_bytes`",
        sources=("documentation of Apache APISIX 3",),
    ),
    Format(
        name="access_log",
        title="access log of a gateway with the response body, as APISIX's log_format writes it",
        signature={"response_body": "text"},
        body=("response_body",),
        request_id=("request_id", "x-request-id", "x_request_id"),
        endpoint=("uri", "request_uri", "request"),
        instance=("upstream_addr", "upstream_name"),
        status=("status",),
        timestamp=("@timestamp", "timestamp", "time"),
        switch_on="a log format with the member `response_body`",
        survives="all, up to the gateway's limit on the body",
        sources=("documentation of Apache APISIX 3",),
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
        switch_on="`--log-requests --log-requests-format json --log-requests-level 2`",
        survives="all that SGLang counts",
        sources=("SGLang 0.5.23",),
    ),
)

OWN_MODULES: Final = ("native", "cloudevents", "body")  # Envelopes that have rules of their own.


def format_names() -> tuple[str, ...]:
    """Return the names of all envelopes and formats, in the order in which they are tried."""
    return (*OWN_MODULES, *(form.name for form in FORMATS))
