"""`python -m tests.soak --minutes 10 --seed 1`: the service on a Kafka that keeps breaking.

Three service processes read and three brokers serve. A schedule, which the seed decides, kills,
pauses and restarts all of them. At the end, the delivered outputs are compared with those of an
undisturbed pass of the core over the same input. The exit code is 1 if the two differ.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.run import RATE, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=RATE, help="events per second")
    parser.add_argument("--directory", type=Path, help="for the logs; by default a temporary one")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    report = soak(options.minutes * 60, options.seed, directory, options.rate)
    print(report)
    return 0 if report.passed else 1


sys.exit(main())
