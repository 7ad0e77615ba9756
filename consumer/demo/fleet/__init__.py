"""A simulated serving fleet: the messages that engines and gateways log, and the outcomes expected.

Deterministic: the same seed, rate and start give the same messages, byte for byte. The fleet does
not wait and does not know Kafka: every message states when it is due, and the caller sends it.

A kind of request (`kinds`) has an engine write a reply (`vllm`, `sglang`, `tensorrt_llm`,
`llamacpp`) with the numbers of a generation (`requests`) and wraps the reply in messages
(`carriers`). `mishaps` change either; `noise` is not a response at all.
"""

from consumer.demo.fleet.fleet import REQUESTS_PER_ROUND, Fleet
from consumer.demo.fleet.kinds import REQUEST_KINDS
from consumer.demo.fleet.messages import (
    CANARY,
    CREDENTIAL_CANARY,
    ExpectedOutcome,
    FleetMessage,
    MessageKind,
    OutcomeReason,
)
from consumer.demo.fleet.noise import NOISE
from consumer.demo.fleet.requests import MODELS, Model

__all__ = [
    "CANARY",
    "CREDENTIAL_CANARY",
    "MODELS",
    "NOISE",
    "REQUESTS_PER_ROUND",
    "REQUEST_KINDS",
    "ExpectedOutcome",
    "Fleet",
    "FleetMessage",
    "MessageKind",
    "Model",
    "OutcomeReason",
]
