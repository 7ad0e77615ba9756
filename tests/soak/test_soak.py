"""A short soak: everything happens at least once, and every output is delivered exactly once."""

from collections import Counter
from pathlib import Path

import pytest

from tests.kafka.server.cluster import KafkaCluster
from tests.soak.disturbances import Action, plan_brokers, plan_processes
from tests.soak.run import soak

_SECONDS = 75
_SEED = 20_261_129

# Without these, the comparison proves little.
_MIN_DONE = {
    Action.KILL: 3,
    Action.STOP: 1,
    Action.PAUSE: 2,
    Action.JOIN: 1,
    Action.LEAVE: 1,
    Action.KILL_BROKER: 1,
    Action.STOP_BROKER: 1,
    Action.START_BROKER: 2,
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
def test_a_plan_has_a_whole_round_and_leaves_one_process_undisturbed(seed: int) -> None:
    processes, brokers = plan_processes(seed, _SECONDS), plan_brokers(seed, _SECONDS)
    assert processes == plan_processes(seed, _SECONDS)
    done = Counter(step.action for step in [*processes, *brokers])
    assert not {action for action, times in _MIN_DONE.items() if done[action] < times}
    away: set[int] = set()
    for step in processes:
        if step.action in (Action.KILL, Action.STOP, Action.PAUSE):
            assert step.target not in away
            away.add(step.target)
        elif step.action in (Action.RESTART, Action.RESUME):
            away.remove(step.target)
        assert len(away) < 3
    beginnings, ends = brokers[::2], brokers[1::2]
    assert all(step.action is Action.START_BROKER for step in ends)
    assert [step.target for step in beginnings] == [step.target for step in ends]


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_kills_zombies_and_broker_restarts_under_load_leave_each_record_once(
    kafka: KafkaCluster,  # noqa: ARG001 - skips without Kafka.
    tmp_path: Path,
) -> None:
    report = soak(_SECONDS, _SEED, tmp_path)
    print(report)
    assert not {action for action, times in _MIN_DONE.items() if report.done[action] < times}
    assert not {outcome for outcome in _HAPPENED if not report.expected.totals[outcome]}
    assert report.rebalances > 10
    assert not report.failures, report
    for kind, findings in report.findings.items():
        wrong = {name: len(found) for name, found in findings.wrong().items() if found}
        assert not wrong, f"{kind}s: {wrong}\n{report}"
