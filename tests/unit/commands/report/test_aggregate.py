"""What is summed, by what, over which range; and that nothing grows without bound."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.commands.report import aggregate as module
from consumer.commands.report.aggregate import (
    FEW_REQUESTS,
    HISTOGRAM_END,
    MAX_BUCKETS,
    MAX_DRAFTERS,
    MAX_SERIES,
    MAX_SLOW_REQUESTS,
    aggregate,
)
from consumer.telemetry.outcome_counts import AcceptanceSums, merged
from schemas import PublishedRecord
from tests.unit.commands.report.made import HOUR, NOON, message, record, report, timed


def counts(steps: int | None, accepted: int | None, drafted: int | None) -> dict[str, Any]:
    return {
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
    }


SKEWED = [
    record(0, **counts(1_000, 100, 3_000)),
    *(record(n, **counts(1, 3, 3)) for n in range(1, 100)),
]
"""A long request without accepted drafts, and many short ones whose drafts are all accepted."""


def total(records: Sequence[PublishedRecord]) -> AcceptanceSums:
    return merged(one.total for one in report(records).series)


class TestRatios:
    def test_they_are_of_sums_on_skewed_traffic_not_means_of_ratios(self) -> None:
        found = total(SKEWED)

        assert found.mean_acceptance_length == 1 + 397 / 1_099
        assert found.draft_acceptance_rate == 397 / 3_297
        means = [1 + one.num_accepted_draft_tokens / one.num_spec_steps for one in SKEWED]  # type: ignore[operator]
        assert sum(means) / len(means) > 3.9  # What a mean of means would have claimed.

    def test_each_bucket_is_a_ratio_of_its_own_sums(self) -> None:
        later = [record(100, NOON + HOUR, **counts(10, 0, 30))]
        [series] = aggregate(map(message, SKEWED + later), NOON, NOON + 24 * HOUR).series

        assert series.over_time[NOON].mean_acceptance_length == 1 + 397 / 1_099
        assert series.over_time[NOON + HOUR].mean_acceptance_length == 1.0
        assert series.total.mean_acceptance_length == 1 + 397 / 1_109

    def test_buckets_that_are_widened_are_summed(self) -> None:
        """The first records come in buckets of a second; the last one makes them wider."""
        spread = [
            msgspec.structs.replace(one, completed_at=f"2026-01-01T12:00:{n % 50:02d}.000Z")
            for n, one in enumerate(SKEWED)
        ]
        [series] = report([*spread, record(100, NOON + 24 * HOUR)]).series

        assert series.over_time[NOON].mean_acceptance_length == 1 + 397 / 1_099
        assert series.over_time[NOON].draft_acceptance_rate == 397 / 3_297

    def test_an_instance_and_the_rest_of_the_models_are_ratios_of_sums_too(self) -> None:
        busy = [record(n, model=f"busy-{n % 7}") for n in range(100, 1_500)]
        rare = [
            msgspec.structs.replace(one, model=f"rare-{n % 50}") for n, one in enumerate(SKEWED)
        ]
        found = report(busy + rare)

        assert found.series[-1].rest
        assert found.series[-1].total.mean_acceptance_length == 1 + 397 / 1_099
        [drafter] = report(SKEWED).drafters
        assert drafter.sums.mean_acceptance_length == 1 + 397 / 1_099

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.integers(0, 50),
                st.integers(0, 200),
                st.integers(0, 500) | st.none(),
                st.booleans(),
                st.sampled_from(["a", "b", "c"]),
                st.integers(0, 100 * HOUR),
            ).filter(lambda row: row[0] or not (row[1] or row[2]))  # No step, no draft.
        )
    )
    def test_they_are_exact_however_the_requests_are_divided(
        self, rows: list[tuple[int, int, int | None, bool, str, int]]
    ) -> None:
        records = [
            record(
                n,
                NOON + at,
                model=model,
                draft_tokens_measured=measured,
                **counts(steps, accepted, None if drafted is None else drafted + accepted),
            )
            for n, (steps, accepted, drafted, measured, model, at) in enumerate(rows)
        ]
        found = total(records)

        assert found.verify_steps == sum(row[0] for row in rows)
        assert found.accepted == sum(row[1] for row in rows)
        assert found.mean_acceptance_length == (
            1 + found.accepted / found.verify_steps if found.verify_steps else None
        )
        of_rate = [
            (one.num_accepted_draft_tokens or 0, one.num_draft_tokens)
            for one in records
            if one.draft_tokens_measured and one.num_draft_tokens is not None
        ]
        drafted = sum(of for _, of in of_rate)
        assert found.draft_acceptance_rate == (
            sum(a for a, _ in of_rate) / drafted if drafted else None
        )


class TestWhatIsLeftOut:
    def test_drafts_that_are_nominal_or_unknown_are_in_no_rate(self) -> None:
        found = total(
            [
                record(0, **counts(20, 30, 60)),
                record(1, draft_tokens_measured=False, **counts(20, 20, 200)),
                record(2, **counts(20, 10, None)),
            ]
        )

        assert (found.with_drafts, found.draft_acceptance_rate) == (1, 0.5)
        assert (found.with_steps, found.mean_acceptance_length) == (3, 2.0)

    @pytest.mark.parametrize("hidden", [counts(20, None, 60), counts(None, 30, None)])
    def test_a_request_without_one_of_its_counts_is_in_no_length(
        self, hidden: dict[str, Any]
    ) -> None:
        found = total([record(0), record(1, **hidden)])

        assert (found.requests, found.with_steps, found.mean_acceptance_length) == (2, 1, 2.5)

    def test_without_steps_or_drafts_there_is_no_ratio(self) -> None:
        found = total([record(0, **counts(0, 0, 0))])

        assert (found.mean_acceptance_length, found.draft_acceptance_rate) == (None, None)

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"{",
            b"[]",
            b"\xff",
            b'{"engine": "vllm"}',
            b'{"of": ' + b"[" * 9_999,
            msgspec.json.encode(record(1, schema_version=2)),
            msgspec.json.encode(record(1, **counts(20, 61, 60))),
            msgspec.json.encode(record(1, model="m")).replace(b'"m"', rb'"\ud800"'),
        ],
        ids=[
            "empty",
            "cut",
            "list",
            "bytes",
            "fields",
            "depth",
            "version",
            "counts",
            "half a character",
        ],
    )
    def test_what_is_no_record_is_counted_and_stops_nothing(self, value: bytes) -> None:
        found = aggregate([message(value), message(record(0))])

        assert (found.unreadable, found.records) == (1, 1)

    def test_a_repeat_is_counted_once(self) -> None:
        found = report([record(0), record(1), record(0)])

        assert (found.records, found.repeats) == (2, 1)

    def test_ids_are_remembered_for_a_while_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_MAX_REMEMBERED", 2)

        assert report(map(record, [0, 1, 2, 0])).repeats == 1
        assert report(map(record, [0, 1, 2, 3, 4, 0])).repeats == 0


class TestRange:
    def test_the_begin_is_in_it_and_the_end_is_not(self) -> None:
        found = report(
            [record(n, NOON + n) for n in range(10)], since_ms=NOON + 3, until_ms=NOON + 6
        )

        assert found.records == 3

    def test_a_message_s_own_time_counts_before_that_of_its_record(self) -> None:
        found = aggregate([timed(record(0, NOON), NOON + 5 * HOUR)], NOON + HOUR, NOON + 6 * HOUR)

        assert found.records == 1
        assert set(found.series[0].over_time) == {NOON + 5 * HOUR}

    def test_it_is_shown_as_asked_for_though_records_come_from_a_part_of_it(self) -> None:
        found = report([record(0, NOON)], since_ms=NOON - 12 * HOUR, until_ms=NOON + 12 * HOUR)

        assert (found.first_ms, found.last_ms) == (NOON - 12 * HOUR, NOON + 12 * HOUR - 1)
        assert found.bucket_ms == HOUR // 4

    def test_without_bounds_it_is_that_of_the_records(self) -> None:
        found = report([record(0, NOON + 7), record(1, NOON), record(2, NOON + 3)])

        assert (found.first_ms, found.last_ms) == (NOON, NOON + 7)

    def test_a_record_without_time_is_in_the_sums_but_in_no_bucket(self) -> None:
        found = report([record(0, None), record(1)])

        assert (found.records, found.untimed) == (2, 1)
        assert found.series[0].total.requests == 2
        assert {start for start in found.series[0].over_time if start is not None} == {NOON}

    def test_a_record_without_time_is_in_no_range(self) -> None:
        assert report([record(0, None)], since_ms=NOON).records == 0

    @settings(deadline=None)
    @given(st.lists(st.integers(0, 253_402_300_799_999), min_size=1, max_size=50))
    def test_buckets_are_few_aligned_and_hold_everything(self, times: list[int]) -> None:
        found = report([record(n, at) for n, at in enumerate(times)])
        [series] = found.series

        starts = [start for start in series.over_time if start is not None]
        assert max(starts) - min(starts) < MAX_BUCKETS * found.bucket_ms
        assert all(start % found.bucket_ms == 0 for start in starts)
        assert {at - at % found.bucket_ms for at in times} == set(starts)
        assert series.total.requests == len(times)

    def test_a_time_without_requests_has_no_bucket(self) -> None:
        [series] = report([record(0, NOON), record(1, NOON + 3000)]).series

        assert set(series.over_time) == {NOON, NOON + 3000}


class TestBounds:
    def test_the_busiest_models_have_a_series_and_the_others_share_one(self) -> None:
        records = [record(n, model=f"m{min(n % 40, n % 7)}") for n in range(4_000)]
        records += [record(n, model=f"x{n}") for n in range(4_000, 4_100)]
        found = report(records)

        assert len(found.series) == MAX_SERIES
        assert [one.rest for one in found.series] == [False] * 7 + [True]
        assert sum(one.total.requests for one in found.series) == 4_100
        busy = [one.total.requests for one in found.series[:-1]]
        assert busy == sorted(busy, reverse=True)

    def test_models_without_end_are_not_kept_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_MAX_TRACKED", 3)
        monkeypatch.setattr(module, "_MAX_TRACKED_DRAFTERS", 4)
        found = report([record(n, model=f"m{n}") for n in range(50)])

        assert [one.model for one in found.series] == ["m0", "m1", "m2", None]
        assert found.series[-1].total.requests == 47
        assert len(found.drafters) == 4

    def test_one_model_on_two_engines_is_two_series(self) -> None:
        found = report([record(0, engine="vllm"), record(1, engine="sglang")])

        assert {one.engine for one in found.series} == {"vllm", "sglang"}

    def test_many_accepted_drafts_share_the_last_bar(self) -> None:
        most = 10**12
        given = record(
            acceptance_histogram={0: 1, 15: 1, 16: 2, most: 1}, **counts(5, 47 + most, None)
        )
        [series] = report([given]).series

        assert series.histogram == {0: 1, 15: 1, HISTOGRAM_END: 3}


class TestSlowestFirst:
    def test_drafters_are_in_order_of_their_length(self) -> None:
        records = [
            record(n, instance=f"i{n % 3}", **counts(10, 5 * (n % 3), 30)) for n in range(60)
        ]

        assert [one.instance for one in report(records).drafters] == ["i0", "i1", "i2"]

    def test_few_requests_come_after_the_others_and_unknown_lengths_last(self) -> None:
        enough = [record(n, instance="enough") for n in range(FEW_REQUESTS)]
        few = [record(100, instance="few", **counts(10, 0, 30))]
        unknown = [record(n, instance="unknown", **counts(10, None, 30)) for n in range(200, 250)]
        found = report(unknown + few + enough).drafters

        assert [one.instance for one in found] == ["enough", "few", "unknown"]

    def test_more_drafters_than_are_shown_are_counted(self) -> None:
        found = report([record(n, instance=f"i{n}") for n in range(MAX_DRAFTERS + 7)])

        assert (len(found.drafters), found.drafters_left_out) == (MAX_DRAFTERS, 7)

    def test_the_slowest_requests_are_found_wherever_they_come(self) -> None:
        accepted = [(37 * n) % 101 for n in range(101)]
        found = report([record(n, **counts(100, a, 300)) for n, a in enumerate(accepted)])

        lengths = [one.length for one in found.slow_requests]
        assert lengths == [1 + a / 100 for a in range(MAX_SLOW_REQUESTS)]
        assert found.slow_requests[0].record.record_id == record(0).record_id

    def test_of_equally_slow_ones_the_longest_come_first(self) -> None:
        found = report([record(n, **counts(10 + n, 0, 300)) for n in range(30)])

        assert [one.steps for one in found.slow_requests] == list(range(39, 19, -1))

    def test_a_request_of_few_steps_is_not_among_them(self) -> None:
        assert report([record(0, **counts(9, 0, 27))]).slow_requests == []


class TestAlongTheStream:
    def test_steps_are_summed_by_their_place(self) -> None:
        arrays = [[3, 2, 1, 0, 0, 0], [1, 2]]
        records = [
            record(n, per_step_accepted=array, **counts(len(array), sum(array), None))
            for n, array in enumerate(arrays)
        ]
        [series] = report(records).series

        expected = [(2, 4), (2, 4), (1, 1), (1, 0), (1, 0), (1, 0)]
        found = [(at.first, at.last, at.steps, at.accepted) for at in series.step_ranges]
        assert found == [(n, n, *sums) for n, sums in enumerate(expected, 1)]

    def test_a_long_stream_is_summed_in_widening_ranges(self) -> None:
        array = [1] * 3_000
        [series] = report([record(0, per_step_accepted=array, **counts(3_000, 3_000, None))]).series

        assert len(series.step_ranges) < 50
        assert sum(at.steps for at in series.step_ranges) == 3_000
        follows = [at.first for at in series.step_ranges[1:]]
        assert follows == [at.last + 1 for at in series.step_ranges[:-1]]
