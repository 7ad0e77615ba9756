"""What happens to the processes and the brokers, and when: a function of the seed.

Two lanes run at the same time, so that a process dies, wakes up or joins while a broker is away. At
most one broker is away, and the next one goes only after all replicas are in sync.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka.server.cluster import KafkaCluster
from tests.soak.processes import GUESTS, RESIDENTS, SESSION_S, Processes

BROKERS: Final = 3
_IN_SYNC_S: Final = 60.0
_LOOK_S: Final = 0.2
_STEP_S: Final = 0.2


class Action(StrEnum):
    """What can happen to a process or a broker."""

    KILL = "kill"
    STOP = "stop"
    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"
    JOIN = "join"
    LEAVE = "leave"
    KILL_BROKER = "kill broker"
    STOP_BROKER = "stop broker"
    START_BROKER = "start broker"


class Disturbance(NamedTuple):
    """An action that another one undoes.

    Attributes:
        action: what happens first.
        undo: what undoes it.
        min_s: minimum seconds between the two.
        max_s: maximum seconds between the two.
        per_round: how often it happens in each round.

    """

    action: Action
    undo: Action
    min_s: float
    max_s: float
    per_round: int


class Step(NamedTuple):
    """An action on a slot or a broker, so many seconds after the start."""

    at: float
    action: Action
    target: int


OF_PROCESSES: Final = (
    Disturbance(Action.KILL, Action.RESTART, 0.3, SESSION_S + 2, 3),
    # A zombie: its partitions have moved when it wakes up, or are just about to.
    Disturbance(Action.PAUSE, Action.RESUME, SESSION_S + 0.5, SESSION_S + 5, 2),
    Disturbance(Action.STOP, Action.RESTART, 0.3, 3, 1),
    Disturbance(Action.JOIN, Action.LEAVE, 6, 12, 1),
)
OF_BROKERS: Final = (
    Disturbance(Action.KILL_BROKER, Action.START_BROKER, 1, 8, 1),
    Disturbance(Action.STOP_BROKER, Action.START_BROKER, 1, 8, 1),
)
_PROCESS_PAUSE_S: Final = (3.0, 8.0)
_BROKER_PAUSE_S: Final = (4.0, 12.0)
_MAX_AWAY: Final = 2  # Processes that are disturbed at the same time, of three.


def plan_processes(seed: int, seconds: float) -> list[Step]:
    """Return the steps for processes, with at least one round of everything."""
    random = Random(f"processes {seed}")
    steps: list[Step] = []
    busy: dict[int, float] = {}  # Until when a slot is disturbed.
    for at, what in _schedule(random, OF_PROCESSES, _PROCESS_PAUSE_S, seconds):
        slots = GUESTS if what.action is Action.JOIN else RESIDENTS
        ends = sorted(busy.get(slot, 0.0) for slot in slots)
        begin = max(at, ends[max(0, len(ends) - _MAX_AWAY)])
        slot = random.choice([one for one in slots if busy.get(one, 0) <= begin])
        end = begin + random.uniform(what.min_s, what.max_s)
        busy[slot] = end + _STEP_S
        steps += (Step(begin, what.action, slot), Step(end, what.undo, slot))
    return sorted(steps)


def plan_brokers(seed: int, seconds: float) -> list[Step]:
    """Return the steps for brokers, one broker after the other."""
    random = Random(f"brokers {seed}")
    steps: list[Step] = []
    end, order = 0.0, random.sample(range(BROKERS), BROKERS)
    for number, (at, what) in enumerate(_schedule(random, OF_BROKERS, _BROKER_PAUSE_S, seconds)):
        begin, broker = max(at, end), order[number % BROKERS]
        end = begin + random.uniform(what.min_s, what.max_s)
        steps += (Step(begin, what.action, broker), Step(end, what.undo, broker))
    return steps


def _schedule(
    random: Random, kinds: tuple[Disturbance, ...], pause_s: tuple[float, float], seconds: float
) -> Iterator[tuple[float, Disturbance]]:
    """Yield what happens when: at least one round of all kinds, in random order."""
    at, begun = 0.0, 0
    while True:
        round_ = [kind for kind in kinds for _ in range(kind.per_round)]
        random.shuffle(round_)
        for kind in round_:
            at += random.uniform(*pause_s)
            if at >= seconds and begun >= len(round_):
                return
            yield at, kind
            begun += 1


class Disturber:
    """Carries out the plans.

    Args:
        kafka: the cluster.
        processes: the service processes.
        seed: decides the plans.
        seconds: minimum duration.

    Attributes:
        done: how often each action happened.
        steps: the steps as they happened, with the time at which each began.

    """

    def __init__(
        self, kafka: KafkaCluster, processes: Processes, seed: int, seconds: float
    ) -> None:
        self.done: Counter[Action] = Counter()
        self.steps: list[Step] = []
        self._kafka = kafka
        self._processes = processes
        self._plans = plan_processes(seed, seconds), plan_brokers(seed, seconds)
        self._seconds = seconds
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        self._began = 0.0
        self._failed = threading.Event()
        self._actions: dict[Action, Callable[[int], None]] = {
            Action.KILL: processes.kill,
            Action.STOP: processes.stop,
            Action.RESTART: processes.start,
            Action.PAUSE: processes.pause,
            Action.RESUME: processes.resume,
            Action.JOIN: processes.start,
            Action.LEAVE: processes.stop,
            Action.KILL_BROKER: kafka.kill_broker,
            Action.STOP_BROKER: kafka.stop_broker,
            Action.START_BROKER: kafka.start_broker,
        }

    def run(self) -> None:
        """Carry out both plans, and return when everything is undone."""
        self._began = time.monotonic()
        processes, brokers = self._plans
        with ThreadPoolExecutor(2) as lanes:
            both = (
                lanes.submit(self._lane, processes, len(processes)),
                lanes.submit(self._lane, brokers, 2 * len(OF_BROKERS)),
            )
            for lane in both:
                lane.result()
        self._wait_until(self._seconds)

    def _lane(self, steps: list[Step], min_steps: int) -> None:
        """Carry out at least so many steps, and begin nothing new after the end.

        Brokers start, and processes stop, as slowly as they need to; later steps move with them.
        """
        delay = 0.0
        try:
            for number, step in enumerate(steps):
                self._wait_until(step.at + delay)
                delay = max(delay, self._elapsed() - step.at)
                is_over = number >= min_steps and self._elapsed() > self._seconds
                if self._failed.is_set() or (is_over and number % 2 == 0):
                    return
                self._carry_out(step)
        except BaseException:
            self._failed.set()
            raise

    def _carry_out(self, step: Step) -> None:
        self.steps.append(step._replace(at=self._elapsed()))
        if step.action in (Action.KILL_BROKER, Action.STOP_BROKER):
            self._wait_until_in_sync()
        self._actions[step.action](step.target)
        if step.action is Action.START_BROKER:
            self._wait_until_in_sync()
        self.done[step.action] += 1

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _wait_until(self, at: float) -> None:
        """Wait for the time of a step; restart crashed processes meanwhile."""
        while not self._failed.is_set() and (left := at - self._elapsed()) > 0:
            time.sleep(min(left, _STEP_S))
            self._processes.restart_crashed()

    def _wait_until_in_sync(self) -> None:
        """Wait until every partition has all its replicas, the cluster's own topics included."""
        deadline = time.monotonic() + _IN_SYNC_S
        while not self._is_in_sync():
            if time.monotonic() > deadline:
                raise TimeoutError(f"replicas are not in sync after {_IN_SYNC_S:.0f} s")
            time.sleep(_LOOK_S)

    def _is_in_sync(self) -> bool:
        try:
            topics = self._admin.list_topics(timeout=5).topics.values()
        except KafkaException:
            return False
        return all(
            partition.leader >= 0 and len(partition.isrs) == BROKERS
            for topic in topics
            for partition in topic.partitions.values()
        )
