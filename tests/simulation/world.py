"""A world in which everything goes wrong: processes of the real service around a broker in memory.

Several instances read random logs. The world kills them, suspends them for longer than their
session, stops and restarts them; calls of their clients fail and answers are lost; transactions of
other producers hide and abort messages of the input. In the end, a subscriber must read exactly the
records of one undisturbed pass over the input, each once.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer import app
from consumer.core.checkpoint import Checkpoint, decode, encode, topic_hash
from consumer.core.partition import Options, Partition, Pipeline
from consumer.core.reassembly.limits import Limits
from consumer.kafka import membership
from consumer.kafka.administrator import Administrator, Cluster
from consumer.kafka.committer import Committer
from consumer.kafka.context import Context
from consumer.settings.settings import Settings
from consumer.telemetry.clock import Clock
from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_reporter import OutcomeReporter
from consumer.telemetry.stop import Stop
from schemas import IncompleteReason, SkipReason
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.support.kafka_in_memory.administrator import MemoryAdministrator
from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.kafka_in_memory.consumer import MemoryConsumer, read_committed
from tests.support.kafka_in_memory.groups import GroupMetadata
from tests.support.kafka_in_memory.log import Message, Outcome
from tests.support.kafka_in_memory.producer import MemoryProducer
from tests.unit.core.made import ADAPTERS, quicken_time
from tests.unit.core.random_log import RandomLog
from tests.unit.kafka.fakes import Log

INPUT: Final = "input"
RECORDS: Final = "records"
LETTERS: Final = "dead-letters"
GROUP: Final = "group"
SESSION_S: Final = 6.0
LIMITS: Final = Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_reread=100_000)
NEVER: Final = 1e9
_SLOTS: Final = 3
_TIMEOUT_S: Final = 2.0
_UPSTREAM: Final = "upstream"
_MAX_TURNS: Final = 30_000  # Above, the seed comes to no end.
_OTHER_TYPES: Final = (*Options().response_types, "of.settings.that.changed")
# Where it matters in which order things happen: where others may act, and processes die.
_DELICATE: Final = (
    "consumer.committed",
    "consumer.consumer_group_metadata",
    "consumer.incremental_assign",
    "consumer.incremental_unassign",
    "consumer.close",
    "producer.init_transactions",
    "producer.init_transactions.done",
    "producer.begin_transaction",
    "producer.send_offsets_to_transaction",
    "producer.send_offsets_to_transaction.done",
    "producer.commit_transaction",
    "producer.commit_transaction.done",
    "producer.abort_transaction",
    "producer.abort_transaction.done",
)
_STOPS_S: Final = (1.0, 4.0, SESSION_S + 1, 3 * SESSION_S)
_FAILURES: Final = (
    ("consumer.committed", KafkaError(KafkaError._TIMED_OUT)),
    ("consumer.committed", KafkaError(KafkaError.NOT_COORDINATOR)),
    ("consumer.get_watermark_offsets", KafkaError(KafkaError._TIMED_OUT)),
    ("producer.begin_transaction", KafkaError(KafkaError._FATAL, fatal=True)),
    (
        "producer.send_offsets_to_transaction",
        KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True),
    ),
    ("producer.send_offsets_to_transaction", KafkaError(KafkaError._TIMED_OUT, retriable=True)),
    (
        "producer.send_offsets_to_transaction.done",
        KafkaError(KafkaError._TIMED_OUT, retriable=True),
    ),
    (
        "producer.commit_transaction",
        KafkaError(KafkaError.UNKNOWN_MEMBER_ID, txn_requires_abort=True),
    ),
    ("producer.commit_transaction", KafkaError(KafkaError._TIMED_OUT, retriable=True)),
    ("producer.commit_transaction.done", KafkaError(KafkaError._TIMED_OUT, retriable=True)),
    ("producer.commit_transaction.done", KafkaError(KafkaError._FATAL, fatal=True)),
    ("producer.abort_transaction", KafkaError(KafkaError._TIMED_OUT, retriable=True)),
)
_SEEN_IN_LOGS: Final = (
    LogEvent.CLIENTS_REBUILT,
    LogEvent.PARTITIONS_LOST,
    LogEvent.PARTITIONS_REVOKED,
    LogEvent.PRODUCER_FENCED,
    LogEvent.REREAD_FINISHED,
    LogEvent.REREAD_STARTED,
    LogEvent.PARTITION_SILENT,
    LogEvent.TRANSACTION_ABORTED,
)
HAZARDS: Final = (
    "a clean stop",
    "started with other settings",
    "another process with the same transactional id",
    "no broker answers",
    "a commit hangs while another instance joins",
    "messages behind an open transaction",
    "messages of an aborted transaction",
    "the start of re-reading was deleted",
    "a silent closing",
    "a commit while another partition is read again",
    "re-reading does not come to its end",
    "kill: between two turns",
    "kill: elsewhere",
    *(f"kill: {operation}" for operation in _DELICATE),
    *(f"stopped for {seconds:.0f} s" for seconds in _STOPS_S),
    *(f"{operation} fails with {error.name()}" for operation, error in _FAILURES),
    *(f"logged: {event}" for event in _SEEN_IN_LOGS),
)

FAULTS: Final = (
    "_start_one",
    "_kill_one",
    "_stop_one",
    "_take_over",
    "_pass_time",
    "_take_away_broker",
    "_fail_a_call",
    "_hang_a_commit",
    "_eat",
    "_between",
)
"""What a world may do to its instances, beside writing."""

Published = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]


class WrongError(AssertionError):
    """The promise is broken."""


class World:
    """A cluster, its input, and instances of the service.

    Args:
        seed: what makes it this world.

    Attributes:
        hazards: how often each occurred.
        plans: the messages to write, by partition.
        off: names of what must not happen, see `FAULTS`.

    """

    def __init__(self, seed: int) -> None:
        self.off: frozenset[str] = frozenset()
        self.hazards: Counter[str] = Counter(dict.fromkeys(HAZARDS, 0))
        self.random = Random(seed)
        self.clock = Scheduler(self.random)
        self.broker = MemoryBroker(self.clock)
        self.silent = self.random.random() < 0.2
        self.eats = not self.silent and self.random.random() < 0.1
        # Shorter than a session, as it should be, or longer.
        self.transaction_s = self.random.choice((3.0, 3.0, 10.0))
        self.calm = False
        partitions = self.random.choice((1, 2, 2, 3))
        self.broker.create_topic(INPUT, partitions)
        for topic in (RECORDS, LETTERS):
            self.broker.create_topic(topic, 2)
        self.plans: list[list[Message]] = []
        for number in range(partitions):
            log = RandomLog(seed * 10 + number, self.random.choice((3, 6, 9)), tame=self.eats)
            self.hazards.update(log.hazards)
            self.plans.append([cast("Message", message) for message in log.messages])
        self._written = [0] * partitions
        self._inputs: list[list[Message]] = [[] for _ in range(partitions)]
        self._upstream = self.broker.init_producer(_UPSTREAM, NEVER)
        self._held: list[tuple[int, int, list[Message]]] | None = None
        self._instances: dict[int, Instance] = {}
        self._lineages: dict[tuple[int, str], tuple[int, ...]] = {}
        self.broker.between = self._between

    # The course of things

    def run(self) -> None:
        """Let everything happen, and hold the result against one undisturbed pass.

        Raises:
            WrongError: the promise is broken, or nothing more gets done.

        """
        for slot in range(self.random.choice((1, 2, 2, 3))):
            self._start(slot)
        turns = 0
        while self._is_writing():
            turns += 1
            self._disturb()
            self.clock.turn()
        self._calm_down()
        while not self._is_committed():
            turns += 1
            if turns > _MAX_TURNS:
                raise WrongError("nothing more gets done")
            if not self._living():
                self._start(0)
            self.clock.turn()
        for instance in self._living():
            instance.stop.request("SIGTERM")
        while self._living():
            self.clock.turn()
        self.hazards["re-reading does not come to its end"] += (
            self.hazards[f"logged: {LogEvent.REREAD_STARTED}"]
            - self.hazards[f"logged: {LogEvent.REREAD_FINISHED}"]
        )
        self._check()

    def _is_writing(self) -> bool:
        return any(done < len(plan) for done, plan in zip(self._written, self.plans, strict=True))

    def _calm_down(self) -> None:
        self.calm = True
        self.broker.away = False
        self.broker.fail_next.clear()
        if self._held is not None:
            self._end_upstream()
        for instance in self._living():
            instance.sleeps_until = 0.0

    def _is_committed(self) -> bool:
        """Whether everything is committed that there is, and may be read."""
        group = self.broker.group(GROUP)
        partitions = self.broker.partitions
        return (
            not group.pending
            and all(partition.stable == partition.end for partition in partitions.values())
            and all(
                (found := group.offsets.get((INPUT, number))) is not None
                and found.offset == partitions[INPUT, number].end
                for number in range(len(self.plans))
            )
        )

    def _living(self) -> list["Instance"]:
        return [one for one in self._instances.values() if self.clock.lives(one)]

    def _disturb(self) -> None:
        """Let chance do something between two turns."""
        chance = self.random.random()
        for deed, share in self._deeds:
            chance -= share
            if chance < 0:
                if deed.__name__ not in self.off:
                    deed()
                return

    @property
    def _deeds(self) -> tuple[tuple[Callable[[], None], float], ...]:
        """What may happen between two turns, and in which share of them."""
        return (
            (self._write, 0.25),
            (self._start_one, 0.02),
            (self._kill_one, 0.005),
            (self._stop_one, 0.005),
            (self._take_over, 0.005),
            (self._pass_time, 0.01),
            (self._take_away_broker, 0.012 if self.broker.away else 0.003),
            (self._fail_a_call, 0.02),
            (self._hang_a_commit, 0.005),
            (self._eat, 0.03 if self.eats else 0.0),
        )

    def _pass_time(self) -> None:
        self.clock.advance(self.random.choice((0.5, 2.0, 4.0, SESSION_S + 1)))

    def _take_away_broker(self) -> None:
        self.broker.away = not self.broker.away
        self.hazards["no broker answers"] += self.broker.away

    # Input

    def _write(self) -> None:
        """Write some messages of one partition, perhaps in a transaction that stays open."""
        number = self.random.randrange(len(self.plans))
        done, plan = self._written[number], self.plans[number]
        some = plan[done : done + self.random.choice((1, 2, 5, 12))]
        if not some:
            return
        hide = self._held is None and self.random.random() < 0.05
        if hide:
            self._held = []
            self.hazards["messages behind an open transaction"] += 1
        producer = (_UPSTREAM, self._upstream) if hide else None
        written = [self._append(number, message, producer) for message in some]
        if hide and self._held is not None:
            self._held.append((number, done, written))
        else:
            self._inputs[number] += written
        self._written[number] += len(some)
        if self._held is not None and not hide and self.random.random() < 0.3:
            self._end_upstream()

    def _append(self, number: int, message: Message, producer: tuple[str, int] | None) -> Message:
        content = (message.key(), message.value(), message.headers() or [])
        stamp = message.timestamp()[1]
        return self.broker.append((INPUT, number), content, stamp, producer=producer)

    def _end_upstream(self) -> None:
        """Let a transaction of the input end; what is aborted is written again."""
        held, self._held = self._held or [], None
        kept = self.random.random() < 0.6
        outcome = Outcome.COMMITTED if kept else Outcome.ABORTED
        self.broker.end_transaction(_UPSTREAM, self._upstream, outcome)
        for number, done, written in held:
            if kept:
                self._inputs[number] += written
            else:
                self.hazards["messages of an aborted transaction"] += 1
                self.plans[number] += self.plans[number][done : done + len(written)]

    def _eat(self) -> None:
        """Let retention delete what was read."""
        number = self.random.randrange(len(self.plans))
        committed = self.broker.group(GROUP).offsets.get((INPUT, number))
        partition = self.broker.partitions[INPUT, number]
        if committed is not None and partition.start < committed.offset:
            offset = self.random.randrange(partition.start, committed.offset) + 1
            self.broker.delete_below(INPUT, number, offset)
            self.hazards["the start of re-reading was deleted"] += 1

    # Instances

    def _start(self, slot: int) -> None:
        before = self._instances.get(slot)
        if before is not None and self.clock.lives(before):
            return
        self._instances[slot] = Instance(self, slot)

    def _start_one(self) -> None:
        self._start(self.random.randrange(_SLOTS))

    def _kill_one(self) -> None:
        if living := self._living():
            self._kill(self.random.choice(living), "between two turns")

    def _stop_one(self) -> None:
        if living := self._living():
            self.hazards["a clean stop"] += 1
            self.random.choice(living).stop.request("SIGTERM")

    def _kill(self, instance: "Instance", when: str) -> None:
        instance.killed = True
        self.hazards[f"kill: {when}"] += 1

    def _take_over(self) -> None:
        """Start an instance instead of one that is suspended for a while."""
        living = self._living()
        if living:
            zombie = self.random.choice(living)
            self._stop_for_a_while(zombie)
            self._instances[-self.random.randrange(1, 1_000_000)] = zombie
            self._instances[zombie.slot] = Instance(self, zombie.slot)
            self.hazards["another process with the same transactional id"] += 1

    def _stop_for_a_while(self, instance: "Instance") -> None:
        seconds = self.random.choice(_STOPS_S)
        instance.sleeps_until = self.clock.monotonic() + seconds
        self.hazards[f"stopped for {seconds:.0f} s"] += 1

    def _fail_a_call(self) -> None:
        operation, error = self.random.choice(_FAILURES)
        times = self.random.choice((1, 1, 2, 8)) if error.retriable() else 1
        self.broker.fail_next[operation] = [KafkaException(error)] * times
        self.hazards[f"{operation} fails with {error.name()}"] += 1

    def _hang_a_commit(self) -> None:
        """Let a commit take longer than the group waits for it, while another instance joins."""
        error = KafkaError(KafkaError._TIMED_OUT, retriable=True)
        self.broker.fail_next["producer.commit_transaction"] = [KafkaException(error)] * 5
        self._start_one()
        self.hazards["a commit hangs while another instance joins"] += 1

    def _between(self, operation: str) -> None:
        """Let others act where a client calls the broker, or end its process."""
        process = self.clock.current()
        if process is None:
            return
        if process.killed:
            raise Killed
        if self.calm or self._between.__name__ in self.off:
            return
        delicate = operation in _DELICATE
        chance = self.random.random()
        if chance < (0.006 if delicate else 0.0002):
            self._kill(cast("Instance", process), operation if delicate else "elsewhere")
            raise Killed
        if chance < (0.012 if delicate else 0.0004):
            self._stop_for_a_while(cast("Instance", process))
        elif operation in self.broker.fail_next and delicate:
            self.clock.wait(_TIMEOUT_S)  # What is not answered takes its time.
            return
        elif chance > (0.3 if delicate else 0.02):
            return
        self.clock.wait(0)

    # Silence is an input of the core, which a commit makes part of what has happened

    def partition(self, made: "WatchedPartition", checkpoint: Checkpoint | None) -> None:
        """Note which closings a state already knows of."""
        number = made.origin.partition
        if checkpoint is not None:
            made.closed_at = self._lineages[number, encode(checkpoint)]

    def checkpoint(self, made: "WatchedPartition", checkpoint: Checkpoint) -> None:
        """Note which closings a checkpoint knows of."""
        others = cast("_WatchedPipeline", made._pipeline).made.values()
        if not all(other.live for other in others):
            self.hazards["a commit while another partition is read again"] += 1
        self._lineages[made.origin.partition, encode(checkpoint)] = made.closed_at

    # The promise

    def _check(self) -> None:
        expected, repeats, silenced = self._expected()
        for topic in (RECORDS, LETTERS):
            found = self._found(topic, repeats, silenced)
            if self.eats:
                self._check_eaten(found, expected[topic])
            elif found != expected[topic]:
                missing, surplus = expected[topic] - found, found - expected[topic]
                raise WrongError(
                    f"{topic}: missing {_ids(missing)}, too many {_ids(surplus)} "
                    f"of {sum(expected[topic].values())}"
                )

    def _check_eaten(self, found: Counter[Published], expected: Counter[Published]) -> None:
        """Check that no outcome is duplicated or lost; deleted messages may change the time."""
        ids = Counter(
            msgspec.json.decode(value or b"")["record_id"] for _, value, _ in found.elements()
        )
        if twice := [record_id for record_id, count in ids.items() if count > 1]:
            raise WrongError(f"reported twice: {twice}")
        for _, value, _ in expected - found:
            content = msgspec.json.decode(value or b"")
            number, offset = content["source_partition"], content["source_first_offset"]
            if (
                offset >= self.broker.partitions[INPUT, number].start
                and content["record_id"] not in ids
                and offset not in {place[0] for place in self._final(number).open}
            ):
                raise WrongError(f"forgotten though it is all there: {content['record_id']}")

    def _final(self, number: int) -> Checkpoint:
        """Return the checkpoint that was committed last."""
        committed = self.broker.group(GROUP).offsets[INPUT, number]
        hashed = topic_hash(self.broker.topic_id(INPUT))
        found = decode(committed.metadata or "", committed.offset, hashed)
        assert isinstance(found, Checkpoint)
        return found

    def _found(
        self, topic: str, repeats: set[tuple[int, int]], silenced: set[tuple[int, str]]
    ) -> Counter[Published]:
        """Return what a subscriber reads, without what the promise leaves out.

        Raises:
            WrongError: a ``record_id`` of a request that silence closed appears twice.

        """
        found: Counter[Published] = Counter()
        ids: set[str] = set()
        for message in read_committed(self.broker, topic):
            content = msgspec.json.decode(message.value() or b"")
            number = content["source_partition"]
            if (number, content["source_first_offset"]) in repeats:
                self.hazards["possible repeat of a whole response"] += 1
            elif (number, (message.key() or b"").decode()) in silenced:
                if content["record_id"] in ids:
                    raise WrongError(f"reported twice: {content['record_id']}")
                ids.add(content["record_id"])
            else:
                found[_published(message.key(), message.value(), message.headers() or [])] += 1
        return found

    def _expected(
        self,
    ) -> tuple[dict[str, Counter[Published]], set[tuple[int, int]], set[tuple[int, str]]]:
        """Return what one undisturbed pass publishes, and what the promise leaves out.

        Returns:
            The outputs by topic, without those of requests that silence closed; the places of
            repeats of whole responses; the requests that silence closed, by partition.

        """
        log = cast("Logger", Log())
        reporter = _reporter(self.clock, log)
        expected: dict[str, Counter[Published]] = {RECORDS: Counter(), LETTERS: Counter()}
        repeats = set()
        silenced = set()
        core = Pipeline(_options(Options().response_types), ADAPTERS)
        for number, messages in enumerate(self._inputs):
            partition = core.partition(INPUT, number, 0)
            closings = list(self._lineages[number, encode(self._final(number))])
            self.hazards["a silent closing"] += len(closings)
            outputs = []
            for message in sorted(messages, key=lambda one: one.offset() or 0):
                while closings and closings[0] <= (message.offset() or 0):
                    closings.pop(0)
                    partition.close_silent()
                result = partition.feed(message)  # type: ignore[arg-type]
                if result.reason is SkipReason.REPEATED_RESPONSE:
                    repeats.add((number, message.offset() or 0))
                outputs += reporter.report_message(message, result, partition.origin)  # type: ignore[arg-type]
            if closings:
                partition.close_silent()
            for finished in partition.drain():
                if finished.response.incomplete is IncompleteReason.PARTITION_SILENT:
                    silenced.add((number, finished.response.request_id or ""))
                outputs += reporter.report_request(finished, partition.origin)
            for output in outputs:
                topic = RECORDS if output.output == "record" else LETTERS
                if (number, (output.key or b"").decode()) not in silenced:
                    expected[topic][_published(output.key, output.value, output.headers)] += 1
        return expected, repeats, silenced


class Instance(Process):
    """One process of the service.

    Args:
        world: where it lives.
        slot: which of the instances it is; it is known by it when it is started again.

    """

    def __init__(self, world: World, slot: int) -> None:
        super().__init__()
        self.slot = slot
        self.stop = Stop()
        random = world.random
        changed = random.random() < 0.2
        world.hazards["started with other settings"] += changed
        self.settings = Settings(
            topics=(INPUT,),
            output_topic=RECORDS,
            dead_letter_topic=LETTERS,
            dead_letters="reference",
            group=GROUP,
            transactional_id=f"instance-{slot}",
            commit_interval=random.choice((0.05, 0.2, 1.0)),
            max_commit_outputs=random.choice((2, 10, 1_000)),
            idle_timeout=0.5 if world.silent else NEVER,
            shutdown_timeout=5.0,
            kafka_consumer={"max.poll.interval.ms": "20000"},
            kafka_producer={"transaction.timeout.ms": str(round(world.transaction_s * 1000))},
        )
        types = _OTHER_TYPES if changed else Options().response_types
        log = cast("Logger", _InstanceLog(world))
        service = app.Service(
            Context(self.settings, world.clock, log, self.stop),
            _WatchedPipeline(world, _options(types)),
            cast("Administrator", MemoryAdministrator(world.broker)),
            Cluster("sim", True, 1_000_000, 1_000_000, {INPUT: len(world.plans)}),
            Health(self.stop, self.settings.shutdown_timeout, world.clock, log),
            Metrics(),
        )
        world.clock.spawn(self, service.run)


class _InstanceLog(Log):
    """Counts what is logged, and takes bugs seriously."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def _say(self, _level: str, event: LogEvent, fields: dict[str, Any]) -> None:
        self._world.hazards[f"logged: {event}"] += 1
        if event is LogEvent.STATE_DIFFERS:
            raise Killed from WrongError(f"reading again gave another state: {fields}")

    def exception(self, event: LogEvent, /, **fields: object) -> None:
        raise WrongError(f"{event}: {fields}") from sys.exception()


