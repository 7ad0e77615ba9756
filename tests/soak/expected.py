"""The expected outputs, from an undisturbed pass of the core over the input, and a comparison."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from consumer.core.adapters.registry import load_adapters
from consumer.core.dead_letters import letter_of_message, letter_of_request, readable_headers
from consumer.core.outcomes import RequestResult
from consumer.core.output_messages import OutputMessage, output_of_letter, output_of_record
from consumer.core.partition import MessageResult, Partition, Pipeline
from consumer.core.records import Origin
from consumer.settings.core_options import pipeline_options
from consumer.settings.settings import Settings
from schemas import MessageOutcome, RequestOutcome, SkipReason
from tests.soak.subscriber import Delivered
from tests.unit.core.made import Json, short, short_message

_REQUEST_S: Final = 30.0
_LIMIT: Final = 1_000_000  # No record of this traffic is as large.
_LETTER_OUTCOMES: Final = (
    RequestOutcome.MALFORMED_STATS,
    RequestOutcome.UNRECOGNISED_STATS,
    RequestOutcome.AMBIGUOUS_STATS,
)
_MAX_DESCRIBED: Final = 5


@dataclass
class ExpectedOutputs:
    """The outputs of one undisturbed pass.

    Attributes:
        outputs: the one message of each record id.
        totals: how often each outcome occurred.
        repeats: partition and offset of skipped repeats of whole responses. The memory for those is
            bounded and does not survive a restart, so the service may publish their records.
        open_requests: requests that stream time did not close; none is expected.
        messages: number of messages.

    """

    outputs: dict[str, OutputMessage] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    repeats: set[tuple[int, int]] = field(default_factory=set)
    open_requests: int = 0
    messages: int = 0


def expected_outputs(settings: Settings) -> ExpectedOutputs:
    """Read the input from beginning to end, once and without interruption."""
    expected = ExpectedOutputs()
    core = Pipeline(pipeline_options(settings, ""), load_adapters())
    [topic] = settings.topics
    partitions: dict[int, Partition] = {}
    for message in _all_messages(settings.bootstrap_servers, topic):
        number, offset = message.partition() or 0, message.offset() or 0
        if number not in partitions:
            partitions[number] = core.partition(topic, number, offset)
        partition = partitions[number]
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
            assert record_id not in expected.outputs, f"the core itself returns {record_id} twice"
            expected.outputs[record_id] = output
    expected.open_requests = sum(one.open_requests for one in partitions.values())
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


def _all_messages(bootstrap: str, topic: str) -> Iterator[Message]:
    config = {"bootstrap.servers": bootstrap, "group.id": "undisturbed", "log_level": 0}
    consumer = Consumer({**config, "enable.partition.eof": True})
    try:
        unread = set(consumer.list_topics(topic, timeout=_REQUEST_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            first = consumer.poll(_REQUEST_S)
            assert first is not None, f"{topic}: partitions {unread} have not reached their ends"
            for message in (first, *consumer.consume(1000, 0)):
                if (error := message.error()) is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
                elif error.fatal():
                    raise KafkaException(error)
    finally:
        consumer.close()


@dataclass
class Findings:
    """How the delivered messages differ from the expected ones; each list holds their contents.

    Attributes:
        missing: expected, but not delivered.
        twice: delivered more than once.
        unexpected: delivered, but not expected.
        different: delivered with another content, key, header, topic or timestamp.
        possible_repeats: records of repeats of whole responses, which are outside the guarantee.

    """

    missing: list[Json] = field(default_factory=list)
    twice: list[Json] = field(default_factory=list)
    unexpected: list[Json] = field(default_factory=list)
    different: list[Json] = field(default_factory=list)
    possible_repeats: int = 0

    def wrong(self) -> dict[str, list[Json]]:
        """Return the lists that must be empty, by name."""
        return {
            "missing": self.missing,
            "twice": self.twice,
            "unexpected": self.unexpected,
            "different": self.different,
        }

    def described(self) -> list[str]:
        """Return the first few requests of each list, with their place in the input."""
        return [
            f"{name}: {one['request_id']} of partition {one['source_partition']}, offsets "
            f"{one['source_first_offset']} to {one['source_last_offset']}, "
            f"record id {one['record_id']}"
            for name, contents in self.wrong().items()
            for one in contents[:_MAX_DESCRIBED]
        ]


def compare(
    expected: ExpectedOutputs, topics: dict[str, str], delivered: list[Delivered]
) -> dict[str, Findings]:
    """Return the findings for each kind of output.

    Args:
        expected: the expected outputs.
        topics: the topic of each kind of output.
        delivered: the messages of these topics.

    """
    by_id: defaultdict[str, list[Delivered]] = defaultdict(list)
    for one in delivered:
        by_id[str(one.json["record_id"])].append(one)
    found = {kind: Findings() for kind in topics}
    kind_of = {topic: kind for kind, topic in topics.items()}
    for record_id, output in expected.outputs.items():
        if record_id not in by_id:
            found[output.output].missing.append(msgspec.json.decode(output.value))
    for record_id, copies in by_id.items():
        findings = found[kind_of[copies[0].topic]]
        content = copies[0].json
        wanted = expected.outputs.get(record_id)
        if wanted is not None:
            topic = topics[wanted.output]
            findings.different += [one.json for one in copies if not _is_equal(one, wanted, topic)]
        elif (content["source_partition"], content["source_first_offset"]) in expected.repeats:
            findings.possible_repeats += 1
        else:
            findings.unexpected.append(content)
        if len(copies) > 1:
            findings.twice.append(content)
    return found


def _is_equal(one: Delivered, wanted: OutputMessage, topic: str) -> bool:
    return (
        one.topic == topic
        and one.key == wanted.key
        and one.value == wanted.value
        and one.headers == wanted.headers
        and (not wanted.timestamp or one.timestamp == wanted.timestamp)
    )
