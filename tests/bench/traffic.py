"""Events as fleets log them: interleaved streams, whole streams, whole responses, and bad payloads.

The bodies are made of the parts of the simulated fleet (`consumer.demo.fleet`). Their sizes and
members are fixed, so that figures stay comparable.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Any, Final

import msgspec

from consumer.demo.fleet import Model, openai, vllm
from consumer.demo.fleet.requests import Generation, Request, server_sent_event

STREAMS: Final = 500
STREAM_LENGTH: Final = 60
BEGIN_MS: Final = 1_767_225_600_000
TEXT: Final = "four or five words here "
TEXTS: Final = (TEXT, "three words more", ' say "so" \n', " für Äpfel und Birnen", "")
"""Contents of chunks; a stream whose chunks differ in more than their text costs more."""

_ROUND: Final = STREAMS * STREAM_LENGTH
_ONE_BAD_IN: Final = 100
_ENVELOPE_BYTES: Final = 600  # Of a whole response in its event.
_TEMPLATES: Final = 20  # Large bodies differ in their ids alone.
_NAME: Final = "NAME"  # A template has this and the next two instead of the values.
_SEQUENCE: Final = 10_101
_TIME: Final = 20_202

Json = dict[str, Any]
Pairs = Iterator[tuple[bytes, bytes]]
"""Keys and values of events; the key is the request id."""


# Bodies


def _request(accepted: list[int]) -> Request:
    """Return a request whose verify steps accept so many drafts; its ids are made of `_NAME`."""
    model = Model("vllm", "Qwen3-32B", 3, acceptance=0, decay=0)
    generation = Generation(model, accepted, [3] * len(accepted), 24, 11, "stop")
    response_id = f"chatcmpl-{_NAME}"
    return Request(
        rng=Random(), at=BEGIN_MS, request_id=_NAME, response_id=response_id, generation=generation
    )


_OF_CHUNKS: Final = _request([0, 0, 1, 2, 3, 3, 3, 3])
_OF_WHOLE: Final = _request([0, 0, 0, 3, 3, 3, 3, 3])


def _metrics(request: Request) -> Json:
    numbers = vllm.speculative_decoding(request.generation)
    return {"speculative_decoding": {k: v for k, v in numbers.items() if v is not None}}


def chunk_body(text: str | None, request: Request = _OF_WHOLE) -> Json:
    """Return a chunk of content, or the usage chunk with statistics for None."""
    head = openai.head(request, "chat.completion.chunk")
    head |= {"system_fingerprint": "fp_0123456789abcdef"}
    if text is None:
        usage = {"prompt_tokens": 11, "completion_tokens": 24, "total_tokens": 35}
        return head | {"choices": [], "usage": usage, "metrics": _metrics(request)}
    choice = openai.choice({"delta": {"content": text}}, None) | {"stop_reason": None}
    return head | {"choices": [choice], "usage": None}


def json_body(size: int, name: bytes | None = None) -> bytes:
    """Return a whole response of about a size."""
    text = 'Some text of an answer, with "quotes", lines\nand Äpfel. '
    message = {"role": "assistant", "content": text * (size // len(text))}
    head = openai.head(_OF_WHOLE, "chat.completion")
    del head["created"]
    body = head | {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 24},
        "metrics": _metrics(_OF_WHOLE),
    }
    return msgspec.json.encode(body).replace(_NAME.encode(), name or new_name())


def stream_body(size: int, name: bytes | None = None) -> bytes:
    """Return a whole stream of server-sent events of about a size."""
    parts, held, name = list[bytes](), 0, name or new_name()
    texts = cycle(TEXTS)
    while held < size:
        event = server_sent_event(chunk_body(next(texts))).replace(_NAME.encode(), name)
        parts.append(event)
        held += len(event)
    last = server_sent_event(chunk_body(None)).replace(_NAME.encode(), name)
    return b"".join([*parts, last, server_sent_event("[DONE]")])


def new_name() -> bytes:
    """Return a new request id."""
    return f"req-{uuid.uuid4()}".encode()


# Native events


class Template:
    """Writes native events that differ in request id, sequence and time alone."""

    def __init__(self, body: Json, *, final: bool) -> None:
        event = {
            "request_id": _NAME,
            "sequence": _SEQUENCE,
            "timestamp": _TIME,
            "body": body,
            "final": final,
        }
        text = json.dumps(event, separators=(",", ":")).encode().replace(b"%", b"%%")
        for value, field in ((_NAME, b"%(n)b"), (_SEQUENCE, b"%(s)d"), (_TIME, b"%(t)d")):
            text = text.replace(str(value).encode(), field)
        self._text = text

    def value(self, name: bytes, sequence: int, timestamp: int | None = None) -> bytes:
        """Return an event; by default, the events of a stream are 20 ms apart."""
        stamp = BEGIN_MS + sequence * 20 if timestamp is None else timestamp
        return self._text % {b"n": name, b"s": sequence, b"t": stamp}


MIDDLE: Final = Template(chunk_body(TEXT), final=False)
LAST: Final = Template(chunk_body(None, _OF_CHUNKS), final=True)
_VARIED: Final = tuple(Template(chunk_body(text), final=False) for text in TEXTS)


def interleaved(
    streams: int, length: int, rounds: int = 1, *, varied: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Return the events of rounds of streams, so many at a time, of so many chunks.

    Args:
        streams: number of streams at a time.
        length: number of chunks of each stream.
        rounds: number of rounds.
        varied: whether the chunks differ in their texts.

    """
    for _ in range(rounds):
        names = [new_name() for _ in range(streams)]
        for sequence in range(length):
            template = _VARIED[sequence % len(_VARIED)] if varied else MIDDLE
            if sequence == length - 1:
                template = LAST
            for name in names:
                yield name, template.value(name, sequence)


