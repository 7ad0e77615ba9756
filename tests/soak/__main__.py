"""`python -m tests.soak --minutes 10 --seed 1`: the service on a Kafka that is not left in peace.

Three processes read, three brokers serve, and all of them are killed, paused and restarted by a
schedule that the seed decides. At the end, what is downstream is compared with what an undisturbed
pass of the core over the same input gives. The exit code is 1 if the two differ.
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
