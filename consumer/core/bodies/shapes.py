"""What a document is, recognised by members of the APIs and never by an engine's own."""

from enum import Enum, auto
from typing import Final

from consumer.core.bodies.documents import Document
from consumer.core.bodies.json_text import ABSENT, FALSE, TRUE, is_set


class Shape(Enum):
    """What a document is."""

    CHUNK = auto()
    WHOLE = auto()
    API_EVENT = auto()  # Of an API with events of its own: Responses, Anthropic Messages.
    ERROR = auto()
    UNRELATED = auto()
    UNKNOWN = auto()


# Not looked up for each event: see CONTRIBUTING.md.
_CHUNK: Final = Shape.CHUNK
_WHOLE: Final = Shape.WHOLE
STREAMED: Final = (Shape.CHUNK, Shape.API_EVENT)
NOT_A_RESPONSE: Final = (Shape.UNKNOWN, Shape.UNRELATED)
_OTHER_OBJECTS: Final = frozenset({"list", "embedding", "model", "rerank", "score", "classify"})
_ANTHROPIC_EVENTS: Final = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "ping",
    }
)


def shape_of(document: Document) -> Shape:
    """Return what a document is."""
    # Nearly all documents are one of two, for which the rules below give the same.
    if document.error is ABSENT and document.type is None and document.choices is not None:
        if document.object == "chat.completion.chunk":
            return _CHUNK
        if document.object == "chat.completion":
            return _WHOLE
    return _shape_of_any(document)


def _shape_of_any(document: Document) -> Shape:
    if is_set(document.error) or document.object == "error" or document.type == "error":
        return Shape.ERROR
    if document.choices is not None:
        if document.object is not None and document.object.endswith(".chunk"):
            return Shape.CHUNK
        whole = document.object == "chat.completion" or _is_finished(document)
        return Shape.WHOLE if whole else Shape.CHUNK
    if document.meta_info is not None or document.stop is not ABSENT:
        return _shape_of_generation(document)
    if document.type is not None:
        if document.type.startswith("response.") or document.type in _ANTHROPIC_EVENTS:
            return Shape.API_EVENT
        if document.type == "message":
            return Shape.WHOLE
    if document.object == "response":
        return Shape.WHOLE
    if document.usage is not None and _is_of_a_stream(document):
        return Shape.CHUNK
    return Shape.UNRELATED if document.object in _OTHER_OBJECTS else Shape.UNKNOWN


def _shape_of_generation(document: Document) -> Shape:
    """Return what a document of SGLang's `/generate` or llama.cpp's `/completion` is."""
    if document.meta_info is not None:
        ended = is_set(document.meta_info.get("finish_reason", ABSENT))
    elif bytes(document.stop) in (TRUE, FALSE):
        ended = bytes(document.stop) == TRUE
    else:
        return Shape.UNKNOWN
    return Shape.WHOLE if ended else Shape.CHUNK


def _is_of_a_stream(document: Document) -> bool:
    """Recognise a usage chunk without `choices`, which some gateways and engines leave out."""
    kind = document.object or ""
    return kind.endswith(".chunk") or kind == "text_completion"


def _is_finished(document: Document) -> bool:
    """Distinguish a whole completion from a chunk where both have the same `object` or none."""
    return (
        bool(document.choices)
        and document.usage is not None
        and all(choice.finish_reason for choice in document.choices or ())
    )
