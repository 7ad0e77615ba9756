"""Messages that are no response at all."""

from msgspec.json import encode

from consumer.demo.fleet import vllm
from consumer.demo.fleet.carriers import gateway_message, kserve_message, native_event
from consumer.demo.fleet.exchange import Request
from consumer.demo.fleet.messages import CANARY, FleetMessage, Label
from schemas import BadPayloadReason, SkipReason


def broken_json(request: Request) -> FleetMessage:
    """Log two thirds of a body."""
    value = vllm.chat(request).raw
    return _bad(request, value[: len(value) * 2 // 3], BadPayloadReason.INVALID_JSON)


def binary(request: Request) -> FleetMessage:
    """Log bytes of some other format."""
    value = b"\x00\x00\x00\x00\x2a" + CANARY.encode() + b"\x00" + request.rng.randbytes(120)
    return _bad(request, value, BadPayloadReason.UNRECOGNISED_FORMAT)


def empty(request: Request) -> FleetMessage:
    """Log nothing."""
    return _bad(request, b"", BadPayloadReason.EMPTY_VALUE)


def wrong_member(request: Request) -> FleetMessage:
    """Log a native event with a sequence number that is none."""
    reply = vllm.chat(request)
    event = native_event(request, reply, request.at) | {"sequence": "seven", "body": reply.body}
    return _bad(request, encode(event), BadPayloadReason.INVALID_EVENT)


def wrong_base64(request: Request) -> FleetMessage:
    """Log a native event with base64 that is none."""
    event = native_event(request, vllm.chat(request), request.at)
    event |= {"sequence": 0, "body_base64": f"%%% {CANARY} %%%"}
    return _bad(request, encode(event), BadPayloadReason.INVALID_BASE64)


def log_line(request: Request) -> FleetMessage:
    """Log a line of some program's own log."""
    line = {"level": "info", "msg": f"answered {CANARY}", "took": 0.81}
    return _bad(request, encode(line), BadPayloadReason.UNRECOGNISED_SHAPE)


def tombstone(request: Request) -> FleetMessage:
    """Delete a key."""
    return gateway_message(request, None, Label.UNRELATED, request.at, SkipReason.TOMBSTONE)


def feedback(request: Request) -> FleetMessage:
    """Log an event of another type."""
    value, reason = encode({"score": 1, "comment": CANARY}), SkipReason.UNRELATED_EVENT
    return kserve_message(request, "feedback", value, Label.UNRELATED, request.at, reason)


def _bad(request: Request, value: bytes, reason: BadPayloadReason) -> FleetMessage:
    return gateway_message(request, value, Label.BAD, request.at, reason)
