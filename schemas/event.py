"""The native response event: the contract for a fleet that writes its own log to Kafka."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from schemas.record import Count


class ResponseEvent(Struct, kw_only=True, omit_defaults=True):
    """One Kafka message of a fleet that logs one message per chunk or per response, as JSON.

    Set either `body` or `body_base64`, or neither on an event that is only an end marker (`final`)
    or a failure (`status`). The service ignores unknown members. Key the topic by `request_id`, so
    that all events of a request share a partition.
    """

    request_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            description="Id of the request, the same on all of its events.",
        ),
    ]
    body: Annotated[
        dict[str, Any] | list[dict[str, Any]] | str | None,
        Meta(
            description="What the server sent: a response or one chunk as a JSON object, whole "
            'lines of server-sent events as a string, or the end marker "[DONE]".'
        ),
    ] = None
    body_base64: Annotated[
        str | None,
        Meta(description="Raw bytes of the response in base64, cut at any byte."),
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
        str | None,
        Meta(description="Serving engine, for information only; adapters do not use it."),
    ] = None
    model: Annotated[str | None, Meta(description="Model that the client requested.")] = None
    instance: Annotated[str | None, Meta(description="Serving instance, such as a pod name.")] = (
        None
    )
    endpoint: Annotated[
        str | None, Meta(description="Endpoint that was called, such as /v1/chat/completions.")
    ] = None
    status: Annotated[
        int | None, Meta(description="HTTP status; from 400, the response failed.")
    ] = None
    labels: Annotated[
        dict[str, str] | None, Meta(description="Labels to copy into the record.")
    ] = None
