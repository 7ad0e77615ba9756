"""Random logs of one partition, with everything that goes wrong in the field.

A log is a function of its seed. Every hazard that was put in is counted, so that a test can show
that each of them occurred.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Final

from consumer.core import stream_time
from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
    Headers,
)
from tests.unit.core.made import (
    BEGIN_MS,
    TOPIC,
    Json,
    chunk,
    cloudevent,
    encode,
    last_chunk,
    message,
    sse,
    trace,
    whole,
)

_WILD: Final = frozenset(
    {
        "id reused by another request",
        "another attempt",
        "an id per chunk",
        "a late duplicate",
        "one id for two calls",
    }
)

Draft = tuple[int, bytes, Headers]  # Due time, value, headers.

# How producers state a time, most of them in milliseconds.
_TIMES: Final[Sequence[Callable[[int], float | str]]] = (
    *(int,) * 4,
    lambda ms: ms / 1000,
    lambda ms: ms * 1_000_000,
    str,
    lambda _: 0,
    lambda _: "yesterday",
)


class RandomLog:
    """A log of one partition.

    Args:
        seed: what makes it this log.
        requests: how many requests it has.
        tame: whether every request has one id, one attempt, and no late repeats.

    Attributes:
        hazards: how often each occurred.
        messages: the log.
        busy: numbers of the messages that are not there for their timestamp only.

    """

    def __init__(self, seed: int, requests: int = 16, *, tame: bool = False) -> None:
        self.hazards: Counter[str] = Counter()
        self.messages: list[CapturedMessage] = []
        self._random = Random(seed)
        self._drafts: list[Draft] = []
        self._ids: list[str] = []
        self._absent = _WILD if tame else frozenset()
        span = self._random.choice((4_000, 12_000, 30_000))
        for number in range(requests):
            self._request(number, self._random.randrange(span))
        for _ in range(self._random.randrange(8)):
            self._junk(self._random.randrange(span))
        self._lay_out()

    def _hazard(self, name: str, chance: float) -> bool:
        happens = self._random.random() < chance and name not in self._absent
        self.hazards[name] += happens
        return happens

    # Requests

    def _request(self, number: int, begin: int) -> None:
        request_id = f"r{number}"
        if self._ids and self._hazard("id reused by another request", 0.15):
            request_id = self._random.choice(self._ids)
        self._ids.append(request_id)
        kind = self._random.random()
        if kind < 0.1:
            self._whole(number, begin)
        elif kind < 0.15:
            self._batch(number, begin)
        else:
            self._stream(request_id, number, begin)

    def _stream(self, request_id: str, number: int, begin: int) -> None:
        """Log one message per event, in one or more attempts."""
        sequenced = self._random.random() < 0.5
        if not sequenced and self._hazard("one id for two calls", 0.15):
            self._two_calls(request_id, f"c{number}", begin)
            return
        numbered = self._random.random() < 0.2
        attempts = 1
        while attempts < 4 and self._hazard("another attempt", 0.2):
            attempts += 1
        at = begin
        for attempt in range(attempts):
            failing = attempt + 1 < attempts and self._random.random() < 0.7
            around: Json = {"request_id": request_id}
            if numbered:
                around["attempt"] = attempt
            at = self._attempt(around, f"c{number}-{attempt}", at, failing, sequenced)
            at += self._random.choice((1, 50, 400, 2_500, 6_000))

    def _two_calls(self, request_id: str, body_id: str, begin: int) -> None:
        """Log two streams under the same ids, as bare chunks or native events."""
        at, created = begin, 1_767_225_600
        bare = self._hazard("bare chunks of a stream", 0.5)
        for accepted in self._random.sample(range(1, 9), 2):
            bodies: list[Json | str] = [chunk(body_id), chunk(body_id, finish="stop")]
            bodies.append(last_chunk(body_id, accepted))
            drafts: list[Draft] = []
            for body in bodies if bare else [*bodies, "[DONE]"]:
                at += self._random.randrange(120) + 1
                if isinstance(body, dict):
                    body["created"] = created
                value = sse(body) if bare else encode({"request_id": request_id, "body": body})
                drafts.append((at, value, []))
            self._drafts += self._disturbed(drafts, sequenced=False)
            at += self._random.choice((1, 400, 2_500))
            created += self._random.choice((0, 0, 7))

    def _attempt(
        self, around: Json, body_id: str, begin: int, failing: bool, sequenced: bool
    ) -> int:
        bodies = self._bodies(body_id, failing)
        pace = self._random.choice((1, 30, 120, 700))
        if self._hazard("a stream that pauses", 0.1):
            pace = 1_800
        drafts: list[Draft] = []
        at = begin
        first = int(sequenced and self._hazard("sequences from 1", 0.2))
        for sequence, (body, final) in enumerate(bodies, first):
            at += self._random.randrange(pace) + 1
            event = dict(around, **body)
            if sequenced:
                event["sequence"] = sequence
            if final:
                event["final"] = True
            if self._random.random() < 0.3:
                event["timestamp"] = self._random.choice(_TIMES)(BEGIN_MS + at)
            drafts.append((at, encode(event), []))
        self._drafts += self._disturbed(drafts, sequenced)
        return at

    def _bodies(self, body_id: str, failing: bool) -> list[tuple[Json, bool]]:
        chunks = [self._chunk(body_id, n) for n in range(self._random.randrange(1, 5))]
        if not failing and self._hazard("usage after the event called final", 0.1):
            finish: tuple[Json, bool] = ({"body": chunk(body_id, finish="stop")}, True)
            return [*self._plain(chunks), finish, *self._plain([last_chunk(body_id)])]
        if failing:
            ended: Json = {"body": {"error": {"message": "engine died", "code": 500}}}
            if self._hazard("failure by status alone", 0.2):
                ended = {"status": 503}
            return [*(({"body": each}, False) for each in chunks), (ended, False)]
        if self._random.random() < 0.8:
            last = last_chunk(body_id, self._random.randrange(1, 4))
            if self._random.random() < 0.2:
                del last["metrics"]
            chunks.append(last)
        if self._hazard("the whole response in one event after others", 0.04):
            return [({"body": chunks[0]}, False), ({"body": [whole(body_id)]}, False)]
        if self._hazard("raw segments cut anywhere", 0.2):
            return self._segments(chunks)
        bodies: list[tuple[Json, bool]] = [({"body": each}, False) for each in chunks]
        if self._hazard("end marker missing", 0.2):
            return bodies
        if self._random.random() < 0.3:
            return [*bodies[:-1], (bodies[-1][0], True)]
        return [*bodies, ({"body": "[DONE]"}, self._random.random() < 0.5)]

    @staticmethod
    def _plain(chunks: list[Json]) -> list[tuple[Json, bool]]:
        return [({"body": each}, False) for each in chunks]

    def _chunk(self, body_id: str, number: int) -> Json:
        if self._hazard("an id per chunk", 0.05):
            body_id = f"{body_id}-{number}"
        index = 0
        if self._hazard("several choices", 0.03):
            index = 1
        return chunk(body_id, index=index) | {"created": 1_767_225_600 + number}

    def _segments(self, chunks: list[Json]) -> list[tuple[Json, bool]]:
        done = [] if self._hazard("end marker missing", 0.2) else ["[DONE]"]
        text = sse(*chunks, *done)
        cuts = sorted(self._random.randrange(len(text)) for _ in range(self._random.randrange(5)))
        pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
        return [({"body_base64": b64encode(piece).decode()}, False) for piece in pieces]

    def _disturbed(self, drafts: list[Draft], sequenced: bool) -> list[Draft]:
        """Lose, repeat and disorder events."""
        if len(drafts) > 1 and self._hazard("a gap", 0.08 if sequenced else 0.04):
            drafts.pop(self._random.randrange(len(drafts)))
        if sequenced and len(drafts) > 1 and self._hazard("out of order", 0.25):
            one, other = self._random.sample(range(len(drafts)), 2)
            times = [at for at, _, _ in drafts]
            drafts[one], drafts[other] = drafts[other], drafts[one]
            drafts = [
                (at, value, headers) for at, (_, value, headers) in zip(times, drafts, strict=True)
            ]
        repeats = []
        for at, value, headers in drafts:
            if b'"body":[' in value:
                continue  # Repeats of whole responses are outside the guarantee.
            if self._hazard("a duplicate", 0.06):
                repeats.append((at + self._random.choice((0, 5, 200)), value, headers))
            if self._hazard("a late duplicate", 0.04):
                repeats.append((at + self._random.randrange(500, 9_000), value, headers))
        return [*drafts, *repeats]

    # What is whole, and what is nothing

    def _whole(self, number: int, begin: int) -> None:
        body = whole(f"w{number}", self._random.randrange(1, 4))
        if self._hazard("a whole response, bare", 0.5):
            self._drafts.append((begin, encode(body), [("traceparent", trace(1).encode())]))
        else:
            self._hazard("a whole response, native", 1)
            event = {"request_id": f"w{number}", "body": body}
            self._drafts.append((begin, encode(event), []))

    def _batch(self, number: int, begin: int) -> None:
        """Log a batch of CloudEvents, of which one may be damaged."""
        self._hazard("a batch of CloudEvents", 1)
        entries: list[Json] = []
        for entry in range(self._random.randrange(1, 5)):
            name = f"b{number}-{entry}"
            event = cloudevent(id=name, data=whole(name, self._random.randrange(1, 4)))
            if self._hazard("a bad entry in a batch", 0.1):
                del event["id"]
            entries.append(event)
        headers: Headers = [("content-type", b"application/cloudevents-batch+json")]
        self._drafts.append((begin, encode(entries), headers))

    def _junk(self, at: int) -> None:
        self._hazard("a bad payload", 1)
        value = self._random.choice(
            (b"", b"garbage", b"{", b'{"request_id":"r1","body":7}', b'{"a":1}', b"\xff\xfe\x00")
        )
        self._drafts.append((at, value, []))

    # The log

    def _clock_errors(self) -> list[int]:
        """Return by how many milliseconds the clock of each message is wrong."""
        skew = [0] * 8
        for key in range(8):
            if self._hazard("a producer with a skewed clock", 0.1):
                skew[key] = self._random.choice((-300_000, 300_000, 86_400_000 * 365))
        errors = [skew[number % 8] for number in range(len(self._drafts))]
        if errors and self._hazard("a burst from wrong clocks", 0.3):
            begin = self._random.randrange(len(errors))
            error = self._random.choice((-3_000_000, 4_000, 480_000, 86_400_000 * 365))
            for number in range(begin, len(errors))[: self._random.choice((8, 16, 60))]:
                errors[number] += error
        return errors

    def _lay_out(self) -> None:
        """Give every message its offset and timestamp."""
        errors = self._clock_errors()
        append_time = self._hazard("log-append time", 0.1)
        offset = self._random.choice((0, 0, 17, 5_000_000_000))
        if self._hazard("stream time known from the start", 0.8):
            for _ in range((2 * stream_time.REACH + 2) << stream_time.BLOCK_BITS):
                self.messages.append(message(None, offset))
                offset += 1
        self.busy = range(len(self.messages), len(self.messages) + len(self._drafts))
        for number, (at, value, headers) in enumerate(sorted(self._drafts)):
            if self._hazard("offsets with a gap", 0.03):
                offset += self._random.choice((1, 2, 40, 200))
            kind, stamp = TIMESTAMP_CREATE_TIME, BEGIN_MS + at + errors[number]
            if append_time:
                kind, stamp = TIMESTAMP_LOG_APPEND_TIME, BEGIN_MS + at
            if self._hazard("no timestamp", 0.02):
                kind, stamp = TIMESTAMP_NOT_AVAILABLE, -1
            self.messages.append(
                CapturedMessage(
                    at_topic=TOPIC,
                    at_offset=offset,
                    the_value=value,
                    the_headers=headers or [("traceparent", trace(number + 1).encode())],
                    timestamp_type=kind,
                    timestamp_ms=stamp,
                )
            )
            offset += 1
