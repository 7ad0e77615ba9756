"""A short soak: everything happens at least once, and everything is downstream exactly once."""

from pathlib import Path

import pytest

from tests.kafka.server.cluster import KafkaCluster
from tests.soak.chaos import Deed, Step, plan_brokers, plan_processes
from tests.soak.run import soak

_SECONDS = 75
_SEED = 20_261_129

# What must have happened for the comparison to mean anything.
_LEAST = {
    Deed.KILL: 3,
    Deed.STOP: 1,
    Deed.PAUSE: 2,
    Deed.JOIN: 1,
    Deed.LEAVE: 1,
    Deed.KILL_BROKER: 1,
    Deed.STOP_BROKER: 1,
    Deed.START_BROKER: 2,
}
_HAPPENED = (
    "message bad_payload(invalid_json)",
    "message skipped(duplicate)",
    "message skipped(late_repeat)",
    "message skipped(repeated_response)",
    "message skipped(request_event)",
    "request failed_response",
    "request incomplete(gap)",
    "request incomplete(idle_timeout)",
    "request malformed_stats(histogram_steps)",
    "request no_stats(absent)",
    "request published",
)


@pytest.mark.parametrize("seed", range(200))
def test_a_plan_has_a_whole_round_and_leaves_somebody_undisturbed(seed: int) -> None:
    processes, brokers = plan_processes(seed, _SECONDS), plan_brokers(seed, _SECONDS)
    assert processes == plan_processes(seed, _SECONDS)
    assert {deed for deed in _LEAST if _count([*processes, *brokers], deed) < _LEAST[deed]} == set()
    away: set[int] = set()
    for step in processes:
        if step.deed in (Deed.KILL, Deed.STOP, Deed.PAUSE):
            assert step.target not in away
            away.add(step.target)
        elif step.deed in (Deed.RESTART, Deed.RESUME):
            away.remove(step.target)
        assert len(away) < 3
    beginnings, ends = brokers[::2], brokers[1::2]
    assert all(step.deed is Deed.START_BROKER for step in ends)
    assert [step.target for step in beginnings] == [step.target for step in ends]


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_kills_zombies_and_broker_restarts_under_load_leave_each_record_once(
    kafka: KafkaCluster,  # noqa: ARG001 - it says whether to skip.
    tmp_path: Path,
) -> None:
    report = soak(_SECONDS, _SEED, tmp_path)
    print(report)
    assert not {deed for deed, least in _LEAST.items() if report.done[deed] < least}
    assert not {outcome for outcome in _HAPPENED if not report.expected.totals[outcome]}
    assert report.rebalances > 10
    assert not report.failures, report
    for kind, findings in report.findings.items():
        wrong = {name: len(found) for name, found in findings.kinds().items() if found}
        assert not wrong, f"{kind}s: {wrong}\n{report}"


def _count(steps: list[Step], deed: Deed) -> int:
    return sum(step.deed is deed for step in steps)
