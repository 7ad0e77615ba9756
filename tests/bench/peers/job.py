"""The job that every peer does: one record for each finished request.

Peers differ only in how events reach `Job.fold` and where the state and the records go. The job
does less than the service: one engine, one shape of event, and the events of a request in order.
"""

import sys
from argparse import ArgumentParser
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder, encode

BEGUN: Final = "job begun"


class Arguments(Struct, frozen=True):
    """The command line of a peer."""

    bootstrap: str
    source: str
    target: str
    partitions: int
    group: str
    exactly_once: bool


class Speculation(Struct):
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    mean_acceptance_length: float
    acceptance_histogram: list[int]


class Metrics(Struct):
    speculative_decoding: Speculation | None = None


class Body(Struct):
    id: str
    model: str
    metrics: Metrics | None = None


class Event(Struct):
    request_id: str
    body: Body
    final: bool = False


class Open(Struct):
    """The state of an open request: members of its first chunk."""

    response_id: str
    model: str


class Record(Struct):
    request_id: str
    response_id: str
    engine: str
    model: str
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    mean_acceptance_length: float
    acceptance_histogram: dict[str, int]


class Job:
    """Folds events into the states of their requests."""

    def __init__(self) -> None:
        self._begun = False

    def fold(self, request: Open | None, event: Event) -> tuple[Open | None, bytes | None]:
        """Return the new state (None after the last event), and a record if there is one."""
        if not self._begun:
            self._begun = True
            print(BEGUN, file=sys.stderr, flush=True)
        body = event.body
        if request is None:
            request = Open(body.id, body.model)
        record = None
        if body.metrics is not None and body.metrics.speculative_decoding is not None:
            record = _record(event.request_id, request, body.metrics.speculative_decoding)
        return None if event.final else request, record


def _record(request_id: str, request: Open, numbers: Speculation) -> bytes:
    return encode(
        Record(
            request_id=request_id,
            response_id=request.response_id,
            engine="vllm",
            model=request.model,
            num_spec_steps=numbers.num_spec_steps,
            num_accepted_draft_tokens=numbers.num_accepted_draft_tokens,
            num_draft_tokens=numbers.num_draft_tokens,
            mean_acceptance_length=numbers.mean_acceptance_length,
            acceptance_histogram={
                str(accepted): steps
                for accepted, steps in enumerate(numbers.acceptance_histogram)
                if steps
            },
        )
    )


decode: Final = Decoder(Event).decode


def arguments() -> Arguments:
    parser = ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("partitions", type=int)
    parser.add_argument("group")
    parser.add_argument("--exactly-once", action="store_true")
    return Arguments(**vars(parser.parse_args()))
