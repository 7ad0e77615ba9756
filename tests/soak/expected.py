"""What should be downstream: an undisturbed pass of the core over the input, and a comparison."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from consumer.app import pipeline_options
from consumer.core.adapters.registry import load_adapters
from consumer.core.dead_letters import letter_of_message, letter_of_request, readable_headers
from consumer.core.outcomes import RequestResult
from consumer.core.output_messages import OutputMessage, output_of_letter, output_of_record
from consumer.core.partition import MessageResult, Partition, Pipeline
from consumer.core.records import Origin
from consumer.settings.settings import Settings
from schemas import MessageOutcome, RequestOutcome, SkipReason
from tests.soak.downstream import Seen
from tests.unit.core.made import Json, short, short_message

_REQUEST_S: Final = 30.0
_LIMIT: Final = 1_000_000  # Nothing that is sent makes a record as large as that.
_LETTER_OUTCOMES: Final = (
    RequestOutcome.MALFORMED_STATS,
    RequestOutcome.UNRECOGNISED_STATS,
    RequestOutcome.AMBIGUOUS_STATS,
)
_SHOWN: Final = 5


@dataclass
class Expected:
    """What one undisturbed pass gives.

    Attributes:
        outputs: the one message of each record id.
        totals: how often each outcome occurred.
        repeats: places of responses that the pass passed over as repeats of whole ones. The memory
            for those is bounded and does not survive a restart: their records may or may not come.
        still_open: requests that stream time had not closed by the end; none should be left.
        messages: how many there were.

    """

    outputs: dict[str, OutputMessage] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    repeats: set[tuple[int, int]] = field(default_factory=set)
    still_open: int = 0
    messages: int = 0


def undisturbed(settings: Settings) -> Expected:
    """Read the input from beginning to end, once and without interruption."""
    expected = Expected()
    core = Pipeline(pipeline_options(settings, ""), load_adapters())
    [topic] = settings.topics
    partitions: dict[int, Partition] = {}
    for message in _all_messages(settings.bootstrap_servers, topic):
        number, offset = message.partition() or 0, message.offset() or 0
        partition = partitions.get(number)
        if partition is None:
            partition = partitions[number] = core.partition(topic, number, offset)
        result = partition.feed(message)  # type: ignore[arg-type]
        expected.messages += 1
        if result.reason is SkipReason.REPEATED_RESPONSE:
            expected.repeats.add((number, offset))
        expected.totals[f"message {short_message(result)}"] += 1
        requests = partition.drain()
        expected.totals.update(f"request {short(request)}" for request in requests)
        outputs = [_letter_of(message, result, partition.origin)]
        outputs += [_output_of(request, partition.origin) for request in requests]
        for output in filter(None, outputs):
            record_id = str(msgspec.json.decode(output.value)["record_id"])
            assert record_id not in expected.outputs, f"the core itself gives {record_id} twice"
            expected.outputs[record_id] = output
    expected.still_open = sum(one.open_requests for one in partitions.values())
    return expected


def _letter_of(message: Message, result: MessageResult, origin: Origin) -> OutputMessage | None:
    """Return the dead letter of a message, as a reference to it, if it has one."""
    if result.outcome is not MessageOutcome.BAD_PAYLOAD:
        return None
    reason = str(result.reason)
    headers = readable_headers(message, reason)  # type: ignore[arg-type]
    letter = letter_of_message(
        message,  # type: ignore[arg-type]
        result.outcome,
        reason,
        result.detail,
        origin,
        headers,
        reference=True,
    )
    return output_of_letter(letter, _LIMIT)


def _output_of(result: RequestResult, origin: Origin) -> OutputMessage | None:
    """Return the record of a request, or its dead letter, or neither."""
    if result.record is not None:
        return output_of_record(result.record, result.response, _LIMIT)
    if result.outcome in _LETTER_OUTCOMES:
        return output_of_letter(letter_of_request(result, origin), _LIMIT)
    return None


def _all_messages(bootstrap: str, topic: str) -> Iterable[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "undisturbed", "log_level": 0})
    try:
        numbers = consumer.list_topics(topic, timeout=_REQUEST_S).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=_REQUEST_S
            )[1]
            for number in numbers
        }
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        left = {number for number, end in ends.items() if end}
        while left:
            first = consumer.poll(_REQUEST_S)
            assert first is not None, f"nothing to read of {topic}, and {left} are not at their end"
            for message in (first, *consumer.consume(1000, 0)):
                if (error := message.error()) is not None:
                    if error.fatal():
                        raise KafkaException(error)
                    continue
                yield message
                number = message.partition() or 0
                if (message.offset() or 0) + 1 >= ends[number]:
                    left.discard(number)
    finally:
        consumer.close()


@dataclass
class Findings:
    """How what is downstream differs from what is expected; each list names requests.

    Attributes:
        missing: expected, and not there.
        twice: there more than once.
        unexpected: there, and expected by nobody.
        different: there, with another content, key, header or timestamp than expected.
        possible_repeats: records of repeats of whole responses, which are outside the guarantee.

    """

    missing: list[Json] = field(default_factory=list)
    twice: list[Json] = field(default_factory=list)
    unexpected: list[Json] = field(default_factory=list)
    different: list[Json] = field(default_factory=list)
    possible_repeats: int = 0

    def kinds(self) -> dict[str, list[Json]]:
        """Return what none may be of, by name."""
        return {
            "missing": self.missing,
            "twice": self.twice,
            "unexpected": self.unexpected,
            "different": self.different,
        }

    def described(self) -> list[str]:
        """Name the first few requests of each kind, with where in the input they come from."""
        return [
            f"{name}: {_place(content)}"
            for name, contents in self.kinds().items()
            for content in contents[:_SHOWN]
        ]


def compare(expected: Expected, topics: dict[str, str], seen: list[Seen]) -> dict[str, Findings]:
    """Return the findings for each kind of output.

    Args:
        expected: what should be there.
        topics: name of the topic of each kind of output.
        seen: what is there.

    """
    by_id: defaultdict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        by_id[str(one.json["record_id"])].append(one)
    found = {kind: Findings() for kind in topics}
    kind_of = {topic: kind for kind, topic in topics.items()}
    for record_id, output in expected.outputs.items():
        if record_id not in by_id:
            found[output.kind].missing.append(msgspec.json.decode(output.value))
    for record_id, copies in by_id.items():
        findings = found[kind_of[copies[0].topic]]
        content = copies[0].json
        wanted = expected.outputs.get(record_id)
        if wanted is None:
            place = content["source_partition"], content["source_first_offset"]
            if place in expected.repeats:
                findings.possible_repeats += 1
            else:
                findings.unexpected.append(content)
        else:
            findings.different += [
                one.json for one in copies if not _is_equal(one, wanted, topics[wanted.kind])
            ]
        if len(copies) > 1:
            findings.twice.append(content)
    return found


def _is_equal(seen: Seen, wanted: OutputMessage, topic: str) -> bool:
    return (
        seen.topic == topic
        and seen.key == wanted.key
        and seen.value == wanted.value
        and seen.headers == wanted.headers
        and (not wanted.timestamp or seen.timestamp == wanted.timestamp)
    )


def _place(content: dict[str, Any]) -> str:
    return (
        f"{content['request_id']} of partition {content['source_partition']}, offsets "
        f"{content['source_first_offset']} to {content['source_last_offset']}, "
        f"record id {content['record_id']}"
    )
