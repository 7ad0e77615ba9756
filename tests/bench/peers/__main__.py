"""The service against the same job in other frameworks: `python -m tests.bench.peers`.

All programs read the same topic from the same broker, repetitions interleaved, each in one process
with one worker. Time and CPU count from the first event (for the service: from its assignment) to
the last readable record; memory is the peak resident set. A peer has the advantage of the events
that its client fetched before its first event, some ten thousand. The records are compared with the
events, and the table names the programs with wrong ones.

Settings: `BENCH_EVENTS` (rounded down to whole streams), `BENCH_REPETITIONS`, `BENCH_OUT` (a file
for the figures). Each peer is installed from `requirements-*.txt` into its own environment when it
first runs.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.bench.peers.measure import Contender, PeerRun, expected_records, measure
from tests.bench.runs import Spread, save, setting, write
from tests.bench.traffic import CASES
from tests.kafka.server.cluster import KafkaCluster
from tests.paths import ROOT

_CHUNKS: Final = CASES["chunks"]
_EVENTS: Final = max(1, int(setting("EVENTS", 600_000)) // _CHUNKS.step) * _CHUNKS.step
_REPETITIONS: Final = int(setting("REPETITIONS", 3))
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
        size = write(kafka, _SOURCE, _CHUNKS.make(_EVENTS)).size / _EVENTS
        print(f"{_EVENTS:,} chunk events of {size:.0f} bytes, {_PARTITIONS} partitions", flush=True)
        expected = expected_records(bootstrap, _SOURCE, _PARTITIONS, _EVENTS)
        runs: dict[str, list[PeerRun]] = {contender.name: [] for contender in contenders}
        for _ in range(_REPETITIONS):
            for contender in contenders:
                run = measure(kafka, contender, _PARTITIONS, expected)
                print(f"  {contender.name}: {run}", file=sys.stderr, flush=True)
                runs[contender.name].append(run)
    _print_table(runs)
    results = {name: [asdict(run) for run in of] for name, of in runs.items()}
    save({"events": _EVENTS, "partitions": _PARTITIONS, "runs": results})


def _bare(bootstrap: str) -> Contender:
    module = "tests.bench.peers.bare"
    arguments = (bootstrap, _SOURCE, str(_PARTITIONS), str(_EVENTS), "{group}")
    command = (sys.executable, "-m", module, *arguments)
    return Contender("bare consume(5000)", command, publishes=False)


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
            print(f"{peer} is left out: pip cannot install it here", flush=True)
            continue
        (version,) = (pin for pin in requirements.split() if pin.startswith(f"{peer}=="))
        arguments = (bootstrap, _SOURCE, "{target}", str(_PARTITIONS), "{group}")
        for delivery, options in deliveries.items():
            command = (python, "-m", f"tests.bench.peers.{peer}", *arguments, *options)
            yield Contender(f"{version}, {delivery}", command)


def _python(peer: str, requirements: str) -> str | None:
    """Return the interpreter of the peer's environment; install that if it does not exist."""
    environment = _ENVIRONMENTS / peer
    python = str(environment / "bin" / "python")
    installed = environment / "installed.txt"
    if installed.is_file() and installed.read_text() == requirements:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    # Wheels only: for some versions of Python, pip would have to build bytewax from Rust.
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = ["--no-deps", "--only-binary", ":all:", "--requirement"]
    file = _HERE / f"requirements-{peer}.txt"
    if subprocess.run([*install, *pinned, file], check=False).returncode:
        return None
    installed.write_text(requirements)
    return python


def _print_table(runs: dict[str, list[PeerRun]]) -> None:
    print(f"{'':36}{'events/s (min-max)':>30}{'of bare':>9}{'CPU s/M':>9}{'peak MiB':>10}  records")
    bare = 0.0
    for name, of in runs.items():
        rates = Spread.of(_EVENTS / run.seconds for run in of)
        bare = bare or rates.median
        cpu = Spread.of(run.cpu_seconds / _EVENTS * 1e6 for run in of)
        peak = max(run.peak_mib for run in of)
        verdicts = "; ".join(sorted({run.verdict for run in of}))
        print(
            f"{name:36}{rates.text():>30}{rates.median / bare:>9.2f}"
            f"{cpu.median:>9.1f}{peak:>10.0f}  {verdicts}"
        )


if __name__ == "__main__":
    main()
