"""The dead letter: how to find, read and replay an unusable message or request."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from schemas.record import SCHEMA_VERSION, Count


class DeadLetter(Struct, kw_only=True, frozen=True, gc=False):
    """The message on the dead-letter topic: one flat JSON object in which every field is present.

    The kind `message` is an input message that could not be read, with its bytes unless it is only
    referenced. The kind `request` is a finished request whose statistics could not be used, with
    the numbers of those statistics and none of its content.
    """

    kind: Annotated[Literal["message", "request"], Meta(description="What the letter is about.")]
    outcome: Annotated[str, Meta(description="Outcome of the message or request.")]
    reason: Annotated[
        str | None, Meta(description="Reason of the outcome; one of its closed list.")
    ]
    detail: Annotated[
        str | None, Meta(description="What exactly is wrong, without text of the payload.")
    ]
    fleet: Annotated[str, Meta(description="Name of the fleet.")]
    source_topic: Annotated[str, Meta(description="Input topic.")]
    source_partition: Annotated[Count, Meta(description="Input partition.")]
    source_first_offset: Annotated[
        Count, Meta(description="Offset of the message, or of the first one.")
    ]
    source_last_offset: Annotated[
        Count, Meta(description="Offset of the message, or of the last one.")
    ]
    source_index: Annotated[
        Count | None,
        Meta(description="Place of the first event inside its message; null for kind message."),
    ]
    source_timestamp: Annotated[
        int | None,
        Meta(
            description="Kafka timestamp of the first message in milliseconds since 1970, or null."
        ),
    ]
    request_id: Annotated[str | None, Meta(description="Id of the request, where known.")]
    response_id: Annotated[str | None, Meta(description="Id of the response, where known.")]
    model: Annotated[str | None, Meta(description="Model, where known.")]
    record_id: Annotated[
        str,
        Meta(
            description="Id of the letter, like that of a record; for kind message the index is -."
        ),
    ]
    size: Annotated[
        Count | None, Meta(description="Size of the value in bytes; null for kind request.")
    ]
    digest: Annotated[
        str | None,
        Meta(description="blake2b-128 of the value in hexadecimal; null for kind request."),
    ]
    truncated: Annotated[
        bool,
        Meta(description="Whether value_base64 is cut, or omitted because it is only referenced."),
    ]
    key_base64: Annotated[str | None, Meta(description="Key of the message in base64.")]
    value_base64: Annotated[
        str | None,
        Meta(description="Value of the message in base64; null if it is only referenced."),
    ]
    headers: Annotated[
        list[tuple[str, str | None]] | None,
        Meta(description="Headers with base64 values; credentials are masked."),
    ]
    stats: Annotated[
        dict[str, Any] | None,
        Meta(description="Statistics by place, numbers only; null for kind message."),
    ]
    schema_version: Annotated[int, Meta(description="Version of this schema.")] = SCHEMA_VERSION