class _WatchedPipeline(Pipeline):
    def __init__(self, world: World, options: Options) -> None:
        super().__init__(options, ADAPTERS)
        self.world = world
        self.made: dict[int, WatchedPartition] = {}

    def partition(self, topic: str, partition: int, position: int) -> Partition:
        self.made[partition] = WatchedPartition(self, topic, partition, position, None)
        return self.made[partition]

    def resume(self, topic: str, partition: int, checkpoint: Checkpoint) -> Partition:
        self.made[partition] = WatchedPartition(
            self, topic, partition, checkpoint.position, checkpoint
        )
        return self.made[partition]


class WatchedPartition(Partition):
    """A partition that remembers where it was closed because of silence.

    Attributes:
        closed_at: positions, of the states before it too.

    """

    closed_at: tuple[int, ...] = ()

    def __init__(
        self,
        pipeline: _WatchedPipeline,
        topic: str,
        partition: int,
        position: int,
        checkpoint: Checkpoint | None,
    ) -> None:
        super().__init__(pipeline, topic, partition, position, checkpoint)
        self._world = pipeline.world
        self._world.partition(self, checkpoint)

    def close_silent(self) -> None:
        self.closed_at = (*self.closed_at, self.position)
        super().close_silent()

    def checkpoint(self, topic: int) -> Checkpoint:
        found = super().checkpoint(topic)
        self._world.checkpoint(self, found)
        return found


