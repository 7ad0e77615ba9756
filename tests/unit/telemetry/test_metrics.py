"""Metrics: names and formats, bounded labels, and sums that divide to the right rates."""

import re
from collections.abc import Iterable
from itertools import count
from statistics import mean
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from consumer.core.outcomes import RequestResult
from consumer.core.output_messages import OutputMessage
from consumer.telemetry.client_statistics import BrokerStatistics, ClientStatistics
from consumer.telemetry.health import GAUGES
from consumer.telemetry.metric_families import Family
from consumer.telemetry.metrics import MAX_PAIRS, OTHER, UNKNOWN, AssignmentState, Metrics
from consumer.telemetry.outcome_counts import EventTotal, OutcomeCounts
from schemas import RequestOutcome
from tests.paths import ROOT
from tests.unit.core.made import Json, chunk, native, outcomes_of, vllm_stats, whole
from tests.unit.kafka.fakes import output

NOW: Final = 1_767_225_600_000
VLLM: Final = {"engine": "vllm", "model": "demo-8b"}
STATISTICS: Final = msgspec.convert(
    {
        "type": "consumer",
        "replyq": 7,
        "msg_cnt": 3,
        "brokers": {
            "b:9092/1": {
                "nodeid": 1,
                "source": "learned",
                "rtt": {"p99": 2_500},
                "throttle": {"p99": 40},
                "txbytes": 11,
                "rxbytes": 22,
                "txerrs": 1,
                "rxerrs": 2,
                "req_timeouts": 3,
            },
            "GroupCoordinator": {"nodeid": 1, "source": "logical", "txerrs": 9},
        },
    },
    ClientStatistics,
)

_numbers: Final = count()


def response(stats: Json, model: str = "demo-8b") -> bytes:
    name = f"r{next(_numbers)}"
    return native(name, body=whole(name) | {"model": model, **stats})


def vllm(accepted: int, steps: int, model: str = "demo-8b") -> bytes:
    return response({"metrics": vllm_stats(accepted, steps)}, model)


def misstated(**statements: float) -> bytes:
    stats = vllm_stats(15, 8)
    return response(
        {"metrics": {"speculative_decoding": stats["speculative_decoding"] | statements}}
    )


def sglang(**members: int | list[int]) -> bytes:
    return response({"metrics": None, "sglext": {"spec_tokens_details": members}})


def counts_of(metrics: Metrics, results: Iterable[RequestResult]) -> OutcomeCounts:
    counts = OutcomeCounts()
    for result in results:
        counts.add_request(result, metrics.labels_of(result))
    return counts


def commit(
    metrics: Metrics,
    counts: OutcomeCounts | None = None,
    *outputs: OutputMessage,
    duration_s: float = 0.02,
) -> None:
    metrics.count_committed_batch(
        [(counts or OutcomeCounts(), outputs)], duration_s=duration_s, committed_at_ms=NOW
    )


def published(metrics: Metrics, *values: bytes) -> list[Any]:
    """Publish responses in one batch, and return their records."""
    results = outcomes_of(values)
    commit(metrics, counts_of(metrics, results))
    return [result.record for result in results if result.record is not None]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def summed(metrics: Metrics, name: str) -> float:
    """Return what PromQL's `sum` over all labels gives."""
    return sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    )


def openmetrics(metrics: Metrics) -> str:
    text: bytes = generate_openmetrics(metrics.registry)  # type: ignore[no-untyped-call]
    return text.decode()


def scraped(metrics: Metrics) -> list[Metric]:
    """Return what a scraper of OpenMetrics reads."""
    return list(parse_openmetrics(openmetrics(metrics)))  # type: ignore[no-untyped-call]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def filled() -> Metrics:
    """Return metrics of which each has a value."""
    metrics = Metrics()
    commit(metrics, None, output(timestamp=NOW - 300), letter("message", "invalid_json"))
    published(metrics, vllm(15, 8), misstated(mean_acceptance_length=9.9), sglang(spec_verify_ct=5))
    counts = OutcomeCounts()
    counts.totals["message", "accepted", None, ("native",)] += 1
    counts.totals["odd_member", "timestamp", None, ("native",)] += 1
    commit(metrics, counts)
    metrics.state = AssignmentState(open_requests=2, lags={("input", 3): 5}, assigned=1)
    metrics.add_statistics(STATISTICS)
    return metrics


def letter(kind: Any, reason: str | None, outcome: str = "bad_payload") -> OutputMessage:
    source = ("input", 0, 0)
    return OutputMessage("dead_letter", b"k", b"{}", [], 0, source, None, kind, outcome, reason)


