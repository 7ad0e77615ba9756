"""One soak: three brokers, three processes under load, all of them disturbed, and the report."""

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
from tests.soak.chaos import BROKERS, Chaos, Deed, Step
from tests.soak.downstream import Downstream
from tests.soak.expected import Expected, Findings, compare, undisturbed
from tests.soak.fleet import DUPLICATE_WINDOW_S, IDLE_TIMEOUT_S, RESIDENTS, Fleet
from tests.soak.traffic import Traffic

PARTITIONS: Final = 6
RATE: Final = 1_500.0
_DRAIN_S: Final = 120.0
_LOOK_S: Final = 0.5
_FLEET: Final = "test"  # As the bench calls it.
_FOREVER: Final = {"retention.ms": "-1"}  # Some events claim to be of long ago.
_LINES_SHOWN: Final = 12
_AFTER_MS: Final = 20_000
_OF_PAYLOADS: Final = ("bad_payload", "stats_rejected")
# What no process may have to log, whatever is done to it.
_NEVER: Final = ("adapter_failed", "checkpoint_ignored", "state_differs", "topic_recreated")
_REBALANCES: Final = ("partitions_assigned", "partitions_revoked", "partitions_lost")


@dataclass
class Report:
    """What a soak has shown.

    Attributes:
        seed: what made it this soak.
        seconds: from the beginning of the chaos to its end.
        sent: how many events were sent.
        hazards: what went wrong in the traffic, and how often.
        expected: what an undisturbed pass gives.
        findings: how what is downstream differs from that.
        records: how many are downstream.
        letters: how many dead letters are.
        done: what was done, and how often.
        diary: what was done, and when.
        events: log lines of all processes by event and level.
        silence_s: longest time without a new record downstream.
        silent_from_s: when it began, counted from the beginning of the chaos.
        drain_s: how long it took to reach the end of the input after the traffic had ended.
        failures: what else went wrong.
        lines: log lines about the requests of the findings.
        directory: where the logs are.

    """

    seed: int
    seconds: float
    sent: int
    hazards: Counter[str]
    expected: Expected
    findings: dict[str, Findings]
    records: int
    letters: int
    done: Counter[Deed]
    diary: list[Step]
    events: Counter[tuple[str, str]]
    silence_s: float
    silent_from_s: float
    drain_s: float
    directory: Path
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether everything is downstream exactly once, and nothing else went wrong."""
        return not self.failures and not any(
            wrong for findings in self.findings.values() for wrong in findings.kinds().values()
        )

    @property
    def rebalances(self) -> int:
        """Return how often a member was given partitions or had some taken away."""
        return sum(n for (event, _), n in self.events.items() if event in _REBALANCES)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"soak of {self.seconds:.0f} s, seed {self.seed}; logs in {self.directory}"
        yield f"  {'events':32}{self.sent:>10,}  ({self.sent / self.seconds:,.0f} per second)"
        yield f"  {'records':32}{self.records:>10,}"
        yield f"  {'dead letters':32}{self.letters:>10,}"
        for deed in Deed:
            yield f"  {deed:32}{self.done[deed]:>10,}"
        yield f"  {'rebalances, by member':32}{self.rebalances:>10,}"
        silence = f"{self.silence_s:>10.1f} s, from {self.silent_from_s:.1f} s on"
        yield f"  {'longest silence downstream':32}{silence}"
        yield f"  {'time to the end of the input':32}{self.drain_s:>10.1f} s"
        yield "what was done"
        yield from (f"  {step.at:8.1f} s  {step.deed} {step.target}" for step in self.diary)
        yield "log lines"
        for (event, level), number in sorted(self.events.items()):
            yield f"  {event:32}{number:>10,}  {level}"
        yield "outcomes of an undisturbed pass"
        for outcome, number in sorted(self.expected.totals.items()):
            yield f"  {outcome:48}{number:>10,}"
        for kind, findings in self.findings.items():
            yield f"{kind}s, compared with that pass"
            for name, wrong in findings.kinds().items():
                yield f"  {name:32}{len(wrong):>10,}"
            repeats = findings.possible_repeats
            yield f"  {'possible repeats':32}{repeats:>10,}  outside the guarantee"
            yield from (f"    {text}" for text in findings.described())
        yield from self.lines
        yield from self.failures
        yield "PASSED" if self.passed else "FAILED"


def soak(seconds: float, seed: int, directory: Path, rate: float = RATE) -> Report:
    """Run a soak; its logs are kept in the directory."""
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaCluster(BROKERS))
        bench = Bench(kafka, directory, PARTITIONS).create(inputs=_FOREVER, outputs=_FOREVER)
        stack.callback(bench.dispose)
        fleet = Fleet(bench)
        for slot in RESIDENTS:
            fleet.start(slot)
        for service in bench.services:
            service.wait_for("service_started")
        downstream = Downstream(bench.bootstrap, bench.output, bench.dead)
        stack.callback(downstream.close)
        traffic = Traffic(bench.bootstrap, bench.input, PARTITIONS, seed, rate)
        traffic.start()
        stack.callback(traffic.abandon)
        chaos = Chaos(kafka, fleet, seed, seconds)
        began = time.monotonic()
        chaos.run()
        ended = time.monotonic()
        traffic.finish((IDLE_TIMEOUT_S + DUPLICATE_WINDOW_S + 1) * 1000)
        failures = _drain(bench, fleet)
        drained = time.monotonic()
        silence, silent_from = downstream.longest_silence(bench.output)
        fleet.stop_all()
        seen = downstream.finish()
        expected = undisturbed(_settings(bench))
        topics = {"record": bench.output, "dead_letter": bench.dead}
        findings = compare(expected, topics, seen)
        letters = sum(one.topic == bench.dead for one in seen)
        return Report(
            seed,
            ended - began,
            traffic.sent,
            traffic.hazards,
            expected,
            findings,
            len(seen) - letters,
            letters,
            chaos.done,
            sorted(chaos.diary),
            fleet.events(),
            silence,
            silent_from - began,
            drained - ended,
            directory,
            [*failures, *traffic.failures, *fleet.crashes, *_doubts(expected, traffic, fleet)],
            _lines_about(findings, fleet),
        )


def _settings(bench: Bench) -> Settings:
    """Return the settings of the processes, as far as they shape what is downstream."""
    return Settings(
        bootstrap_servers=bench.bootstrap,
        topics=(bench.input,),
        fleet=_FLEET,
        idle_timeout=IDLE_TIMEOUT_S,
        duplicate_window=DUPLICATE_WINDOW_S,
        dead_letters="reference",
    )


def _drain(bench: Bench, fleet: Fleet) -> list[str]:
    """Wait until the group has committed everything; return what is wrong if it does not."""
    ends = bench.ends()
    committed: dict[int, int] = {}
    deadline = time.monotonic() + _DRAIN_S
    while time.monotonic() < deadline:
        fleet.revive()
        with suppress(KafkaException):
            committed = {number: one.offset for number, one in bench.committed().items()}
        if committed == ends:
            return []
        time.sleep(_LOOK_S)
    return [f"committed {committed} {_DRAIN_S:.0f} s after the traffic, of {ends}"]


def _doubts(expected: Expected, traffic: Traffic, fleet: Fleet) -> list[str]:
    """Return what makes the comparison itself doubtful."""
    doubts = []
    if expected.messages != traffic.sent:
        doubts.append(f"{traffic.sent} events were sent, and {expected.messages} are in the topic")
    if expected.still_open:
        doubts.append(f"{expected.still_open} requests were not closed by stream time")
    for (event, _), number in fleet.events().items():
        if event == "partition_silent":
            doubts.append(f"{number} times a silent partition was closed by the wall clock")
        if event in _NEVER:
            doubts.append(f"{number} log lines {event}")
    return doubts


def _lines_about(findings: dict[str, Findings], fleet: Fleet) -> list[str]:
    """Return what was logged about the partition of the first finding of each kind, at its time."""
    lines = sorted(
        ((line["timestamp"], Path(name).name, line) for name, line in fleet.lines()),
        key=itemgetter(0),
    )
    shown: list[str] = []
    for kind, found in findings.items():
        for name, wrong in found.kinds().items():
            if not wrong:
                continue
            stamp = int(wrong[0]["record_id"].rsplit("/", 1)[1])
            begin, end = rfc3339(stamp), rfc3339(stamp + _AFTER_MS)
            concerned = [
                f"    {file} {line}"
                for at, file, line in lines
                if begin <= at <= end and _is_about(line, wrong[0]["source_partition"])
            ]
            shown += [f"log lines after the first {kind} {name}", *concerned[:_LINES_SHOWN]]
    return shown


def _is_about(line: Json, partition: int) -> bool:
    if line["event"] in _OF_PAYLOADS or line["event"] == "librdkafka_log":
        return False
    places = [str(place).rpartition(":")[2] for place in line.get("partitions", ())]
    return (
        str(partition) in places
        or line.get("partition") == partition
        or line["level"] in ("warning", "error")
    )
