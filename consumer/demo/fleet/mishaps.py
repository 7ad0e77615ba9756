"""What goes wrong: with a reply before it travels, and with its messages on their way."""

from random import Random

from msgspec.structs import replace

from consumer.demo.fleet.exchange import DONE, Reply, server_sent
from consumer.demo.fleet.messages import FleetMessage, Label
from schemas import IncompleteReason, RequestOutcome, SkipReason

# --- With the reply


def breaks(reply: Reply) -> Reply:
    """Fail in the middle, and say [DONE] all the same."""
    error = {"message": "engine died", "type": "InternalServerError", "code": 500}
    chunks = [*reply.chunks[: len(reply.chunks) // 2], {"error": error}, DONE]
    failed = (RequestOutcome.FAILED_RESPONSE, None)
    return replace(reply, chunks=chunks, record=None, unpublished=failed)


def stops(reply: Reply) -> Reply:
    """Say no more from the middle on."""
    chunks = reply.chunks[: len(reply.chunks) // 2]
    incomplete = (RequestOutcome.INCOMPLETE, IncompleteReason.IDLE_TIMEOUT)
    return replace(reply, chunks=chunks, record=None, unpublished=incomplete, complete=False)


def cut_inside_a_chunk(reply: Reply) -> Reply:
    """Lose everything after half of the chunk in the middle."""
    half = len(reply.chunks) // 2
    text = server_sent(reply.chunks[half]).decode()
    chunks = [*reply.chunks[:half], text[: len(text) // 2]]
    incomplete = (RequestOutcome.INCOMPLETE, IncompleteReason.TRUNCATED)
    return replace(reply, chunks=chunks, record=None, unpublished=incomplete, complete=False)


def no_end_mark(reply: Reply) -> Reply:
    """End without [DONE]."""
    return replace(reply, chunks=reply.chunks[:-1], complete=False)


def goes_on(reply: Reply) -> Reply:
    """Add an event after [DONE]."""
    event = 'event: trtllm.perf_metrics\ndata: {"ttft":"0.048"}\n\n'
    return replace(reply, chunks=[*reply.chunks, event])


def will_lose_a_chunk(reply: Reply) -> Reply:
    """Know what comes of a reply that `loses_a_chunk`."""
    gap = (RequestOutcome.INCOMPLETE, IncompleteReason.GAP)
    return replace(reply, unpublished=gap, complete=False, after_timeout=True)


# --- With the messages


def loses_a_chunk(_rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    """Lose the second message."""
    return [*messages[:1], *messages[2:]]


def repeats_a_chunk(rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    """Send a message from the middle twice in a row."""
    chosen = messages[rng.randrange(1, len(messages) - 1)]
    return [*messages, _again(chosen, chosen.timestamp, SkipReason.DUPLICATE)]


def repeats_late(rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    """Send a message once more when the request has ended."""
    late = messages[-1].timestamp + 400
    return [*messages, _again(rng.choice(messages[:-1]), late, SkipReason.LATE_REPEAT)]


def repeats_the_response(_rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    """Send the whole response once more."""
    late = messages[-1].timestamp + 200
    return [*messages, _again(messages[-1], late, SkipReason.REPEATED_RESPONSE)]


def swaps_neighbours(rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    """Swap every two messages that follow each other."""
    swapped = list(messages)
    for first in range(rng.randrange(2), len(messages) - 1, 2):
        one, other = messages[first], messages[first + 1]
        swapped[first] = other._replace(timestamp=one.timestamp)
        swapped[first + 1] = one._replace(timestamp=other.timestamp)
    return swapped


def says_done_in_vain(_rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    """Know that [DONE] comes too late: the error chunk has ended the request."""
    return [*messages[:-1], messages[-1]._replace(reason=SkipReason.LATE_REPEAT)]


def _again(message: FleetMessage, timestamp: int, reason: SkipReason) -> FleetMessage:
    return message._replace(label=Label.REPEAT, timestamp=timestamp, reason=reason)