# Names and formats


@pytest.mark.parametrize("family", Family)
def test_a_name_follows_the_conventions_of_prometheus(family: Family) -> None:
    assert re.fullmatch(r"acceptance(_[a-z]+)+", family)
    assert family.endswith("_total") is (family.kind == "counter")
    assert not re.search(
        r"_(ms|milliseconds|minutes|kb|mib|percent|count|sum|bucket|info)$", family
    )
    assert not set(family.labels) & {"le", "quantile", "job", "instance"}
    assert family.explanation.endswith(".")


def test_every_metric_is_exposed_with_its_type_help_and_labels(filled: Metrics) -> None:
    families = {family.name: family for family in scraped(filled)}
    for family in Family:
        found = families[family.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind, family.explanation)
        assert found.samples, family
        for sample in found.samples:
            assert set(sample.labels) - {"le"} == set(family.labels)


def test_both_formats_hold_the_same_samples(filled: Metrics) -> None:
    def samples(families: Iterable[Any]) -> set[Any]:
        return {
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in families
            for sample in family.samples
            if sample.name.startswith("acceptance_")
        }

    text = generate_latest(filled.registry).decode()
    assert samples(parse_text(text)) == samples(scraped(filled))


def test_counters_exist_before_their_first_event(metrics: Metrics) -> None:
    for name, labels in (
        ("acceptance_transactions_total", {"result": "aborted"}),
        ("acceptance_rebalances_total", {"event": "lost"}),
        ("acceptance_clients_rebuilt_total", {}),
        ("acceptance_dropped_outputs_total", {}),
        ("acceptance_publish_delay_seconds_count", {}),
    ):
        assert value(metrics, name, **labels) == 0


def test_the_version_and_the_process_are_exposed(metrics: Metrics) -> None:
    assert summed(metrics, "acceptance_build_info") == 1
    assert value(metrics, "process_resident_memory_bytes")


def test_two_objects_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.count_rebalance("lost")
    assert value(one, "acceptance_rebalances_total", event="lost") == 1
    assert value(other, "acceptance_rebalances_total", event="lost") == 0


def test_the_operations_manual_names_only_metrics_that_exist(filled: Metrics) -> None:
    exposed = {sample.name for family in filled.registry.collect() for sample in family.samples} | {
        *Family,
        *GAUGES,
    }
    text = (ROOT / "helm" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<=[`( ])acceptance_[a-z_]+(?=[\[{`. ])", text))
    assert len(named) > len(Family)
    assert named <= exposed


# Rates


def skewed() -> tuple[list[bytes], list[bytes]]:
    """Return a few long requests with low acceptance, and many short ones with high acceptance."""
    return [vllm(600, 2_000) for _ in range(5)], [vllm(11, 4) for _ in range(500)]


def test_a_rate_is_the_ratio_of_sums_and_not_the_mean_of_ratios(metrics: Metrics) -> None:
    long, short = skewed()
    records = published(metrics, *long, *short)
    accepted = sum(record.num_accepted_draft_tokens for record in records)
    drafted = sum(record.num_draft_tokens for record in records)
    steps = sum(record.num_spec_steps for record in records)

    rate = summed(metrics, "acceptance_measured_accepted_draft_tokens_total") / summed(
        metrics, "acceptance_draft_tokens_total"
    )
    length = 1 + summed(metrics, "acceptance_accepted_draft_tokens_total") / summed(
        metrics, "acceptance_verify_steps_total"
    )

    assert (rate, length) == (accepted / drafted, 1 + accepted / steps)
    assert rate == pytest.approx(0.236, abs=0.001)
    assert mean(record.draft_acceptance_rate for record in records) == pytest.approx(
        0.909, abs=0.001
    )
    assert mean(record.mean_acceptance_length for record in records) > length + 1


def test_instances_and_windows_add_up_to_the_same_rate() -> None:
    long, short = skewed()
    fleet = Metrics(), Metrics()
    published(fleet[0], *long, *short[:10])
    published(fleet[1], *short[10:200])
    before = [tokens(one) for one in fleet]
    window = published(fleet[0], *short[200:]) + published(fleet[1], vllm(3, 1_000))
    after = [tokens(one) for one in fleet]

    accepted, drafted = (
        sum(now[n] - then[n] for now, then in zip(after, before, strict=True)) for n in (0, 1)
    )

    assert accepted == sum(record.num_accepted_draft_tokens for record in window)
    assert drafted == sum(record.num_draft_tokens for record in window)


