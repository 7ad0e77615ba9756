"""The real service as a child process of the demo."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_STOP_S: Final = 8.0


class DemoService:
    """A child process that logs to a temporary file, which stays only if the child fails.

    Args:
        bootstrap: bootstrap servers of the broker.
        settings: environment variables with the settings of the service.
        command: the program and its arguments.

    Attributes:
        log: the file that the child logs to.

    """

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str],
        command: Sequence[str] = (sys.executable, "-m", "consumer", "run"),
    ) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ACCEPTANCE_")}
        descriptor, path = tempfile.mkstemp(prefix="acceptance-demo-", suffix=".log")
        self.log = Path(path)
        with os.fdopen(descriptor, "wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - a fixed command.
                command,
                env={**inherited, "KAFKA_BOOTSTRAP_SERVERS": bootstrap, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the whole foreground group, but the service must run until the
                # demo has read its records.
                process_group=0,
            )

    def exit_code(self) -> int | None:
        """Return the exit code, or None while the child runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Terminate the child, kill it if it does not end, and return its exit code.

        Returns 0 for a child that ended because of the SIGTERM, even before it handled signals.
        """
        if self._process.poll() is not None:
            return self._process.returncode
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:  # After a second Ctrl-C too; a child that has ended does not feel it.
            self._process.kill()
        code = self._process.wait()
        if code not in {0, -signal.SIGTERM}:
            return code
        self.log.unlink()
        return 0
