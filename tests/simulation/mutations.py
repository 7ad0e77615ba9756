"""Faults put into the rule of recovery on purpose, one at a time: the simulation must find each."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest

from consumer.core.checkpoint import Checkpoint, Ignored, decode
from consumer.core.reassembly.index import AttemptIndex
from consumer.core.reassembly.reassembler import Reassembler
from consumer.core.stream_time import BlockState
from consumer.kafka import exactly_once, partition_start
from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.batch import Batch
from consumer.kafka.commit_cycle import CommitCycle
from consumer.kafka.committer import CommitResult
from tests.simulation import world

Mutation = Callable[[pytest.MonkeyPatch], None]


def stream_time_is_lost(patch: pytest.MonkeyPatch) -> None:
    """Read again without the stream time that the checkpoint holds."""

    def forgetful(metadata: str, position: int, topic: int) -> Checkpoint | Ignored:
        found = decode(metadata, position, topic)
        if isinstance(found, Ignored):
            return found
        return msgspec.structs.replace(found, start=BlockState(found.start.offset))

    patch.setattr(partition_start, "decode", forgetful)
    patch.setattr(world.World, "partition", _any_lineage)


def finished_requests_are_not_read_again(patch: pytest.MonkeyPatch) -> None:
    """Read again from the oldest open request only: the duplicate window is lost."""

    def start(self: AttemptIndex) -> BlockState | None:
        opened = [attempt for attempt in self._by_begin if attempt.open]
        return opened[0].first_block if opened else None

    patch.setattr(AttemptIndex, "start", property(start))


def unlisted_requests_are_reported_again(patch: pytest.MonkeyPatch) -> None:
    """Take every request of the stretch for one that was open."""
    open_request = Reassembler._open

    def open_listed(self: Reassembler, key: Any, event: Any, arrival: Any) -> Any:
        self._not_found_yet.add(arrival.place)
        return open_request(self, key, event, arrival)

    patch.setattr(Reassembler, "_open", open_listed)


def the_list_of_open_requests_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """Commit without saying what is open."""
    patch.setattr(AttemptIndex, "open_places", lambda _: ())


def timeouts_run_while_reading_again(patch: pytest.MonkeyPatch) -> None:
    """Let requests that were open time out during re-reading."""
    advance = Reassembler.advance

    def running(self: Reassembler, now: int, offset: int) -> None:
        live, self.live = self.live, True
        for attempt in self.index._by_begin:
            attempt.must_report = attempt.must_report and live
        advance(self, now, offset)
        self.live = live

    patch.setattr(Reassembler, "advance", running)


def a_partition_is_committed_while_it_is_read_again(patch: pytest.MonkeyPatch) -> None:
    """Commit the position in the middle of the stretch."""
    patch.setattr(
        AssignedPartition, "is_due", lambda self, _, **__: self.core.position != self._submitted
    )


def an_expelled_member_commits_as_if_without_group(patch: pytest.MonkeyPatch) -> None:
    """Hand over with a membership that brokers do not fence."""
    patch.setattr(exactly_once, "is_member", lambda _: True)


def aborted_outputs_of_lost_partitions_are_restored(patch: pytest.MonkeyPatch) -> None:
    """Restore an aborted batch to a partition that was revoked and assigned again meanwhile."""
    patch.setattr("consumer.kafka.committer.Committer.drop_revoked", lambda *_: None)
    restore = CommitCycle._restore

    def restoring(self: CommitCycle, result: CommitResult) -> None:
        here = self._assignment.partitions
        shares = [share for share in result.batch.partitions if share.key in here]
        restore(self, msgspec.structs.replace(result, batch=Batch(shares)))

    patch.setattr(CommitCycle, "_restore", restoring)


def aborted_outputs_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Continue after an abort with what has come since."""
    patch.setattr(CommitCycle, "_restore", lambda *_: None)


def unstable_offsets_are_used(patch: pytest.MonkeyPatch) -> None:
    """Begin at the last stable position while the transaction with the next one is still open."""
    patch.setattr("tests.support.kafka_in_memory.groups.Group.is_unstable", lambda *_: False)


def the_state_of_lost_partitions_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Continue with the old state of a partition that another member has owned meanwhile."""
    find = partition_start.PartitionStarter.find

    def keeping(self: Any, given: Any) -> Mapping[Any, Any]:
        kept = self.__dict__.setdefault("kept", {})
        found = find(self, given)
        for place, one in found.items():
            kept.setdefault(place, one)
        return {place: kept[place] for place in found}

    patch.setattr(partition_start.PartitionStarter, "find", keeping)


def transactions_go_on_without_an_abort(patch: pytest.MonkeyPatch) -> None:
    """Begin the next transaction where the last one failed."""
    patch.setattr(exactly_once.ExactlyOnce, "_abort", lambda *_: None)


def _any_lineage(self: world.World, made: Any, checkpoint: Checkpoint | None) -> None:
    del self, made, checkpoint


ALL: Final[Mapping[str, Mutation]] = {
    mutation.__name__: mutation
    for mutation in (
        stream_time_is_lost,
        finished_requests_are_not_read_again,
        unlisted_requests_are_reported_again,
        the_list_of_open_requests_is_left_out,
        timeouts_run_while_reading_again,
        a_partition_is_committed_while_it_is_read_again,
        an_expelled_member_commits_as_if_without_group,
        aborted_outputs_of_lost_partitions_are_restored,
        aborted_outputs_are_forgotten,
        unstable_offsets_are_used,
        the_state_of_lost_partitions_is_kept,
        transactions_go_on_without_an_abort,
    )
}