def tokens(metrics: Metrics) -> tuple[float, float]:
    return (
        summed(metrics, "acceptance_measured_accepted_draft_tokens_total"),
        summed(metrics, "acceptance_draft_tokens_total"),
    )


def test_drafts_that_an_engine_does_not_measure_stay_out_of_the_rate(metrics: Metrics) -> None:
    published(
        metrics,
        vllm(15, 8),
        sglang(
            spec_verify_ct=100,
            spec_num_correct_drafts=90,
            spec_num_proposed_drafts=700,
            spec_correct_drafts_histogram=[10, 90],
        ),
    )
    assert tokens(metrics) == (15, 24)
    labels = {"engine": "sglang", "model": "demo-8b"}
    assert value(metrics, "acceptance_accepted_draft_tokens_total", **labels) == 90
    assert value(metrics, "acceptance_request_mean_length_sum", **labels) == 1.9
    assert value(metrics, "acceptance_request_draft_acceptance_ratio_count", **labels) == 0


def test_steps_without_accepted_drafts_stay_out_of_the_length(metrics: Metrics) -> None:
    published(metrics, vllm(15, 8), sglang(spec_verify_ct=100))
    assert summed(metrics, "acceptance_verify_steps_total") == 8
    assert summed(metrics, "acceptance_verify_steps_without_accepted_total") == 100
    assert summed(metrics, "acceptance_request_mean_length_count") == 1


def test_a_statement_that_differs_from_the_counts_is_counted_by_engine_and_field(
    metrics: Metrics,
) -> None:
    published(
        metrics,
        misstated(mean_acceptance_length=9.9, draft_acceptance_rate=1.7),
        misstated(mean_acceptance_length=9.9),
        vllm(15, 8),
    )
    name = "acceptance_differing_statements_total"
    assert value(metrics, name, engine="vllm", field="mean_acceptance_length") == 2
    assert value(metrics, name, engine="vllm", field="draft_acceptance_rate") == 1
    assert summed(metrics, name) == 3


def test_a_request_without_steps_has_no_place_in_the_distributions(metrics: Metrics) -> None:
    """vLLM states a mean of 1.0 and a rate of 0.0 there, without a measurement."""
    stats = vllm_stats(0, 1)
    stats["speculative_decoding"] |= {
        "mean_acceptance_length": 1.0,
        "draft_acceptance_rate": 0.0,
        "acceptance_histogram": [0, 0, 0, 0],
        "num_spec_steps": 0,
        "num_draft_tokens": 0,
    }
    [record] = published(metrics, response({"metrics": stats}))
    assert record.mean_acceptance_length == 1.0
    for name in ("request_mean_length", "request_draft_acceptance_ratio"):
        assert value(metrics, f"acceptance_{name}_count", **VLLM) == 0


def test_the_histogram_of_steps_is_that_of_all_records_together(metrics: Metrics) -> None:
    records = published(metrics, vllm(15, 8), vllm(4, 8))
    steps: dict[int, int] = {}
    for record in records:
        for depth, times in record.acceptance_histogram.items():
            steps[depth] = steps.get(depth, 0) + times
    name = "acceptance_step_accepted_draft_tokens"
    for bound in range(17):
        expected = sum(times for depth, times in steps.items() if depth <= bound)
        assert value(metrics, f"{name}_bucket", **VLLM, le=f"{bound}.0") == expected
    assert value(metrics, f"{name}_count", **VLLM) == 16
    assert value(metrics, f"{name}_sum", **VLLM) == 19


def test_deeper_drafts_than_the_last_bound_count_too(metrics: Metrics) -> None:
    published(
        metrics,
        sglang(
            spec_verify_ct=3,
            spec_num_correct_drafts=50,
            spec_correct_drafts_histogram=[1, *[0] * 24, 2],
        ),
    )
    name, labels = "acceptance_step_accepted_draft_tokens", {"engine": "sglang", "model": "demo-8b"}
    assert value(metrics, f"{name}_bucket", **labels, le="16.0") == 1
    assert value(metrics, f"{name}_bucket", **labels, le="+Inf") == 3
    assert value(metrics, f"{name}_sum", **labels) == 50


@pytest.mark.parametrize(("accepted", "bound"), [(0, "1.0"), (2, "1.25"), (8, "2.0"), (24, "4.0")])
def test_a_mean_length_is_in_the_bucket_of_the_bound_that_it_does_not_exceed(
    metrics: Metrics, accepted: int, bound: str
) -> None:
    published(metrics, vllm(accepted, 8))
    name = "acceptance_request_mean_length_bucket"
    bounds = [
        sample.labels["le"]
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == name and sample.value == 1
    ]
    assert bounds[0] == bound


