"""What is done to the processes and the brokers, and when: a function of the seed.

Two lanes run at the same time, so that a process dies, wakes up or joins while a broker is away. At
most one broker is away, and the next one goes only after all replicas are in sync again.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka.server.cluster import KafkaCluster
from tests.soak.fleet import GUESTS, RESIDENTS, SESSION_S, Fleet

BROKERS: Final = 3
_IN_SYNC_S: Final = 60.0
_LOOK_S: Final = 0.2
_STEP_S: Final = 0.2


class Deed(StrEnum):
    """What can be done."""

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


@dataclass(frozen=True)
class Disturbance:
    """Something that is done, and undone after a while.

    Attributes:
        begin: what is done.
        end: what undoes it.
        shortest: seconds between the two, at least.
        longest: at most.
        often: how often it occurs in each round.

    """

    begin: Deed
    end: Deed
    shortest: float
    longest: float
    often: int


@dataclass(frozen=True, order=True)
class Step:
    """A deed, so many seconds after the beginning, to a slot or a broker."""

    at: float
    deed: Deed
    target: int


OF_PROCESSES: Final = (
    Disturbance(Deed.KILL, Deed.RESTART, 0.3, SESSION_S + 2, 3),
    # A zombie: its partitions have moved when it wakes up, or are just about to.
    Disturbance(Deed.PAUSE, Deed.RESUME, SESSION_S + 0.5, SESSION_S + 5, 2),
    Disturbance(Deed.STOP, Deed.RESTART, 0.3, 3, 1),
    Disturbance(Deed.JOIN, Deed.LEAVE, 6, 12, 1),
)
OF_BROKERS: Final = (
    Disturbance(Deed.KILL_BROKER, Deed.START_BROKER, 1, 8, 1),
    Disturbance(Deed.STOP_BROKER, Deed.START_BROKER, 1, 8, 1),
)
_PROCESS_PAUSE_S: Final = (3.0, 8.0)
_BROKER_PAUSE_S: Final = (4.0, 12.0)
_AT_ONCE: Final = 2  # Processes that are disturbed at the same time, of three.


def plan_processes(seed: int, seconds: float) -> list[Step]:
    """Return what is done to processes; a whole round of everything, however few the seconds."""
    random = Random(f"processes {seed}")
    steps: list[Step] = []
    busy: dict[int, float] = {}  # Until when a slot is disturbed.
    for at, what in _begun(random, OF_PROCESSES, _PROCESS_PAUSE_S, seconds):
        slots = GUESTS if what.begin is Deed.JOIN else RESIDENTS
        begin = max(at, _free_at(slots, busy))
        slot = random.choice([one for one in slots if busy.get(one, 0) <= begin])
        end = begin + random.uniform(what.shortest, what.longest)
        busy[slot] = end + _STEP_S
        steps += (Step(begin, what.begin, slot), Step(end, what.end, slot))
    return sorted(steps)


def plan_brokers(seed: int, seconds: float) -> list[Step]:
    """Return what is done to brokers, one after the other."""
    random = Random(f"brokers {seed}")
    steps: list[Step] = []
    earliest, order = 0.0, random.sample(range(BROKERS), BROKERS)
    for number, (at, what) in enumerate(_begun(random, OF_BROKERS, _BROKER_PAUSE_S, seconds)):
        begin, broker = max(at, earliest), order[number % BROKERS]
        earliest = begin + random.uniform(what.shortest, what.longest)
        steps += (Step(begin, what.begin, broker), Step(earliest, what.end, broker))
    return steps


def _begun(
    random: Random, kinds: tuple[Disturbance, ...], pause: tuple[float, float], seconds: float
) -> Iterator[tuple[float, Disturbance]]:
    """Yield what begins when: at least one round of all kinds, in any order."""
    at, begun = 0.0, 0
    while True:
        round_ = [kind for kind in kinds for _ in range(kind.often)]
        random.shuffle(round_)
        for kind in round_:
            at += random.uniform(*pause)
            if at >= seconds and begun >= len(round_):
                return
            yield at, kind
            begun += 1


def _free_at(slots: tuple[int, ...], busy: dict[int, float]) -> float:
    """Return from when on one more slot may be disturbed."""
    ends = sorted(busy.get(slot, 0.0) for slot in slots)
    return ends[max(0, len(slots) - _AT_ONCE)] if len(slots) > 1 else ends[0]


class Chaos:
    """Carries the plans out.

    Args:
        kafka: the cluster.
        fleet: the processes.
        seed: what makes it this chaos.
        seconds: how long, at least.

    Attributes:
        done: how often each deed was done.
        diary: the steps as they were carried out, with the time at which each was begun.

    """

    def __init__(self, kafka: KafkaCluster, fleet: Fleet, seed: int, seconds: float) -> None:
        self.done: Counter[Deed] = Counter()
        self.diary: list[Step] = []
        self._kafka = kafka
        self._fleet = fleet
        self._plans = plan_processes(seed, seconds), plan_brokers(seed, seconds)
        self._seconds = seconds
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        self._began = 0.0
        self._failed = threading.Event()
        self._deeds: dict[Deed, Callable[[int], None]] = {
            Deed.KILL: fleet.kill,
            Deed.STOP: fleet.stop,
            Deed.RESTART: fleet.start,
            Deed.PAUSE: fleet.pause,
            Deed.RESUME: fleet.resume,
            Deed.JOIN: fleet.start,
            Deed.LEAVE: fleet.stop,
            Deed.KILL_BROKER: self._kill_broker,
            Deed.STOP_BROKER: self._stop_broker,
            Deed.START_BROKER: self._start_broker,
        }

    def run(self) -> None:
        """Do everything, and return when all is as it was before."""
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

    def _lane(self, steps: list[Step], least: int) -> None:
        """Do so many steps at least, and no more beginnings when the time is over.

        Brokers start, and processes stop, as slowly as they need to; what follows keeps its
        distance.
        """
        late = 0.0
        try:
            for number, step in enumerate(steps):
                self._wait_until(step.at + late)
                late = max(late, self._elapsed() - step.at)
                is_over = number >= least and self._elapsed() > self._seconds
                if self._failed.is_set() or (is_over and number % 2 == 0):
                    return
                self.diary.append(Step(self._elapsed(), step.deed, step.target))
                self._deeds[step.deed](step.target)
                self.done[step.deed] += 1
        except BaseException:
            self._failed.set()
            raise

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _wait_until(self, at: float) -> None:
        """Wait for the time of a step, and keep the fleet as large as it should be meanwhile."""
        while not self._failed.is_set() and (left := at - self._elapsed()) > 0:
            time.sleep(min(left, _STEP_S))
            self._fleet.revive()

    def _kill_broker(self, broker: int) -> None:
        self._wait_until_in_sync()
        self._kafka.kill_broker(broker)

    def _stop_broker(self, broker: int) -> None:
        self._wait_until_in_sync()
        self._kafka.stop_broker(broker)

    def _start_broker(self, broker: int) -> None:
        self._kafka.start_broker(broker)
        self._wait_until_in_sync()

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
