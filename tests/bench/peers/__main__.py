"""The service against the same job in other frameworks: `python -m tests.bench.peers`.

All read the same topic from the same broker, repetitions interleaved, each in one process with one
worker. Time and CPU count from the first event (the service: from its assignment) until the last
record can be read; memory is the peak resident set. What a peer's client had fetched before its
first event is a gift to it, of some ten thousand events. The records are compared with what the
events say, and whoever publishes others is said to be wrong.

`BENCH_EVENTS` is rounded down to whole streams, `BENCH_REPETITIONS` is how often each one runs, and
`BENCH_OUT` names a file for the results as JSON. What a peer needs is installed when it is first
needed, into an environment of its own, from `requirements-*.txt`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.peers.measure import Contender, Run, expected_records, measure
from tests.bench.traffic import STREAM_LENGTH, STREAMS, fill
from tests.kafka.server.cluster import KafkaCluster
from tests.paths import ROOT

_ROUND: Final = STREAMS * STREAM_LENGTH
_EVENTS: Final = max(1, int(os.environ.get("BENCH_EVENTS", "600000")) // _ROUND) * _ROUND
_REPETITIONS: Final = int(os.environ.get("BENCH_REPETITIONS", "3"))
_OUT: Final = os.environ.get("BENCH_OUT")
_PARTITIONS: Final = 4
_SOURCE: Final = "events"

_HERE: Final = Path(__file__).parent
_ENVIRONMENTS: Final = ROOT / ".cache" / "peers"
# Each with the options that switch its deliveries on.
_PEERS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "quixstreams": {"at_least_once": (), "exactly_once": ("--exactly-once",)},
    "bytewax": {"at_least_once": ()},
    "aiokafka": {"at_least_once": ()},
}


def main() -> None:
    with KafkaCluster() as kafka:
        bootstrap = kafka.bootstrap_servers
        contenders = [_bare(bootstrap), *_services(bootstrap), *_peers(bootstrap)]
        kafka.create_topic(_SOURCE, partitions=_PARTITIONS)
        kafka.create_topic("acceptance-dead-letters")
        size = fill(bootstrap, _SOURCE, _EVENTS) / _EVENTS
        print(f"{_EVENTS:,} chunk events of {size:.0f} bytes, {_PARTITIONS} partitions", flush=True)
        expected = expected_records(bootstrap, _SOURCE, _PARTITIONS, _EVENTS)
        runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
        for _ in range(_REPETITIONS):
            for contender in contenders:
                run = measure(kafka, contender, _PARTITIONS, expected)
                print(f"  {contender.name}: {run}", file=sys.stderr, flush=True)
                runs[contender.name].append(run)
    _print_table(runs)
    if _OUT:
        results = {name: [asdict(run) for run in of] for name, of in runs.items()}
        document = {"events": _EVENTS, "partitions": _PARTITIONS, "runs": results}
        Path(_OUT).write_text(json.dumps(document, indent=1) + "\n")


def _bare(bootstrap: str) -> Contender:
    module = "tests.bench.peers.bare"
    told = (bootstrap, _SOURCE, str(_PARTITIONS), str(_EVENTS), "{group}")
    return Contender("bare consume(5000)", (sys.executable, "-m", module, *told), publishes=False)


def _services(bootstrap: str) -> Iterator[Contender]:
    for delivery in ("at_least_once", "exactly_once"):
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "ACCEPTANCE_TOPICS": _SOURCE,
            "ACCEPTANCE_OUTPUT_TOPIC": "{target}",
            "ACCEPTANCE_GROUP": "{group}",
            "ACCEPTANCE_DELIVERY": delivery,
            "ACCEPTANCE_LOG_FORMAT": "json",
            "ACCEPTANCE_HTTP_ADDRESS": "off",
        }
        command = (sys.executable, "-m", "consumer", "run")
        yield Contender(f"service, {delivery}", command, environment, "partitions_assigned")


def _peers(bootstrap: str) -> Iterator[Contender]:
    for peer, deliveries in _PEERS.items():
        requirements = (_HERE / f"requirements-{peer}.txt").read_text()
        python = _python(peer, requirements)
        if python is None:
            print(f"{peer} is left out: it cannot be installed here", flush=True)
            continue
        (version,) = (pin for pin in requirements.split() if pin.startswith(f"{peer}=="))
        told = (bootstrap, _SOURCE, "{target}", str(_PARTITIONS), "{group}")
        for delivery, options in deliveries.items():
            command = (python, "-m", f"tests.bench.peers.{peer}", *told, *options)
            yield Contender(f"{version}, {delivery}", command)


def _python(peer: str, requirements: str) -> str | None:
    """Return the interpreter of the peer's environment, which is made if it is not there."""
    environment = _ENVIRONMENTS / peer
    python = str(environment / "bin" / "python")
    installed = environment / "installed.txt"
    if installed.is_file() and installed.read_text() == requirements:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    # Only wheels: bytewax has them for some versions of Python, and else would be built from Rust.
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = ["--no-deps", "--only-binary", ":all:", "--requirement"]
    file = _HERE / f"requirements-{peer}.txt"
    if subprocess.run([*install, *pinned, file], check=False).returncode:
        return None
    installed.write_text(requirements)
    return python


def _print_table(runs: dict[str, list[Run]]) -> None:
    print(
        f"{'':36}{'events/s':>10}{'(least - most)':>22}{'of bare':>9}"
        f"{'CPU s/M':>9}{'peak MiB':>10}  records"
    )
    bare = 0.0
    for name, of in runs.items():
        rates = [_EVENTS / run.seconds for run in of]
        bare = bare or median(rates)
        spread = f"({min(rates):,.0f} - {max(rates):,.0f})"
        cpu = median(run.cpu_seconds for run in of) / _EVENTS * 1e6
        peak = max(run.peak_mib for run in of)
        verdicts = "; ".join(sorted({run.verdict for run in of}))
        print(
            f"{name:36}{median(rates):>10,.0f}{spread:>22}{median(rates) / bare:>9.2f}"
            f"{cpu:>9.1f}{peak:>10.0f}  {verdicts}"
        )


if __name__ == "__main__":
    main()
