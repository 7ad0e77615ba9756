"""How a reply travels: the messages in which engines, gateways and network taps log it."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from msgspec.json import encode

from consumer.demo.fleet.messages import CREDENTIAL_CANARY, FleetMessage, MessageKind
from consumer.demo.fleet.requests import END_MARKER, Json, Reply, Request
from schemas import BadPayloadReason, SkipReason


def per_chunk(request: Request, reply: Reply) -> list[FleetMessage]:
    """Log one native event per chunk."""
    parts: list[Json] = [{"body": chunk} for chunk in reply.chunks]
    if reply.chunks[-1] == END_MARKER:
        parts[-1]["final"] = True
    return _native_events(request, reply, parts, MessageKind.CHUNK, pause=(10, 40))


def in_segments(request: Request, reply: Reply) -> list[FleetMessage]:
    """Log the bytes as a network tap sees them: cut anywhere, even inside a character."""
    raw = reply.raw
    cuts = set(request.rng.sample(range(1, len(raw)), k=4))
    inside = [index for index, byte in enumerate(raw) if 0x80 <= byte < 0xC0]  # noqa: PLR2004 - UTF-8.
    if inside:
        cuts.add(request.rng.choice(inside))
    parts: list[Json] = [
        {"body_base64": _base64(raw[start:end])}
        for start, end in pairwise([0, *sorted(cuts), len(raw)])
    ]
    parts[-1]["final"] = True
    return _native_events(request, reply, parts, MessageKind.SEGMENT, pause=(40, 150))


def in_one_event(request: Request, reply: Reply) -> list[FleetMessage]:
    """Log one native event per response."""
    event = native_event(request, reply, request.at)
    event |= {"body": reply.body, "status": reply.status}
    return [gateway_message(request, encode(event), MessageKind.RESPONSE, request.at)]


def bare(request: Request, reply: Reply) -> list[FleetMessage]:
    """Log the body without an envelope."""
    return [gateway_message(request, reply.raw, MessageKind.BARE, request.at)]


def kserve(request: Request, reply: Reply) -> list[FleetMessage]:
    """Log request and response as KServe does.

    Both share id and source, and the response has the content type of the request: KServe calls a
    stream application/json.
    """
    prompt = [{"role": "user", "content": request.text(3)}]
    asked = encode({"model": request.model.name, "messages": prompt, "stream": reply.streamed})
    at, skipped = request.at, SkipReason.REQUEST_EVENT
    return [
        kserve_message(request, "request", asked, MessageKind.KSERVE_REQUEST, at, skipped),
        kserve_message(request, "response", reply.raw, MessageKind.KSERVE_RESPONSE, at + 300),
    ]


def structured(request: Request, reply: Reply) -> list[FleetMessage]:
    """Log a structured CloudEvent; its body is an object, a string or base64, as in the SDKs."""
    event: Json = {
        "specversion": "1.0",
        "id": request.request_id,
        "source": "https://gateway.example/llm",
        "type": "org.kubeflow.serving.inference.response",
        "time": _rfc3339(request.at),
        "partitionkey": request.request_id,
        "datacontenttype": "text/event-stream" if reply.streamed else "application/json",
    }
    if reply.streamed and request.rng.random() >= 0.5:  # noqa: PLR2004 - both are common.
        event["data_base64"] = _base64(reply.raw)
    else:
        event["data"] = reply.body
    value, at = encode(event), request.at + 300
    content_type = "application/cloudevents+json; charset=UTF-8"
    return [gateway_message(request, value, MessageKind.STRUCTURED, at, content_type=content_type)]


def native_event(request: Request, reply: Reply, at: int) -> Json:
    """Return a native event without a body."""
    return {
        "request_id": request.request_id,
        "timestamp": at,
        "engine": request.model.engine,
        "model": request.model.name,
        "instance": request.instance,
        "endpoint": reply.endpoint,
        "labels": {"tenant": "demo"},
    }


def gateway_message(
    request: Request,
    value: bytes | None,
    kind: MessageKind,
    at: int,
    reason: BadPayloadReason | SkipReason | None = None,
    *,
    content_type: str = "application/json",
) -> FleetMessage:
    """Return a message with the key and the headers that a gateway sets."""
    trace = f"00-{request.rng.getrandbits(128):032x}-{request.rng.getrandbits(64):016x}-01"
    headers = (
        ("content-type", content_type.encode()),
        ("authorization", f"Bearer {CREDENTIAL_CANARY}".encode()),
        ("traceparent", trace.encode()),
    )
    return FleetMessage(request.request_id.encode(), value, headers, kind, at, reason)


def kserve_message(
    request: Request,
    event: str,
    value: bytes,
    kind: MessageKind,
    at: int,
    reason: SkipReason | None = None,
) -> FleetMessage:
    """Return a binary CloudEvent as KServe's logger writes it: without a key."""
    attributes = {
        "specversion": "1.0",
        "id": request.request_id,
        "source": "http://localhost:9081/",
        "type": f"org.kubeflow.serving.inference.{event}",
        "time": _rfc3339(request.at),
        "recordedtime": _rfc3339(request.at),
        "inferenceservicename": request.instance,
        "namespace": "demo",
        "component": "predictor",
        "endpoint": "default",
        "metadata": json.dumps({"Authorization": f"Bearer {CREDENTIAL_CANARY}"}),
    }
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items()]
    headers.append(("content-type", b"application/json"))
    return FleetMessage(None, value, tuple(headers), kind, at, reason)


def _native_events(
    request: Request,
    reply: Reply,
    parts: Sequence[Json],
    kind: MessageKind,
    *,
    pause: tuple[int, int],
) -> list[FleetMessage]:
    messages, at = [], request.at
    for sequence, part in enumerate(parts):
        event = native_event(request, reply, at) | {"sequence": sequence} | part
        messages.append(gateway_message(request, encode(event), kind, at))
        at += request.rng.randint(*pause)
    return messages


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _rfc3339(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
