"""The dead letter: everything needed to find, read and replay what could not be used."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from schemas.record import SCHEMA_VERSION, Count


class DeadLetter(Struct, kw_only=True, frozen=True, gc=False):
    """The message on the dead-letter topic: one flat JSON object, every field always present.

    Of kind `message`: one input message that could not be read, with its bytes unless only
    referenced. Of kind `request`: a finished request whose statistics could not be used, with the
    numbers of those statistics and nothing of its content.
    """

    kind: Annotated[Literal["message", "request"], Meta(description="What the letter is about.")]
    outcome: Annotated[str, Meta(description="Outcome of the message or request.")]
    reason: Annotated[str | None, Meta(description="Reason from the closed list.")]
    detail: Annotated[str | None, Meta(description="What exactly was wrong, without payload text.")]
    fleet: Annotated[str, Meta(description="Name of the fleet.")]
    source_topic: Annotated[str, Meta(description="Input topic.")]
    source_partition: Annotated[Count, Meta(description="Input partition.")]
    source_first_offset: Annotated[Count, Meta(description="Offset of the (first) message.")]
    source_last_offset: Annotated[Count, Meta(description="Offset of the (last) message.")]
    source_index: Annotated[
        Count | None, Meta(description="Place inside the first message; null for a message.")
    ]
    source_timestamp: Annotated[
        int | None, Meta(description="Kafka timestamp, milliseconds since 1970; null if none.")
    ]
    request_id: Annotated[str | None, Meta(description="Id of the request, where known.")]
    response_id: Annotated[str | None, Meta(description="Id of the response, where known.")]
    model: Annotated[str | None, Meta(description="Model, where known.")]
    record_id: Annotated[
        str,
        Meta(
            description="Id of the letter: as that of a record, with - for the index of a message."
        ),
    ]
    size: Annotated[Count | None, Meta(description="Bytes of the value; null for a request.")]
    digest: Annotated[
        str | None, Meta(description="blake2b-128 of the value in hexadecimal; null for a request.")
    ]
    truncated: Annotated[
        bool, Meta(description="Whether value_base64 is cut, or left out by reference.")
    ]
    key_base64: Annotated[str | None, Meta(description="Key of the message.")]
    value_base64: Annotated[
        str | None, Meta(description="Value of the message; null if only referenced.")
    ]
    headers: Annotated[
        list[tuple[str, str | None]] | None,
        Meta(description="Headers with base64 values; credentials are masked."),
    ]
    stats: Annotated[
        dict[str, Any] | None,
        Meta(description="Of kind request: the statistics by place, numbers only."),
    ]
    schema_version: Annotated[int, Meta(description="Version of this schema.")] = SCHEMA_VERSION
