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


def test_it_shows_what_was_sent_and_that_all_of_it_came_out_as_it_should(tmp_path: Path) -> None:
    demo = _demo(tmp_path, "--duration", "6")
    shown, complaints = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, shown
    assert shown.rstrip().splitlines()[-1].strip() == VERDICT
    assert complaints == ""
    introduction = " ".join(shown.partition("\n\n")[0].split())
    assert "Runs for 6 s or until Ctrl-C" in introduction
    assert "\x1b" not in shown, "control codes belong into terminals only"
    arrived = re.search(r"\brecords +(\d+) ", shown)
    assert arrived is not None
    assert int(arrived[1]) > 50
    assert CANARY not in shown
    assert CREDENTIAL_CANARY not in shown
    assert list(tmp_path.iterdir()) == [], "it keeps nothing"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_in_good_order_when_told_to(tmp_path: Path, number: signal.Signals) -> None:
    demo = _demo(tmp_path)
    assert demo.stdout is not None
    # Before its first records, the service may still be about to join its group.
    while not re.search("out [1-9]", line := demo.stdout.readline()):
        assert line, "it ended by itself"
    told = time.monotonic()
    demo.send_signal(number)
    shown, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, shown
    assert VERDICT in shown
    assert time.monotonic() - told < 30
    assert list(tmp_path.iterdir()) == [], "it keeps nothing"
