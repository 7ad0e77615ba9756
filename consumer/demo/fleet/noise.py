"""Messages that are not responses."""

from collections.abc import Callable
from typing import Final

from msgspec.json import encode

from consumer.demo.fleet import vllm
from consumer.demo.fleet.carriers import gateway_message, kserve_message, native_event
from consumer.demo.fleet.messages import CANARY, FleetMessage, MessageKind
from consumer.demo.fleet.requests import Request
from schemas import BadPayloadReason, SkipReason


def _truncated_json(request: Request) -> bytes:
    value = vllm.chat(request).raw
    return value[: len(value) * 2 // 3]


def _binary(request: Request) -> bytes:
    return b"\x00\x00\x00\x00\x2a" + CANARY.encode() + b"\x00" + request.rng.randbytes(120)


def _two_bodies(request: Request) -> bytes:
    reply = vllm.chat(request)
    event = native_event(request, reply, request.at)
    return encode(event | {"body": reply.body, "body_base64": CANARY})


def _wrong_base64(request: Request) -> bytes:
    event = native_event(request, vllm.chat(request), request.at)
    return encode(event | {"sequence": 0, "body_base64": f"%%% {CANARY} %%%"})


def _log_line(_request: Request) -> bytes:
    return encode({"level": "info", "msg": f"answered {CANARY}", "took": 0.81})


_BAD_VALUES: Final[dict[BadPayloadReason, Callable[[Request], bytes]]] = {
    BadPayloadReason.INVALID_JSON: _truncated_json,
    BadPayloadReason.SCHEMA_REGISTRY_FRAME: _binary,
    BadPayloadReason.INVALID_EVENT: _two_bodies,
    BadPayloadReason.INVALID_BASE64: _wrong_base64,
    BadPayloadReason.UNRECOGNISED_SHAPE: _log_line,
}
"""A value for each reason."""


def _bad(reason: BadPayloadReason) -> Callable[[Request], FleetMessage]:
    def make(request: Request) -> FleetMessage:
        value = _BAD_VALUES[reason](request)
        return gateway_message(request, value, MessageKind.BAD, request.at, reason)

    return make


def _tombstone(request: Request) -> FleetMessage:
    reason = SkipReason.TOMBSTONE
    return gateway_message(request, None, MessageKind.UNRELATED, request.at, reason)


def _feedback(request: Request) -> FleetMessage:
    value, reason = encode({"score": 1, "comment": CANARY}), SkipReason.UNRELATED_EVENT
    return kserve_message(request, "feedback", value, MessageKind.UNRELATED, request.at, reason)


NOISE: Final = (*map(_bad, _BAD_VALUES), _tombstone, _feedback)
"""Functions that each make a message that is not a response."""