def chunks(events: int) -> Pairs:
    """Return so many events of whole streams, or of streams that break off."""
    return islice(interleaved(STREAMS, STREAM_LENGTH, rounds=-(-events // _ROUND)), events)


def steady(streams: int, clock: Callable[[], int]) -> Iterator[tuple[bytes, bytes, int, bool]]:
    """Return events without end, of so many streams that are all at different places.

    Args:
        streams: number of open streams.
        clock: returns the timestamp of each event, milliseconds since 1970.

    Returns:
        Request ids, values, timestamps, and whether a stream ends with the event. The streams take
        turns in a fixed order.

    """
    # The streams of the first round differ in length, so that streams never end together.
    left = [2 + number % (STREAM_LENGTH - 1) for number in range(streams)]
    lengths = left.copy()
    names = [new_name() for _ in range(streams)]
    while True:
        for number, name in enumerate(names):
            now, ends = clock(), left[number] == 1
            value = (LAST if ends else MIDDLE).value(name, lengths[number] - left[number], now)
            yield name, value, now, ends
            left[number] -= 1
            if ends:
                left[number] = lengths[number] = STREAM_LENGTH
                names[number] = new_name()


def long_stream(events: int) -> Iterator[bytes]:
    """Return the values of one stream of so many chunks."""
    for sequence in range(events):
        template = LAST if sequence == events - 1 else MIDDLE
        yield template.value(b"req-long", sequence, BEGIN_MS + sequence)


# Kinds of traffic


@dataclass(frozen=True)
class Case:
    """A kind of traffic.

    Attributes:
        name: its name in `BENCH_CASES`.
        title: its name in the table.
        events: number of good events at scale 1.
        make: returns so many good events, and perhaps bad ones beside them.
        records: returns the number of records of so many events.
        step: the number of events is a multiple of this, so that all streams are whole.
        native: whether the values are native events, which a bare loop can decode.
        bad: whether some values are bad.

    """

    name: str
    title: str
    events: int
    make: Callable[[int], Pairs]
    records: Callable[[int], int]
    step: int = 1
    native: bool = True
    bad: bool = False

    def count(self, scale: float) -> int:
        """Return the number of events at a scale."""
        return max(1, round(self.events * scale / self.step)) * self.step


def _repeated(make_one: Callable[[bytes], bytes], templates: int) -> Callable[[int], Pairs]:
    """Return a maker of events that differ in their ids alone.

    Args:
        make_one: makes the value of an event, given its request id.
        templates: how many different ones to make.

    """

    def make(events: int) -> Pairs:
        old = [new_name() for _ in range(min(events, templates))]
        made = [(name, make_one(name)) for name in old]
        for name, value in islice(cycle(made), events):
            new = new_name()
            yield new, value.replace(name, new)

    return make


def _native(name: bytes, body: bytes) -> bytes:
    """Return a native event that holds a body, given as JSON."""
    return b'{"request_id":"%b","timestamp":%d,"body":%b,"final":true}' % (name, BEGIN_MS, body)


def _sse(size: int) -> Callable[[int], Pairs]:
    return _repeated(lambda name: stream_body(size, name), _TEMPLATES)


def _native_sse(size: int) -> Callable[[int], Pairs]:
    def make_one(name: bytes) -> bytes:
        return _native(name, msgspec.json.encode(stream_body(size, name).decode()))

    return _repeated(make_one, _TEMPLATES)


def _native_json(size: int) -> Callable[[int], Pairs]:
    return _repeated(lambda name: _native(name, json_body(size - _ENVELOPE_BYTES, name)), 1)


def _some_bad(events: int) -> Pairs:
    """Return so many good chunks and, between them, one in a hundred that is cut."""
    for number, (name, value) in enumerate(chunks(events), 1):
        yield name, value
        if not number % (_ONE_BAD_IN - 1):
            yield name, value[: len(value) // 2]


def _all_bad(events: int) -> Pairs:
    return ((name, value[: len(value) // 2]) for name, value in chunks(events))


def _of_streams(events: int) -> int:
    return events // STREAM_LENGTH


_ALL: Final[Sequence[Case]] = (
    Case("chunks", "chunk events", 600_000, chunks, _of_streams, step=_ROUND),
    Case("sse64k", "whole SSE, 64 KiB", 10_000, _sse(1 << 16), int, native=False),
    Case("sse64k_native", "whole SSE, 64 KiB, in native events", 5_000, _native_sse(1 << 16), int),
    Case("sse1m", "whole SSE, 1 MiB", 600, _sse(1 << 20), int, native=False),
    # In a native event it is a segment, and those may have max_segment_bytes.
    Case("sse1m_native", "whole SSE, 1 MB, in native events", 200, _native_sse(1_000_000), int),
    Case("json1k", "JSON, 1 KiB", 100_000, _native_json(1 << 10), int),
    Case("json16k", "JSON, 16 KiB", 40_000, _native_json(1 << 14), int),
    Case("bad1", "chunks, 1 % bad", 600_000, _some_bad, _of_streams, step=_ROUND, bad=True),
    Case("bad100", "all bad", 100_000, _all_bad, lambda _: 0, bad=True),
)
CASES: Final = {case.name: case for case in _ALL}
