"""What goes wrong: with a reply before it travels, and with its messages on their way."""

from random import Random

from msgspec.structs import replace

from consumer.demo.fleet.messages import FleetMessage, MessageKind
from consumer.demo.fleet.requests import END_MARKER, Reply, server_sent_event
from schemas import IncompleteReason, RequestOutcome, SkipReason

Messages = list[FleetMessage]

# --- With the reply


def fail_midway(reply: Reply) -> Reply:
    """Send an error in the middle, and [DONE] all the same."""
    error = {"message": "engine died", "type": "InternalServerError", "code": 500}
    chunks = [*reply.chunks[: len(reply.chunks) // 2], {"error": error}, END_MARKER]
    failed = (RequestOutcome.FAILED_RESPONSE, None)
    return replace(reply, chunks=chunks, record=None, unpublished=failed)


def stop_midway(reply: Reply) -> Reply:
    """Send nothing after the middle."""
    chunks = reply.chunks[: len(reply.chunks) // 2]
    incomplete = (RequestOutcome.INCOMPLETE, IncompleteReason.IDLE_TIMEOUT)
    return replace(reply, chunks=chunks, record=None, unpublished=incomplete, is_complete=False)


def truncate(reply: Reply) -> Reply:
    """Cut the stream inside the chunk in the middle."""
    half = len(reply.chunks) // 2
    text = server_sent_event(reply.chunks[half]).decode()
    chunks = [*reply.chunks[:half], text[: len(text) // 2]]
    incomplete = (RequestOutcome.INCOMPLETE, IncompleteReason.TRUNCATED)
    return replace(reply, chunks=chunks, record=None, unpublished=incomplete, is_complete=False)


def drop_end_marker(reply: Reply) -> Reply:
    """End without [DONE]."""
    return replace(reply, chunks=reply.chunks[:-1], is_complete=False)


def add_event_after_end(reply: Reply) -> Reply:
    """Add an event after [DONE]."""
    event = 'event: trtllm.perf_metrics\ndata: {"ttft":"0.048"}\n\n'
    return replace(reply, chunks=[*reply.chunks, event])


def expect_gap(reply: Reply) -> Reply:
    """Expect the outcome of `lose_chunk`."""
    gap = (RequestOutcome.INCOMPLETE, IncompleteReason.GAP)
    return replace(reply, unpublished=gap, is_complete=False, after_timeout=True)


# --- With the messages


def lose_chunk(_rng: Random, messages: Messages) -> Messages:
    """Lose the second message."""
    return [*messages[:1], *messages[2:]]


def repeat_chunk(rng: Random, messages: Messages) -> Messages:
    """Send a message from the middle twice in a row."""
    chosen = messages[rng.randrange(1, len(messages) - 1)]
    return [*messages, _repeat(chosen, chosen.timestamp, SkipReason.DUPLICATE)]


def repeat_chunk_late(rng: Random, messages: Messages) -> Messages:
    """Send a message again after the request has ended."""
    late = messages[-1].timestamp + 400
    return [*messages, _repeat(rng.choice(messages[:-1]), late, SkipReason.LATE_REPEAT)]


def repeat_response(_rng: Random, messages: Messages) -> Messages:
    """Send the whole response again."""
    late = messages[-1].timestamp + 200
    return [*messages, _repeat(messages[-1], late, SkipReason.REPEATED_RESPONSE)]


def swap_neighbours(rng: Random, messages: Messages) -> Messages:
    """Swap each message with the next one."""
    swapped = list(messages)
    for first in range(rng.randrange(2), len(messages) - 1, 2):
        one, other = messages[first], messages[first + 1]
        swapped[first] = other._replace(timestamp=one.timestamp)
        swapped[first + 1] = one._replace(timestamp=other.timestamp)
    return swapped


def expect_late_end(_rng: Random, messages: Messages) -> Messages:
    """Expect that [DONE] comes too late: the error chunk has ended the request."""
    return [*messages[:-1], messages[-1]._replace(reason=SkipReason.LATE_REPEAT)]


def _repeat(message: FleetMessage, timestamp: int, reason: SkipReason) -> FleetMessage:
    return message._replace(kind=MessageKind.REPEAT, timestamp=timestamp, reason=reason)
