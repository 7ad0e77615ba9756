"""What an input looks like that nothing recognises, and what would be recognised."""

import re
from typing import Final

from consumer.commands.captures.messages import parse_json
from schemas import BadPayloadReason

UNRECOGNISED: Final = (
    BadPayloadReason.EMPTY_VALUE,
    BadPayloadReason.INVALID_JSON,
    BadPayloadReason.UNRECOGNISED_FORMAT,
    BadPayloadReason.UNRECOGNISED_SHAPE,
)
_KNOWN: Final = """\
- the output of curl, with headers (-i, -v) or without: JSON or server-sent events
- JSON documents, one per line or over several lines, and arrays of them
- messages of Kafka: kcat -J, rpk topic consume, the console consumer, the format records
- HAR files, and AIPerf's export (--export-level raw)
- gzip of all of these\
"""
_MAX_MEMBERS: Final = 8
_MAX_NAME: Final = 40
_PRINTED: Final = re.compile(rb"[\t\r\n\x20-\x7e\x80-\xff]*")
_MAGIC: Final = {
    b"PK\x03\x04": "a zip archive; unpack it",
    b"PAR1": "a Parquet file; export JSON lines",
    b"Obj\x01": "an Avro file; export JSON lines",
    b"\x28\xb5\x2f\xfd": "zstd; decompress it",
    b"BZh": "bzip2; decompress it",
    b"\xfd7zXZ": "xz; decompress it",
    b"\x89PNG": "an image",
    b"%PDF": "a PDF document",
}


def unrecognised_text(value: bytes) -> str:
    """Return an error for an input of which no message was recognised.

    Args:
        value: the first message.

    """
    return (
        f"no message of the input was recognised; the first one is {_seen_in(value)}\n"
        "if your events have member names of their own, acceptance-consumer formats --try prints "
        f"the setting paths for them; otherwise, give one of these:\n{_KNOWN}"
    )


def _seen_in(value: bytes) -> str:
    """Return what a value looks like: its kind, and names of members, but no content."""
    for magic, what in _MAGIC.items():
        if value.startswith(magic):
            return what
    if not value.strip():
        return "white space"
    members = parse_json(value)
    if isinstance(members, dict):
        names = [name[:_MAX_NAME] for name in list(members)[:_MAX_MEMBERS]]
        more = ", ..." if len(members) > _MAX_MEMBERS else ""
        return f"a JSON object with the members {', '.join(names)}{more}" if names else "{}"
    if isinstance(members, list):
        return "a JSON array"
    if members is not None:
        return "a JSON value that is not an object"
    if value.lstrip().startswith((b"{", b"[")):
        return "JSON that is cut off or not valid"
    if not _PRINTED.fullmatch(value[:1000]):
        return f"binary data that begins with {value[:4].hex(' ')}"
    return "text that is neither JSON nor server-sent events"
