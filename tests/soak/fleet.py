"""The processes of the service: slots whose name stays while what runs in them comes and goes."""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.kafka.harness import Bench, Json, ServiceProcess

RESIDENTS: Final = (0, 1, 2)
GUESTS: Final = (3,)
SESSION_S: Final = 4.0
IDLE_TIMEOUT_S: Final = 10
DUPLICATE_WINDOW_S: Final = 5
_MAX_CRASHES: Final = 10


class Fleet:
    """The processes, by slot.

    Args:
        bench: the topics and the group.

    Attributes:
        crashes: what ended without having been told to: slot, exit code, log.

    """

    def __init__(self, bench: Bench) -> None:
        self.crashes: list[str] = []
        self._bench = bench
        self._running: dict[int, ServiceProcess] = {}
        self._lock = threading.RLock()

    def start(self, slot: int) -> None:
        """Start a process in an empty slot."""
        settings = {
            "idle_timeout": f"{IDLE_TIMEOUT_S}s",
            "duplicate_window": f"{DUPLICATE_WINDOW_S}s",
            # Full letters are limited per second, and so depend on the clock.
            "dead_letters": "reference",
            "kafka_session_timeout_ms": f"{SESSION_S * 1000:.0f}",
            "transactional_id": f"{self._bench.group}-{slot}",
        }
        with self._lock:
            self._running[slot] = self._bench.start(**settings)

    def kill(self, slot: int) -> None:
        """End a process as a power cut would."""
        with self._lock:
            service = self._running.pop(slot)
            if not self._has_crashed(slot, service):
                service.kill()

    def stop(self, slot: int) -> None:
        """End a process as Kubernetes would."""
        with self._lock:
            service = self._running.pop(slot)
            if self._has_crashed(slot, service):
                return
        code = service.stop()
        began = service.log.stat().st_size > 0
        if code and (began or code != -signal.SIGTERM):  # Before, it listens to no signals yet.
            self.crashes.append(f"slot {slot} ended with {code}: {service.log.name}")

    def pause(self, slot: int) -> None:
        """Let a process stand still, as a machine does that swaps or is moved."""
        with self._lock:
            self._running[slot].process.send_signal(signal.SIGSTOP)

    def resume(self, slot: int) -> None:
        """Let a process go on, which knows nothing of what happened meanwhile."""
        with self._lock:
            self._running[slot].process.send_signal(signal.SIGCONT)

    def revive(self) -> None:
        """Start again what ended by itself, as Kubernetes would."""
        with self._lock:
            for slot, service in list(self._running.items()):
                if self._has_crashed(slot, service):
                    if len(self.crashes) > _MAX_CRASHES:
                        raise RuntimeError("\n".join(self.crashes))
                    self.start(slot)

    def stop_all(self) -> None:
        """End all processes in good order."""
        for slot in list(self._running):
            self.stop(slot)

    def lines(self) -> Iterator[tuple[str, Json]]:
        """Yield what all processes have logged, each line with the name of its file."""
        for service in self._bench.services:
            for text in service.log.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    line = json.loads(text)
                except ValueError:  # The last line of a process that was killed, or a traceback.
                    line = {
                        "event": "(not a log line)",
                        "level": "-",
                        "timestamp": "",
                        "text": text,
                    }
                yield service.log.name, line

    def events(self) -> Counter[tuple[str, str]]:
        """Count log lines by event and level."""
        return Counter((line["event"], line["level"]) for _, line in self.lines())

    def _has_crashed(self, slot: int, service: ServiceProcess) -> bool:
        """Tell whether a process has ended without having been told to, and note it."""
        code = service.process.poll()
        if code is None:
            return False
        self.crashes.append(f"slot {slot} ended by itself ({code}): {service.log.name}")
        return True
