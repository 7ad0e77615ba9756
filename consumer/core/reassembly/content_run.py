"""The short path: content chunks, each the next one of an open stream, which nearly all events are.

Such a chunk changes a few numbers of its attempt and nothing else, so that its envelope is decoded
into a struct that refuses everything else, and no event is made of it. Between its events an
attempt is compact: it keeps what the next content needs. The result is the same as that of the
long path, `Reassembler.add`, as the tests show on random and hostile logs.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import astuple, replace

from consumer.core.bodies.facts import ResponseFacts
from consumer.core.message import Message
from consumer.core.reassembly.attempt import Attempt, RequestKey
from consumer.core.response_event import NOT_CONTENT, Content
from consumer.core.stream_time import BlockState
from consumer.core.times import UNSET_TIMES, event_time
from schemas.record import MAX_TEXT


def fold_run(
    contents: Iterator[Content],
    messages: Sequence[Message],
    at: int,
    offset: int,
    block: BlockState,
    latest: Mapping[RequestKey, Attempt],
) -> int:
    """Fold contents up to the first that is not the next one of an open stream.

    It is one loop without Python calls, since a call takes as long as the rest of its work.

    Args:
        contents: of messages of consecutive offsets in one block; raises `NOT_CONTENT` for a
            message that can say more. The iterator has already consumed the message at which
            folding stopped.
        messages: messages of the partition.
        at: index of the message of the first content.
        offset: its offset.
        block: stream time where the block begins.
        latest: the latest attempt of each request.

    Returns:
        how many contents were folded.

    """
    first = within = offset - block.offset
    find = latest.get
    try:
        for content in contents:
            attempt = find(content.request_id)
            # The body id must be the attempt's: another one is for `Reassembler.add` to judge.
            if attempt is None or attempt.content_id != content.body.id:
                break
            sequence = content.sequence
            # A repeat, a gap, or an event without sequence among others with one.
            if sequence != attempt.next_sequence:
                break
            time = content.timestamp
            if type(time) is not int:
                time = _time_of(time, messages[at + within - first])
                if time is None:
                    break
            if time > attempt.completed:
                attempt.completed = time
            elif time < attempt.started:
                attempt.started = time
            if sequence is None:
                attempt.unsequenced_events += 1
            else:
                attempt.next_sequence = sequence + 1
            attempt.last_new_block = block
            attempt.last_new_within = within
            within += 1
    except NOT_CONTENT:
        pass
    return within - first


def compact(attempt: Attempt) -> None:
    """Keep what the next event needs, until `expand` undoes it.

    `fold_run` counts in `next_sequence` alone: what arrives behind a gap is added to `seen` by
    `expand`. Facts that differ from those of other responses in the id alone are shared with them.
    """
    seen = attempt.seen
    if seen is not None and seen.in_order:
        attempt.next_sequence, attempt.seen = seen.next, None
    content_id = _content_id(attempt)
    if content_id is None:
        return
    if attempt.seen is not None:
        attempt.next_sequence = attempt.seen.top
    if attempt.facts.stats is None:
        attempt.facts.response_id = None
        attempt.facts = _shared(astuple(attempt.facts))
    attempt.content_id = content_id


def expand(attempt: Attempt) -> None:
    """Undo `compact`, before anything but `fold_run` reads or changes the attempt."""
    content_id, attempt.content_id = attempt.content_id, None
    if content_id is None:
        return
    attempt.facts = replace(attempt.facts, response_id=content_id)
    if attempt.seen is not None and attempt.next_sequence is not None:
        attempt.seen.reach(attempt.next_sequence)
        attempt.next_sequence = None


def _content_id(attempt: Attempt) -> str | None:
    """Return the body id of chunks that, if they are next, can bring an attempt only content.

    Everything else that such a chunk could set was set by an earlier one, and nothing waits for it.
    """
    facts, following = attempt.facts, attempt.next_sequence
    if attempt.seen is not None:
        following = attempt.seen.top or 0
    if (
        attempt.segments is not None
        or attempt.completed < 0
        or facts.model is None
        or not facts.choices
        or facts.finish_order < facts.closing_order  # What follows may be of another call.
        or attempt.awaits_usage
        or not facts.streamed
        or len(facts.response_id or "") >= MAX_TEXT
        or (following is not None and (attempt.unsequenced_events or not following))
    ):
        return None
    return facts.response_id


@lru_cache(maxsize=1024)
def _shared(members: tuple[Any, ...]) -> ResponseFacts:
    """Return facts that several attempts share, and that must not be changed."""
    return ResponseFacts(*members)


def _time_of(stated: float | str | None, message: Message) -> int | None:
    """Return the time of an event that does not state it in milliseconds; None if it is odd."""
    if stated is None or stated in UNSET_TIMES:
        kind, stamp = message.timestamp()
        stated = stamp if kind else -1
    return event_time(stated)
