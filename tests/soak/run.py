"""One soak: three brokers and three processes under load, all of them disturbed, and the report."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from consumer.core.times import rfc3339
from consumer.settings.settings import Settings
from tests.kafka.harness import Bench, Json
from tests.kafka.server.cluster import KafkaCluster
from tests.soak.disturbances import BROKERS, Action, Disturber, Step
from tests.soak.expected import ExpectedOutputs, Findings, compare, expected_outputs
from tests.soak.processes import DUPLICATE_WINDOW_S, IDLE_TIMEOUT_S, RESIDENTS, Processes
from tests.soak.subscriber import Subscriber
from tests.soak.traffic import Traffic

PARTITIONS: Final = 6
RATE: Final = 1_500.0
_DRAIN_S: Final = 120.0
_LOOK_S: Final = 0.5
_FLEET: Final = "test"  # The name in the settings of `Bench`.
_FOREVER: Final = {"retention.ms": "-1"}  # Some events have old timestamps.
_MAX_LINES: Final = 12
_AFTER_MS: Final = 20_000
_ABOUT_PAYLOADS: Final = ("bad_payload", "stats_rejected")
# Events that no process may log, whatever happens to it.
_NEVER: Final = ("adapter_failed", "checkpoint_ignored", "state_differs", "topic_recreated")
_REBALANCES: Final = ("partitions_assigned", "partitions_revoked", "partitions_lost")


@dataclass
class Report:
    """The result of a soak.

    Attributes:
        seed: the seed.
        seconds: duration of the disturbances.
        sent: number of events sent.
        hazards: how often each hazard occurred in the traffic.
        expected: the outputs of an undisturbed pass.
        findings: how the delivered messages differ from them.
        records: number of records delivered.
        letters: number of dead letters delivered.
        done: how often each action happened.
        steps: what happened, and when.
        events: log lines of all processes by event and level.
        silence_s: longest time without a new record.
        silent_from_s: when it began, counted from the start.
        drain_s: how long it took to reach the end of the input after the traffic had ended.
        failures: everything else that went wrong.
        lines: log lines about the requests of the findings.
        directory: the directory of the logs.

    """

    seed: int
    seconds: float
    sent: int
    hazards: Counter[str]
    expected: ExpectedOutputs
    findings: dict[str, Findings]
    records: int
    letters: int
    done: Counter[Action]
    steps: list[Step]
    events: Counter[tuple[str, str]]
    silence_s: float
    silent_from_s: float
    drain_s: float
    directory: Path
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every output was delivered exactly once, and nothing else went wrong."""
        return not self.failures and not any(
            wrong for findings in self.findings.values() for wrong in findings.wrong().values()
        )

    @property
    def rebalances(self) -> int:
        """Return how often a process was assigned partitions or lost some."""
        return sum(n for (event, _), n in self.events.items() if event in _REBALANCES)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"soak of {self.seconds:.0f} s, seed {self.seed}; logs in {self.directory}"
        yield _row("events", self.sent, f"({self.sent / self.seconds:,.0f} per second)")
        yield _row("records", self.records)
        yield _row("dead letters", self.letters)
        yield from (_row(action, self.done[action]) for action in Action)
        yield _row("rebalances, by process", self.rebalances)
        silence = f"{self.silence_s:.1f} s, from second {self.silent_from_s:.1f} on"
        yield f"  longest time without a record: {silence}"
        yield f"  time to the end of the input: {self.drain_s:.1f} s"
        yield "actions"
        yield from (f"  {step.at:8.1f} s  {step.action} {step.target}" for step in self.steps)
        yield "hazards in the traffic"
        yield from (_row(name, number) for name, number in sorted(self.hazards.items()))
        yield "log lines"
        for (event, level), number in sorted(self.events.items()):
            yield _row(event, number, level)
        yield "outcomes of an undisturbed pass"
        yield from (_row(name, number) for name, number in sorted(self.expected.totals.items()))
        for kind, findings in self.findings.items():
            yield f"{kind}s, compared with that pass"
            yield from (_row(name, len(wrong)) for name, wrong in findings.wrong().items())
            yield _row("possible repeats", findings.possible_repeats, "outside the guarantee")
            yield from (f"    {text}" for text in findings.described())
        yield from self.lines
        yield from self.failures
        yield "PASSED" if self.passed else "FAILED"


def _row(name: str, number: int, note: str = "") -> str:
    return f"  {name:48}{number:>10,}  {note}".rstrip()


