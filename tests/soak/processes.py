"""The service processes of the soak, in numbered slots."""

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


class Processes:
    """The processes, by slot.

    Args:
        bench: the topics and the group.

    Attributes:
        crashes: processes that ended by themselves: slot, exit code, log.

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
        """End a process as a power cut does."""
        with self._lock:
            service = self._running.pop(slot)
            if not self._has_crashed(slot, service):
                service.kill()

    def stop(self, slot: int) -> None:
        """End a process as Kubernetes does."""
        with self._lock:
            service = self._running.pop(slot)
            if self._has_crashed(slot, service):
                return
        code = service.stop()
        began = service.log.stat().st_size > 0
        if code and (began or code != -signal.SIGTERM):  # Before, it does not handle signals.
            self.crashes.append(f"slot {slot} ended with {code}: {service.log.name}")

    def pause(self, slot: int) -> None:
        """Stop a process in its tracks, as a swapping or migrating machine does."""
        with self._lock:
            self._running[slot].process.send_signal(signal.SIGSTOP)

    def resume(self, slot: int) -> None:
        """Let a paused process continue; it does not know what happened meanwhile."""
        with self._lock:
            self._running[slot].process.send_signal(signal.SIGCONT)

    def restart_crashed(self) -> None:
        """Restart the processes that ended by themselves, as Kubernetes does."""
        with self._lock:
            for slot, service in list(self._running.items()):
                if self._has_crashed(slot, service):
                    if len(self.crashes) > _MAX_CRASHES:
                        raise RuntimeError("\n".join(self.crashes))
                    self.start(slot)

    def stop_all(self) -> None:
        """Stop all processes as Kubernetes does."""
        for slot in list(self._running):
            self.stop(slot)

    def log_lines(self) -> Iterator[tuple[str, Json]]:
        """Yield the log lines of all processes, each with the name of its file."""
        for service in self._bench.services:
            for text in service.log.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    line = json.loads(text)
                except ValueError:  # The last line of a killed process, or a traceback.
                    line = {"event": "(not JSON)", "level": "-", "timestamp": "", "text": text}
                yield service.log.name, line

    def events(self) -> Counter[tuple[str, str]]:
        """Count the log lines by event and level."""
        return Counter((line["event"], line["level"]) for _, line in self.log_lines())

    def _has_crashed(self, slot: int, service: ServiceProcess) -> bool:
        code = service.process.poll()
        if code is None:
            return False
        self.crashes.append(f"slot {slot} ended by itself ({code}): {service.log.name}")
        return True
