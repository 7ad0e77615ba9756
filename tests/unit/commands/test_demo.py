"""`acceptance-consumer demo`: broker, fleet, service and view, as a newcomer starts them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from consumer.demo.fleet import CANARY, CREDENTIAL_CANARY

SECONDS = 60
VERDICT = "Every expected record and dead letter arrived, and no other."


def _demo(directory: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "consumer", "demo", *options],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_shows_that_every_expected_record_arrived(tmp_path: Path) -> None:
    demo = _demo(tmp_path, "--duration", "6")
    output, errors = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, output
    assert output.rstrip().splitlines()[-1].strip() == VERDICT
    assert errors == ""
    introduction = " ".join(output.partition("\n\n")[0].split())
    assert "Runs for 6 s or until Ctrl-C" in introduction
    assert "\x1b" not in output, "control codes are for terminals only"
    arrived = re.search(r"\brecords +(\d+) ", output)
    assert arrived is not None
    assert int(arrived[1]) > 50
    assert CANARY not in output
    assert CREDENTIAL_CANARY not in output
    assert list(tmp_path.iterdir()) == [], "the demo left a file"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_summary(tmp_path: Path, number: signal.Signals) -> None:
    demo = _demo(tmp_path)
    assert demo.stdout is not None
    # Before its first records, the service may still be about to join its group.
    while not re.search("out [1-9]", line := demo.stdout.readline()):
        assert line, "the demo ended by itself"
    signalled = time.monotonic()
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, output
    assert VERDICT in output
    assert time.monotonic() - signalled < 30
    assert list(tmp_path.iterdir()) == [], "the demo left a file"