# What counts


def test_an_aborted_batch_counts_nothing_but_its_abort(metrics: Metrics) -> None:
    metrics.count_aborted_batch()
    assert summed(metrics, "acceptance_requests_total") == 0
    assert summed(metrics, "acceptance_draft_tokens_total") == 0
    assert summed(metrics, "acceptance_publish_delay_seconds_count") == 0
    assert value(metrics, "acceptance_transactions_total", result="aborted") == 1
    assert value(metrics, "acceptance_transactions_total", result="committed") == 0
    assert summed(metrics, "acceptance_commit_duration_seconds_count") == 0


def test_requests_are_counted_by_engine_model_outcome_and_reason(metrics: Metrics) -> None:
    two = {"metrics": vllm_stats(), "meta_info": {"spec_verify_ct": 5}}
    published(metrics, vllm(15, 8), response({"metrics": None}), response(two))
    published(metrics, response({"metrics": None}, model="never-published"))
    requests = {
        tuple(sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == Family.REQUESTS
    }
    assert requests == {
        ("vllm", "demo-8b", "published", ""): 1,
        (UNKNOWN, "demo-8b", "no_stats", "absent"): 1,
        (UNKNOWN, "demo-8b", "ambiguous_stats", ""): 1,
        (UNKNOWN, OTHER, "no_stats", "absent"): 1,
    }


def test_dead_letters_are_counted_by_reason_or_by_outcome(metrics: Metrics) -> None:
    bad = letter("message", "invalid_json")
    commit(metrics, None, bad, bad, letter("request", None, "ambiguous_stats"))
    name = "acceptance_dead_letters_total"
    assert value(metrics, name, kind="message", reason="invalid_json") == 2
    assert value(metrics, name, kind="request", reason="ambiguous_stats") == 1


def test_the_delay_is_from_the_last_event_to_the_commit(metrics: Metrics) -> None:
    """A time ahead of the clock counts as no delay; a record without a time does not count."""
    for timestamp in (NOW - 300, NOW + 5_000, 0):
        commit(metrics, None, output(timestamp=timestamp))
    name = "acceptance_publish_delay_seconds"
    assert value(metrics, f"{name}_bucket", le="0.05") == 1
    assert value(metrics, f"{name}_bucket", le="0.5") == 2
    assert value(metrics, f"{name}_count") == 2
    assert value(metrics, f"{name}_sum") == 0.3


def test_a_commit_is_timed(metrics: Metrics) -> None:
    commit(metrics, duration_s=0.2)
    assert value(metrics, "acceptance_commit_duration_seconds_bucket", le="0.1") == 0
    assert value(metrics, "acceptance_commit_duration_seconds_bucket", le="0.25") == 1


@pytest.mark.parametrize(
    ("total", "name"),
    [
        (EventTotal.REREAD_MESSAGES, "acceptance_reread_messages_total"),
        (EventTotal.POSSIBLE_REPEATS, "acceptance_possible_repeats_total"),
        (EventTotal.DROPPED_OUTPUTS, "acceptance_dropped_outputs_total"),
        (EventTotal.SLOW_MESSAGES, "acceptance_slow_messages_total"),
    ],
)
def test_a_total_of_the_log_is_a_metric_too(metrics: Metrics, total: Any, name: str) -> None:
    metrics.count(total, 3)
    assert value(metrics, name) == 3


def test_lost_clients_lose_their_state_but_no_counts(filled: Metrics) -> None:
    filled.count_lost_clients()
    assert value(filled, "acceptance_clients_rebuilt_total") == 1
    assert value(filled, "acceptance_assigned_partitions") == 0
    assert value(filled, "acceptance_consumer_lag_messages", topic="input", partition="3") is None
    assert value(filled, "acceptance_librdkafka_queue_messages", client="consumer") is None
    assert value(filled, "acceptance_draft_tokens_total", **VLLM) == 48


# Labels


def record_of(model: str | None) -> RequestResult:
    [result] = outcomes_of([vllm(15, 8)])
    return renamed(result, model)


def renamed(result: RequestResult, model: str | None) -> RequestResult:
    assert result.record is not None
    record = msgspec.structs.replace(result.record, model=model)
    return msgspec.structs.replace(result, record=record)


def refused(model: str) -> RequestResult:
    [result] = outcomes_of([response({"metrics": None}, model)])
    return result


def exposed_models(metrics: Metrics) -> set[str]:
    return {
        sample.labels["model"]
        for family in scraped(metrics)
        for sample in family.samples
        if "model" in sample.labels
    }


def test_a_hundred_thousand_names_of_models_make_a_bounded_number_of_series(
    metrics: Metrics,
) -> None:
    first, sample = record_of("m0"), OutcomeCounts()
    for number in range(100_000):
        result = renamed(first, f"m{number}")
        sample.add_request(result, metrics.labels_of(result))
    commit(metrics, sample)
    models = exposed_models(metrics)
    assert models == {OTHER, *(f"m{number}" for number in range(MAX_PAIRS))}
    labels = {"engine": "vllm", "model": OTHER, "outcome": "published", "reason": ""}
    assert value(metrics, Family.REQUESTS, **labels) == 100_000 - MAX_PAIRS
    assert len(openmetrics(metrics).splitlines()) < MAX_PAIRS * 100
    assert len(metrics._labels) <= 2 * MAX_PAIRS


def test_only_a_published_record_adds_a_model(metrics: Metrics) -> None:
    results = [refused(f"junk-{number}") for number in range(1_000)]
    commit(metrics, counts_of(metrics, results))
    assert exposed_models(metrics) == {OTHER}
    published(metrics, vllm(15, 8, "real"))
    assert metrics.labels_of(record_of("real")) == ("vllm", "real")
    assert metrics.labels_of(refused("real")) == (UNKNOWN, "real")
    assert refused("real").outcome is RequestOutcome.NO_STATS


def test_a_request_without_a_model_is_labelled_unknown(metrics: Metrics) -> None:
    assert metrics.labels_of(record_of(None)) == ("vllm", UNKNOWN)
    [result] = outcomes_of([native("r", body=chunk(), sequence=0)])
    nameless = msgspec.structs.replace(
        result, response=msgspec.structs.replace(result.response, facts=None)
    )
    assert metrics.labels_of(nameless) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(
    "model", ['a"b\\c{}', "line\nfeed\r\x00\x85\u2028", "half \ud800", "x" * 10_000, "", "模型 é"]
)
def test_a_model_of_any_text_breaks_no_format(metrics: Metrics, model: str) -> None:
    result = record_of(model)
    commit(metrics, counts_of(metrics, [result]))
    [shown] = exposed_models(metrics)
    assert len(shown) <= 128
    assert shown.isprintable()
    assert (
        shown[:5]
        == "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in model)[:5]
    )
    assert list(parse_text(generate_latest(metrics.registry).decode()))


# Statistics of librdkafka


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("queue_messages", {}, 7),
        ("sent_bytes_total", {}, 11),
        ("received_bytes_total", {}, 22),
        ("broker_rtt_seconds", {"broker": "1"}, 0.0025),
        ("broker_throttle_seconds", {"broker": "1"}, 0.04),
        ("broker_errors_total", {"broker": "1", "kind": "send"}, 1),
        ("broker_errors_total", {"broker": "1", "kind": "receive"}, 2),
        ("broker_errors_total", {"broker": "1", "kind": "timeout"}, 3),
    ],
)
def test_statistics_come_in_base_units(
    metrics: Metrics, name: str, labels: dict[str, str], expected: float
) -> None:
    metrics.add_statistics(STATISTICS)
    assert value(metrics, f"acceptance_librdkafka_{name}", client="consumer", **labels) == expected