class _Consumer(MemoryConsumer):
    """A consumer that waits for messages, and gets them in pieces of any size."""

    def __init__(self, world: World, settings: Settings) -> None:
        super().__init__(
            world.broker,
            {
                "group.id": settings.group,
                "session.timeout.ms": SESSION_S * 1000,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
            },
        )
        self._world = world

    def poll(self, timeout: float = -1) -> Message | None:
        found = super().poll(timeout)
        if found is None:
            self._world.clock.wait(self._world.random.random() * timeout)
        return found

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return super().consume(min(num_messages, self._world.random.choice((1, 3, 40))), timeout)

    def _metadata(self) -> GroupMetadata:
        """Return what the real client may: its background thread knows first of an expulsion."""
        found = super()._metadata()
        expelled = found.member not in self._world.broker.group(GROUP).members
        return GroupMetadata(found.group, -1, "", found.instance) if expelled else found


class _Producer(MemoryProducer):
    def __init__(self, world: World, settings: Settings) -> None:
        super().__init__(
            world.broker,
            {
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": round(world.transaction_s * 1000),
                "delivery.report.only.error": True,
            },
        )
        self._world = world

    def poll(self, timeout: float = -1) -> int:
        served = super().poll(timeout)
        if not served and timeout > 0 and len(self):
            self._world.clock.wait(timeout)
        return served


