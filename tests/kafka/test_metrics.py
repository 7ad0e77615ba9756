"""Metrics of the real service on a real Kafka, held against what it has published."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import generate_latest

from consumer.app import Service
from consumer.core.adapters.registry import load_adapters
from consumer.core.partition import Pipeline
from consumer.demo.fleet import CANARY, CREDENTIAL_CANARY, REQUESTS_PER_ROUND
from consumer.kafka.administrator import Administrator
from consumer.kafka.context import Context
from consumer.settings.core_options import pipeline_options
from consumer.settings.sources import load
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.health import Health
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.stop import Stop
from tests.kafka.harness import SECONDS, Bench, Json, eventually
from tests.unit.kafka.fakes import Log

pytestmark = pytest.mark.kafka


@contextmanager
def running(bench: Bench, **settings: str) -> Iterator[Metrics]:
    """Run the service in a thread of this process, whose metrics can be looked at."""
    loaded = load({}, bench.environment(**settings), None)
    administrator, stop = Administrator(loaded), Stop()
    cluster = administrator.inspect(SECONDS)
    core = Pipeline(pipeline_options(loaded, cluster.cluster_id), load_adapters())
    clock, log, metrics = SystemClock(), Log(), Metrics()
    health = Health(stop, loaded.shutdown_timeout, clock, log)
    context = Context(loaded, clock, log, stop)
    service = Service(context, core, administrator, cluster, health, metrics)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(service.run()))
    thread.start()
    try:
        yield metrics
    finally:
        stop.request("the end of the test")
        thread.join(SECONDS)
    assert codes == [0]


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a name by the values of their labels, without zeros."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"acceptance_{name}" and sample.value
    }


def summed(records: list[Json], member: str) -> dict[tuple[str, ...], float]:
    """Return the sums of a member of records by engine and model, without zeros."""
    sums: Counter[tuple[str, ...]] = Counter()
    for record in records:
        sums[record["engine"], record["model"]] += record[member] or 0
    return dict(+sums)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_the_metrics_are_the_sums_of_what_was_published(bench: Bench, delivery: str) -> None:
    sent = len(bench.send_traffic(seed=3, rounds=1))
    with running(bench, idle_timeout="5s", delivery=delivery) as metrics:
        bench.read_up()
        sent += bench.partitions
        eventually(lambda: sum(samples(metrics, "messages_total").values()) == sent, "all messages")
        eventually(lambda: samples(metrics, "consumer_lag_messages") == {}, "no lag")
        eventually(lambda: samples(metrics, "assigned_partitions") == {(): 3}, "all partitions")
        eventually(lambda: samples(metrics, "librdkafka_received_bytes_total"), "statistics")
    records = [one.json for one in bench.records()]
    letters = [one.json for one in bench.letters()]
    assert len(records) > REQUESTS_PER_ROUND / 2

    steps = summed(records, "num_spec_steps")
    alone = samples(metrics, "verify_steps_without_accepted_total")
    counted = Counter(samples(metrics, "verify_steps_total"))
    assert dict(counted + Counter(alone)) == steps
    with_steps = [record for record in records if record["num_spec_steps"] is not None]
    assert len(with_steps) < len(records)  # llama.cpp counts no steps.
    assert samples(metrics, "accepted_draft_tokens_total") == summed(
        with_steps, "num_accepted_draft_tokens"
    )
    measured = [record for record in records if record["draft_tokens_measured"]]
    assert samples(metrics, "draft_tokens_total") == summed(measured, "num_draft_tokens")
    assert samples(metrics, "measured_accepted_draft_tokens_total") == summed(
        measured, "num_accepted_draft_tokens"
    )
    of_steps: Counter[tuple[str, ...]] = Counter()
    for record in records:
        for times in (record["acceptance_histogram"] or {}).values():
            of_steps[record["engine"], record["model"]] += times
    assert samples(metrics, "step_accepted_draft_tokens_count") == of_steps

    published = Counter((record["engine"], record["model"], "published", "") for record in records)
    requests = samples(metrics, "requests_total")
    assert {labels: n for labels, n in requests.items() if labels[2] == "published"} == published
    assert samples(metrics, "dead_letters_total") == Counter(
        (letter["kind"], letter["reason"] or letter["outcome"]) for letter in letters
    )
    timed = [record for record in records if record["completed_at"] is not None]
    assert samples(metrics, "publish_delay_seconds_count") == {(): len(timed)}
    assert samples(metrics, "transactions_total").keys() == {("committed",)}
    text = generate_latest(metrics.registry).decode()
    assert CANARY not in text
    assert CREDENTIAL_CANARY not in text
