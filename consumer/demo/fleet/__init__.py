"""A made-up serving fleet: what engines and gateways would log to Kafka, and what must come of it.

Deterministic: the same seed, rate and start give the same messages, byte for byte. Nothing here
sleeps or knows Kafka; every message says when it is due, and the caller keeps to that or does not.

A kind of request (`kinds`) has an engine write a reply (`vllm`, `sglang`, `tensorrt_llm`) with the
numbers of a `generation`, wraps it in messages (`carriers`), and may let something go wrong with
either (`mishaps`); `noise` is no reply at all.
"""

from consumer.demo.fleet.fleet import Fleet
from consumer.demo.fleet.generation import MODELS
from consumer.demo.fleet.kinds import DECK, KINDS
from consumer.demo.fleet.messages import (
    CANARY,
    CREDENTIAL_CANARY,
    INPUT_TOPIC,
    Expected,
    FleetMessage,
    Label,
    OutcomeReason,
)

__all__ = [
    "CANARY",
    "CREDENTIAL_CANARY",
    "DECK",
    "INPUT_TOPIC",
    "KINDS",
    "MODELS",
    "Expected",
    "Fleet",
    "FleetMessage",
    "Label",
    "OutcomeReason",
]