def soak(seconds: float, seed: int, directory: Path, rate: float = RATE) -> Report:
    """Run a soak; its logs stay in the directory."""
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaCluster(BROKERS))
        bench = Bench(kafka, directory, PARTITIONS).create(inputs=_FOREVER, outputs=_FOREVER)
        stack.callback(bench.dispose)
        processes = Processes(bench)
        for slot in RESIDENTS:
            processes.start(slot)
        for service in bench.services:
            service.wait_for("service_started")
        subscriber = Subscriber(bench.bootstrap, bench.output, bench.dead)
        stack.callback(subscriber.close)
        traffic = Traffic(bench.bootstrap, bench.input, PARTITIONS, seed, rate)
        stack.callback(traffic.abandon)
        disturber = Disturber(kafka, processes, seed, seconds)
        began = time.monotonic()
        disturber.run()
        ended = time.monotonic()
        traffic.finish((IDLE_TIMEOUT_S + DUPLICATE_WINDOW_S + 1) * 1000)
        failures = _drain(bench, processes)
        drained = time.monotonic()
        silence, silent_from = subscriber.longest_silence(bench.output)
        processes.stop_all()
        delivered = subscriber.finish()
        expected = expected_outputs(_settings(bench))
        topics = {"record": bench.output, "dead_letter": bench.dead}
        findings = compare(expected, topics, delivered)
        letters = sum(one.topic == bench.dead for one in delivered)
        doubts = _doubts(expected, traffic, processes)
        return Report(
            seed=seed,
            seconds=ended - began,
            sent=traffic.sent,
            hazards=traffic.hazards,
            expected=expected,
            findings=findings,
            records=len(delivered) - letters,
            letters=letters,
            done=disturber.done,
            steps=sorted(disturber.steps),
            events=processes.events(),
            silence_s=silence,
            silent_from_s=silent_from - began,
            drain_s=drained - ended,
            directory=directory,
            failures=[*failures, *traffic.failures, *processes.crashes, *doubts],
            lines=_lines_about(findings, processes),
        )


def _settings(bench: Bench) -> Settings:
    """Return the settings of the processes that shape the outputs."""
    return Settings(
        bootstrap_servers=bench.bootstrap,
        topics=(bench.input,),
        fleet=_FLEET,
        idle_timeout=IDLE_TIMEOUT_S,
        duplicate_window=DUPLICATE_WINDOW_S,
        dead_letters="reference",
    )


def _drain(bench: Bench, processes: Processes) -> list[str]:
    """Wait until the group has committed everything; return the failure if it has not."""
    ends = bench.ends()
    committed: dict[int, int] = {}
    deadline = time.monotonic() + _DRAIN_S
    while time.monotonic() < deadline:
        processes.restart_crashed()
        with suppress(KafkaException):
            committed = {number: one.offset for number, one in bench.committed().items()}
        if committed == ends:
            return []
        time.sleep(_LOOK_S)
    return [f"committed {committed} of {ends}, {_DRAIN_S:.0f} s after the end of the traffic"]


def _doubts(expected: ExpectedOutputs, traffic: Traffic, processes: Processes) -> list[str]:
    """Return everything that makes the comparison itself doubtful."""
    doubts = []
    if expected.messages != traffic.sent:
        doubts.append(f"{traffic.sent} events were sent, but the topic has {expected.messages}")
    if expected.open_requests:
        doubts.append(f"stream time left {expected.open_requests} requests open")
    for (event, _), number in processes.events().items():
        if event == "partition_silent":
            doubts.append(f"the wall clock closed silent partitions {number} times")
        if event in _NEVER:
            doubts.append(f"{number} log lines {event}")
    return doubts


def _lines_about(findings: dict[str, Findings], processes: Processes) -> list[str]:
    """Return log lines about the partition of the first finding of each kind, at its time."""
    lines = sorted(
        ((line["timestamp"], Path(name).name, line) for name, line in processes.log_lines()),
        key=itemgetter(0),
    )
    reported: list[str] = []
    for kind, found in findings.items():
        for name, wrong in found.wrong().items():
            if not wrong:
                continue
            stamp = int(wrong[0]["record_id"].rsplit("/", 1)[1])
            begin, end = rfc3339(stamp), rfc3339(stamp + _AFTER_MS)
            concerned = [
                f"    {file} {line}"
                for at, file, line in lines
                if begin <= at <= end and _is_about(line, wrong[0]["source_partition"])
            ]
            reported += [f"log lines after the first {kind} {name}", *concerned[:_MAX_LINES]]
    return reported


def _is_about(line: Json, partition: int) -> bool:
    if line["event"] in _ABOUT_PAYLOADS or line["event"] == "librdkafka_log":
        return False
    partitions = [str(name).rpartition(":")[2] for name in line.get("partitions", ())]
    return (
        str(partition) in partitions
        or line.get("partition") == partition
        or line["level"] in ("warning", "error")
    )
