"""Whether the entries of a value are one stream, several responses, or something else."""

from typing import Final

from consumer.core.bodies.body_reader import response_id_of
from consumer.core.bodies.documents import Document, DocumentReader
from consumer.core.bodies.shapes import Shape, shape_of

_STREAM_PARTS: Final = frozenset({Shape.CHUNK, Shape.API_EVENT, Shape.ERROR})


def bodies_of(reader: DocumentReader, entries: list[bytes], text: bytes) -> list[bytes] | None:
    """Return the bodies that the entries are; None if they are not all parts of bodies.

    Chunks of one id, with what a stream has between them, are one stream. Whole responses are
    as many as their ids; those of one id, or without, are several answers to one request.
    """
    wholes: dict[str | None, list[bytes]] = {}
    chunk_ids: set[str] = set()
    has_chunks = False
    for entry in entries:
        document = reader.read(entry) if entry.startswith(b"{") else None
        if not isinstance(document, Document):
            continue  # An end marker, or damage.
        shape = shape_of(document)
        if shape is Shape.WHOLE:
            # The server itself answers a request without `choices` with a list.
            response_id = None if document.choices is None else response_id_of(document)
            wholes.setdefault(response_id, []).append(entry)
        elif shape in _STREAM_PARTS:
            has_chunks = has_chunks or shape is not Shape.ERROR
            if (chunk_id := response_id_of(document)) and shape is Shape.CHUNK:
                chunk_ids.add(chunk_id)
        else:
            return None
        if (wholes and has_chunks) or len(chunk_ids) > 1:
            return None
    if not has_chunks and sum(map(len, wholes.values())) < len(entries):
        return None
    if has_chunks or len(wholes) == 1:
        return [text]
    return [
        group[0] if len(group) == 1 else b"[%b]" % b",".join(group) for group in wholes.values()
    ]
