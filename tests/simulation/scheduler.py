"""Tasks that take turns, and the clock by which they wait: chance picks the next one to run.

A task runs until it waits, or until a point at which another one might run. That is all that the
tasks of different processes could see of one another's order, and the same seed gives the same.
"""

import math
from collections.abc import Callable
from random import Random
from typing import Final

from greenlet import getcurrent, greenlet

_BEGIN_MS: Final = 1_767_225_600_000
_MAX_BETWEEN_TURNS_S: Final = 0.02


class Process:
    """What lives and dies together.

    Attributes:
        sleeps_until: it is stopped until then, in seconds of the clock.
        killed: whether it may do nothing more.

    """

    def __init__(self) -> None:
        self.sleeps_until = 0.0
        self.killed = False


class Killed(BaseException):
    """The process is no more."""


class _Task:
    """One thread of a process, and what it waits for."""

    def __init__(self, process: Process, thread: greenlet) -> None:
        self.process = process
        self.thread = thread
        self.wakes = 0.0
        self.until: Callable[[], object] | None = None

    def may_run(self, now: float) -> bool:
        if now < self.process.sleeps_until:
            return False
        return now >= self.wakes or (self.until is not None and bool(self.until()))


class Scheduler:
    """Lets tasks take turns, and is the `consumer.telemetry.clock.Clock` that they see.

    Args:
        random: decides.

    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 1_000.0
        self._loop = getcurrent()
        self._tasks: dict[greenlet, _Task] = {}

    # The clock

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> int:
        return _BEGIN_MS + round(self._now * 1000)

    def sleep(self, seconds: float) -> None:
        self.wait(seconds)

    def advance(self, seconds: float) -> None:
        self._now += seconds

    # Tasks

    def spawn(self, process: Process, run: Callable[[], object]) -> None:
        """Add a task to a process."""
        thread = greenlet(run, parent=self._loop)
        self._tasks[thread] = _Task(process, thread)

    def current(self) -> Process | None:
        """Return the process that runs; None outside of all."""
        task = self._tasks.get(getcurrent())
        return None if task is None else task.process

    def lives(self, process: Process) -> bool:
        """Whether a process has something left to do."""
        return any(task.process is process for task in self._tasks.values())

    def wait(self, seconds: float = math.inf, until: Callable[[], object] | None = None) -> None:
        """Let others run for so long, or until something is so.

        Raises:
            Killed: the process was killed meanwhile.

        """
        task = self._tasks[getcurrent()]
        task.wakes, task.until = self._now + seconds, until
        self._loop.switch()
        if task.process.killed:
            raise Killed

    def turn(self) -> None:
        """Let one task run, and end what was killed."""
        for task in [task for task in self._tasks.values() if task.process.killed]:
            self._run(task)  # Unwinding has no effect on anything: every call of a client fails.
        self._now += self._random.random() * _MAX_BETWEEN_TURNS_S
        able = [task for task in self._tasks.values() if task.may_run(self._now)]
        if able:
            self._run(self._random.choice(able))
            return
        wakes = [max(task.wakes, task.process.sleeps_until) for task in self._tasks.values()]
        if (first := min(wakes, default=math.inf)) < math.inf:
            self._now = first

    def _run(self, task: _Task) -> None:
        try:
            if task.process.killed and not task.thread:
                task.thread.throw(Killed)  # It has never begun.
            else:
                task.thread.switch()
        except Killed as killed:
            if killed.__cause__ is not None:  # What must not be did not go unnoticed.
                raise killed.__cause__ from None
        if task.thread.dead:
            del self._tasks[task.thread]