class _Committer(Committer):
    """A committer whose thread is a task of its process."""

    _scheduler: Scheduler

    def start(self) -> None:
        process = self._scheduler.current()
        assert process is not None
        self._scheduler.spawn(process, self._run)

    def _wait_until(self, reached: Callable[[], bool], timeout: float) -> bool:
        if not reached() and timeout > 0:
            self._scheduler.wait(timeout, reached)
        return reached()

    def _wait_for_batch(self) -> bool:
        self._scheduler.wait(until=lambda: self._stopping or self._batch is not None)
        return not self._stopping


@contextmanager
def simulated() -> Iterator[Callable[[int], World]]:
    """Let the service's shell make clients of worlds; yield what makes a world of a seed."""
    current: list[World] = []

    def make(seed: int) -> World:
        current[:] = [World(seed)]
        return current[0]

    def committer(delivery: Any, clock: Clock) -> Committer:
        made = _Committer(delivery, clock)
        made._scheduler = current[0].clock
        return made

    with pytest.MonkeyPatch.context() as patch:
        quicken_time(patch)
        patch.setattr(app, "Committer", committer)
        patch.setattr(membership, "close_within", lambda consumer, _: consumer.close())
        patch.setattr(app, "make_consumer", lambda given, *_: _Consumer(current[0], given))
        patch.setattr(app, "make_producer", lambda given, *_: _Producer(current[0], given))
        yield make


def _options(response_types: tuple[str, ...]) -> Options:
    return Options(fleet="sim", limits=LIMITS, response_types=response_types)


def _reporter(clock: Clock, log: Logger) -> OutcomeReporter:
    return OutcomeReporter(
        dead_letters="reference",
        record_limit=1_000_000,
        letter_limit=1_000_000,
        log_payloads=False,
        clock=clock,
        log=log,
    )


def _published(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, Any]]
) -> Published:
    return key, value, tuple((name, bytes(content)) for name, content in headers)


def _ids(published: Iterable[Published]) -> list[str]:
    return sorted(msgspec.json.decode(value or b"")["record_id"] for _, value, _ in published)
