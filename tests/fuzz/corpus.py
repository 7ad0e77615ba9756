"""What the fuzzer begins with: the values of all samples, and the words of the formats."""

import binascii
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from consumer.core.envelopes.formats import FORMATS
from tests.fuzz.oracles import MAX_BYTES, TARGETS, recognised
from tests.paths import SAMPLES
from tests.unit.core import samples

AUTO: Final = "auto"
FINDINGS: Final = Path(__file__).parent / "findings"
_VALUE: Final = "value_b64"
_WORDS: Final = (
    *("request_id", "body", "body_base64", "sequence", "final", "timestamp", "attempt", "status"),
    *("labels", "model", "instance", "endpoint", "specversion", "id", "source", "type", "data"),
    *("data_base64", "datacontenttype", "choices", "delta", "usage", "meta_info", "metrics"),
    *("speculative_decoding", "object", "chat.completion", "chat.completion.chunk", "error"),
    *("message", "log", "payload", "value", "after", "response", "event", "schema", "bytes"),
    *("resourceLogs", "scopeLogs", "logRecords", "stringValue", "application/json"),
)
_RAW_WORDS: Final = (
    b"data: ",
    b"data: [DONE]\n\n",
    b"event: error\n",
    b"\\ud800",
    b"NaN",
    b"1e999",
)


def values() -> list[bytes]:
    """Return the values of all samples and captures."""
    found = [each.the_value for name in samples.names() for each in samples.messages(name)]
    for path in SAMPLES.rglob("*.jsonl"):
        found += map(_captured, path.read_bytes().splitlines())
    return list(dict.fromkeys(value for value in found if value and len(value) <= MAX_BYTES))


def _captured(line: bytes) -> bytes | None:
    """Return the value of a message in a capture; None for other lines."""
    try:
        return b64decode(msgspec.json.decode(line)[_VALUE])
    except (msgspec.MsgspecError, KeyError, TypeError, binascii.Error):
        return None


def findings() -> list[Path]:
    """Return the files of values for which a check once failed."""
    return sorted(FINDINGS.iterdir())


def write(folder: Path) -> None:
    """Write the first values of each target to a folder of its name, and the words to a file."""
    for name in TARGETS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    kept = [path.read_bytes() for path in findings()]
    for value in [*values(), *kept]:
        for name in {AUTO, recognised(value)} & TARGETS.keys():
            (folder / name / sha256(value).hexdigest()[:20]).write_bytes(value)
    words = [f'"{word}":'.encode() for word in sorted({*_WORDS, *_format_words()})]
    lines = [_escaped(word) for word in (*words, *_RAW_WORDS)]
    (folder / "words.dict").write_text("\n".join(lines), encoding="ascii")


def _format_words() -> set[str]:
    return {
        name
        for form in FORMATS
        for path in (*form.signature, *form.body, *form.request_id, *form.timestamp)
        for name in path.split(".")
    }


def _escaped(word: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'
