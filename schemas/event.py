"""The native response event: the contract for a fleet that logs to Kafka by itself."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from schemas.record import Count


class ResponseEvent(Struct, kw_only=True, omit_defaults=True):
    """One Kafka message of a fleet that logs one message per chunk or per response, as JSON.

    One of `body` and `body_base64` is given, or neither on an event that is only an end mark
    (`final`) or a failure (`status`). Unknown members are ignored. Key the topic by
    `request_id`, so that all events of a request share a partition.
    """

    request_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            description="Id of the request, equal on all of its events.",
        ),
    ]
    body: Annotated[
        dict[str, Any] | list[dict[str, Any]] | str | None,
        Meta(
            description="What the server sent: a response or one chunk as a JSON object, whole "
            'lines of server-sent events as a string, or the end mark "[DONE]".'
        ),
    ] = None
    body_base64: Annotated[
        str | None,
        Meta(description="Raw bytes of the response, cut anywhere, in base64."),
    ] = None
    sequence: Annotated[
        Count | None,
        Meta(description="Place of this event among those of its attempt, from 0."),
    ] = None
    final: Annotated[bool | None, Meta(description="Whether this is the attempt's last event.")] = (
        None
    )
    timestamp: Annotated[
        str | int | None,
        Meta(description="When the server sent it: RFC 3339, or milliseconds since 1970."),
    ] = None
    attempt: Annotated[
        Count | None,
        Meta(description="Attempt at this request, where a gateway retries under one id."),
    ] = None
    engine: Annotated[
        str | None, Meta(description="Serving engine; informative, adapters do not trust it.")
    ] = None
    model: Annotated[str | None, Meta(description="Model that was asked for.")] = None
    instance: Annotated[str | None, Meta(description="Serving instance, such as a pod name.")] = (
        None
    )
    endpoint: Annotated[
        str | None, Meta(description="Endpoint that was called, such as /v1/chat/completions.")
    ] = None
    status: Annotated[
        int | None, Meta(description="HTTP status; 400 and above is a failed response.")
    ] = None
    labels: Annotated[
        dict[str, str] | None, Meta(description="Labels to copy into the record.")
    ] = None