def traffic(*brokers: tuple[int, int]) -> ClientStatistics:
    """Return statistics of brokers: id, and bytes sent to it."""
    return ClientStatistics(
        "consumer",
        brokers={
            f"b{n}:9092/{n}": BrokerStatistics(nodeid=n, source="learned", txbytes=sent)
            for n, sent in brokers
        },
    )


def test_bytes_never_decrease_and_count_once_while_brokers_leave_and_return(
    metrics: Metrics,
) -> None:
    """Prometheus would read a sum that falls as a restart, and count the rest again."""
    seen = []
    for brokers in [(1, 70), (2, 30)], [(1, 75)], [(1, 75), (2, 5)]:
        metrics.add_statistics(traffic(*brokers))
        seen.append(value(metrics, "acceptance_librdkafka_sent_bytes_total", client="consumer"))
    metrics.count_lost_clients()
    metrics.add_statistics(traffic((1, 4)))
    seen.append(value(metrics, "acceptance_librdkafka_sent_bytes_total", client="consumer"))
    assert seen == [100, 105, 110, 114]


def test_the_queue_of_the_producer_is_what_is_not_acknowledged(metrics: Metrics) -> None:
    metrics.add_statistics(msgspec.structs.replace(STATISTICS, type="producer"))
    assert value(metrics, "acceptance_librdkafka_queue_messages", client="producer") == 3
