"""The beginning of the process, before the command line is there."""

import os
import signal
import subprocess
import sys
import time

import pytest

_INTERRUPTED = """
import sys
from consumer.__main__ import main

interrupted = sys.argv.pop(1)

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == interrupted:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting)
main()
"""
_SIGNALLED = """
import os, signal, sys, types
from consumer.__main__ import main

def command():
    os.kill(os.getpid(), signal.SIGUSR1)
    print(signal.sigwait({signal.SIGUSR1}).name)

sys.modules["consumer.commands.cli"] = types.SimpleNamespace(main=command)
main()
"""


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings of CI out of the processes."""
    for name in os.environ:
        if name.startswith(("ACCEPTANCE_", "KAFKA_")):
            monkeypatch.delenv(name)


def _run(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    "args", [["consumer.commands.cli"], ["consumer.commands.schema", "schema", "acceptance-record"]]
)
def test_ctrl_c_during_the_imports_shows_no_traceback(args: list[str]) -> None:
    done = _run(_INTERRUPTED, *args)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("after_s", [0.05, 0.2, 0.5, 2.0])
def test_sigterm_at_any_time_of_a_start_is_obeyed_and_logged(after_s: float) -> None:
    options = ["--bootstrap-servers", "127.0.0.1:9", "--topics", "t", "--log-format", "json"]
    command = [sys.executable, "-m", "consumer", "run", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as started:
        time.sleep(after_s)
        started.terminate()
        out, _ = started.communicate(timeout=30)
    assert started.returncode == 0, out
    assert b"SIGTERM" in out


def test_sigterm_ends_a_command_that_has_no_handler() -> None:
    command = [sys.executable, "-m", "consumer", "replay", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as started:
        time.sleep(1)
        started.terminate()
        assert started.wait(30) == -signal.SIGTERM


def test_sigusr1_during_the_imports_is_kept() -> None:
    done = _run(_SIGNALLED)
    assert (done.returncode, done.stdout) == (0, "SIGUSR1\n"), done.stderr
