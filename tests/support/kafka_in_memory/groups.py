"""The coordinator of consumer groups: members, their partitions, committed offsets."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from tests.support.kafka_in_memory.log import Outcome, Place, Transaction

_MARK = b"CGMDv2:"


class GroupMetadata(NamedTuple):
    """How a client identifies itself when it commits; outside of a group its generation is -1."""

    group: str
    generation: int
    member: str
    instance: str | None

    def encode(self) -> bytes:
        """Write it as librdkafka does."""
        names = [self.group, self.member, *([self.instance] if self.instance else [])]
        text = b"\0".join(name.encode() for name in names)
        mark = b"\0" if self.instance else b"\0\1"
        return _MARK + self.generation.to_bytes(4, "little", signed=True) + text + mark

    @classmethod
    def decode(cls, text: bytes) -> "GroupMetadata":
        rest = text.removeprefix(_MARK)
        group, member, instance, *_ = rest[4:].split(b"\0")
        generation = int.from_bytes(rest[:4], "little", signed=True)
        named = instance.decode() if instance != b"\1" else None
        return cls(group.decode(), generation, member.decode(), named)


class Position(NamedTuple):
    """A committed offset, and how many were committed before it."""

    offset: int
    metadata: str | None
    order: int
    leader_epoch: int | None


class Member:
    """One member of a group.

    Attributes:
        owned: partitions that it was assigned, and has not given back.
        target: what it is to read by the assignment of the generation.
        synced: the generation whose assignment it has received.
        generation: the last one in which it was a member.

    """

    def __init__(self, name: str, topics: list[str], session: float, instance: str | None) -> None:
        self.name = name
        self.topics = topics
        self.session = session
        self.instance = instance
        self.seen = 0.0
        self.owned: set[Place] = set()
        self.target: set[Place] = set()
        self.synced = -1
        self.generation = -1

    def wants(self, topic: str) -> bool:
        return any(
            re.match(wanted, topic) if wanted.startswith("^") else wanted == topic
            for wanted in self.topics
        )


class Group:
    """A group whose members rebalance cooperatively.

    Members follow a new generation at once, as the client does in its background thread; they
    get the changes when they poll. A partition is given to its new owner only after the old one has
    given it back.

    Args:
        name: the group's id.
        cluster: returns a number that changes when the partitions do, and these.

    """

    def __init__(self, name: str, cluster: Callable[[], tuple[int, Iterable[Place]]]) -> None:
        self.name = name
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.offsets: dict[Place, Position] = {}
        self.pending: dict[Transaction, dict[Place, Position]] = {}
        self._cluster = cluster
        self._version = 0
        self._known: list[Place] = []
        self._named = 0
        self._ordered = 0

    # Members

    def join(self, topics: list[str], session: float, instance: str | None, now: float) -> Member:
        """Take in a member; one with the instance id of another replaces it."""
        self._named += 1
        member = Member(f"{self.name}-{self._named}", topics, session, instance)
        member.seen = now
        before = self.member_of(instance) if instance else None
        if before is not None:
            del self.members[before.name]
            member.target = before.target
            member.generation = before.generation
        self.members[member.name] = member
        if before is None or before.topics != topics:
            self.rebalance()
        return member

    def leave(self, member: Member) -> None:
        """Let a member go, if it is one."""
        if self.members.pop(member.name, None) is not None:
            self.rebalance()

    def expire(self, now: float) -> None:
        """Expel members that were not seen for too long."""
        late = [one for one in self.members.values() if now - one.seen > one.session]
        for member in late:
            del self.members[member.name]
        if late:
            self.rebalance()

    def member_of(self, instance: str) -> Member | None:
        return next((one for one in self.members.values() if one.instance == instance), None)

    # Assignment

    def refresh(self) -> None:
        """Rebalance if there are other partitions than at the last time."""
        version, _ = self._cluster()
        if version != self._version:
            self._version = version
            if self._known != self._subscribed():
                self.rebalance()

    def rebalance(self) -> None:
        """Begin a generation: every member keeps its partitions as far as that is fair."""
        self.generation += 1
        self._known = self._subscribed()
        members = list(self.members.values())
        for member in members:
            member.generation = self.generation
            member.target = {one for one in member.owned if one in self._known}
        owned = {one for member in members for one in member.target}
        for place in self._known:
            if place not in owned:
                takers = [one for one in members if one.wants(place[0])]
                min(takers, key=lambda one: len(one.target)).target.add(place)
        while _level(members):
            pass

    def assignment(self, member: Member) -> tuple[list[Place], list[Place]]:
        """Return what a member gets and what it must give back in this generation."""
        others = [one.owned for one in self.members.values() if one is not member]
        given = member.target.difference(member.owned, *others)
        return sorted(given), sorted(member.owned - member.target)

    def _subscribed(self) -> list[Place]:
        _, places = self._cluster()
        members = self.members.values()
        return sorted(one for one in places if any(member.wants(one[0]) for member in members))

    # Offsets

    def refusal(self, committer: GroupMetadata, *, transactional: bool) -> int | None:
        """Return the code of the error with which a commit is refused."""
        if committer.generation < 0 and not committer.member:
            # Kafka does not fence a transaction of a client that was never a member.
            return KafkaError.UNKNOWN_MEMBER_ID if self.members and not transactional else None
        same = self.member_of(committer.instance) if committer.instance else None
        if same is not None and same.name != committer.member:
            return KafkaError.FENCED_INSTANCE_ID
        if committer.member not in self.members:
            return KafkaError.UNKNOWN_MEMBER_ID
        return None if committer.generation == self.generation else KafkaError.ILLEGAL_GENERATION

    def position(self, committed: TopicPartition) -> Position:
        """Return the next offset to be committed."""
        self._ordered += 1
        return Position(committed.offset, committed.metadata, self._ordered, committed.leader_epoch)

    def is_unstable(self, place: Place) -> bool:
        """Whether a transaction that is still open has an offset of a partition."""
        return any(place in positions for positions in self.pending.values())

    def end_transaction(self, transaction: Transaction) -> None:
        """Let the offsets of a transaction count where no later one does, or forget them."""
        positions = self.pending.pop(transaction, {})
        if transaction.outcome is Outcome.COMMITTED:
            for place, position in positions.items():
                now = self.offsets.get(place, position)
                self.offsets[place] = max(now, position, key=lambda one: one.order)

    def forget(self, topic: str) -> None:
        """Forget the offsets of a topic that was deleted."""
        for positions in (self.offsets, *self.pending.values()):
            for place in [one for one in positions if one[0] == topic]:
                del positions[place]


def _level(members: list[Member]) -> bool:
    """Move one partition from a member that has too many; return whether there was one."""
    for richest in sorted(members, key=lambda one: -len(one.target)):
        for poorest in sorted(members, key=lambda one: len(one.target)):
            if len(richest.target) - len(poorest.target) <= 1:
                break
            movable = [one for one in sorted(richest.target) if poorest.wants(one[0])]
            if movable:
                richest.target.remove(movable[0])
                poorest.target.add(movable[0])
                return True
    return False
