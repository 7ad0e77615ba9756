"""Where marks, lines and their numbers go."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.commands.report.charts import (
    Axis,
    Column,
    LineChart,
    Value,
    doubling_axis,
    line_chart,
    linear_axis,
    percent_axis,
    time_axis,
)
from consumer.core.times import LAST_MS
from tests.unit.commands.report.made import HOUR, NOON


def drawn(*rows: Sequence[float | None], few: Collection[int] = ()) -> LineChart:
    """Draw rows over columns of width 10 and heights from 0 to 1."""
    columns = [Column(10 * n, 10 * n + 5, 10 * n + 10, f"column {n}") for n in range(len(rows[0]))]
    values = [
        [None if y is None else Value(y, place in few) for place, y in enumerate(row)]
        for row in rows
    ]
    x = Axis(0, 10 * len(columns), [])
    return line_chart(columns, values, [None] * len(rows), x, percent_axis(), str)


class TestAxes:
    @pytest.mark.parametrize(
        ("highest", "marks"),
        [
            (2.3, ["1", "1.5", "2", "2.5"]),
            (4.0, ["1", "2", "3", "4"]),
            (17, ["1", "6", "11", "16", "21"]),
            (1.0, ["1"]),
        ],
    )
    def test_lengths_begin_at_one_and_end_at_a_round_number(
        self, highest: float, marks: list[str]
    ) -> None:
        axis = linear_axis(1.0, highest)

        assert [tick.text for tick in axis.ticks][: len(marks)] == marks
        assert axis.low == 1.0
        assert axis.high >= highest

    @settings(deadline=None)
    @given(st.floats(1, 1e6))
    def test_a_length_is_on_its_axis_whose_marks_are_few(self, highest: float) -> None:
        axis = linear_axis(1.0, highest)

        assert axis.low < axis.high
        assert highest <= axis.high + 1e-9 * highest
        assert 2 <= len(axis.ticks) <= 6
        assert axis.ticks[-1].at == 100

    @settings(deadline=None)
    @given(st.integers(0, LAST_MS - 1), st.integers(1, LAST_MS))
    def test_times_have_few_marks_inside_the_range(self, first: int, span: int) -> None:
        end = min(first + span, LAST_MS)
        axis = time_axis(first, end)

        assert len(axis.ticks) <= 6
        assert all(0 <= tick.at <= 100 for tick in axis.ticks)

    def test_the_date_is_said_where_it_changes(self) -> None:
        axis = time_axis(NOON, NOON + 24 * HOUR)

        assert [(tick.text, tick.below) for tick in axis.ticks] == [
            ("12:00", "01 Jan"),
            ("18:00", ""),
            ("00:00", "02 Jan"),
            ("06:00", ""),
        ]

    def test_days_are_said_by_date_alone(self) -> None:
        axis = time_axis(NOON, NOON + 5 * 24 * HOUR)

        assert [tick.text for tick in axis.ticks] == [f"0{day} Jan" for day in range(2, 7)]

    @pytest.mark.parametrize("highest", [1, 2, 3, 100, 114_688])
    def test_steps_are_marked_by_powers_of_two(self, highest: int) -> None:
        ticks = doubling_axis(highest).ticks

        assert ticks[0].text == "1"
        assert len(ticks) <= 8
        assert all(int(tick.text.replace(",", "")).bit_count() == 1 for tick in ticks)


class TestLines:
    def test_neighbours_are_joined(self) -> None:
        [line] = drawn([0.0, 1.0]).lines

        assert (line.path, line.faint, line.dots) == ("M250 1000L750 0", "", "")

    def test_a_gap_stays_a_gap(self) -> None:
        [line] = drawn([0.5, 0.5, None, 0.5, 0.5]).lines

        assert line.path == "M100 500L300 500M700 500L900 500"

    def test_a_value_without_neighbours_is_a_dot(self) -> None:
        [line] = drawn([None, 0.5, None, 0.5, 0.5]).lines

        assert line.dots == "M300 500h0"

    def test_what_few_requests_say_is_faint(self) -> None:
        [line] = drawn([0.5, 0.5, 0.5, 0.5], few={2}).lines

        assert line.path == "M125 500L375 500"
        assert line.faint == "M375 500L625 500L875 500"

    def test_a_series_without_value_is_missing_and_the_others_keep_their_numbers(self) -> None:
        chart = drawn([None, None], [0.5, 0.5], [None, None], [0.1, 0.2])

        assert [line.number for line in chart.lines] == [2, 4]
        assert chart.missing == [1, 3]
        assert len(chart.overall) == 2

    def test_a_slot_tells_the_value_of_each_line(self) -> None:
        slot = drawn([0.25, 0.5], [0.75, None]).slots[1]

        assert (slot.left, slot.width) == (50, 50)
        assert (slot.title, slot.texts) == ("column 1", ["0.5", "None"])

    @settings(deadline=None)
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
    def test_numbers_at_the_ends_do_not_overlap(self, ends: list[float]) -> None:
        chart = drawn(*([end] for end in ends))

        heights = [height for _, height in chart.tags]
        assert all(after - before > 6 for before, after in pairwise(heights))
        assert all(0 <= height <= 100 for height in heights)
        assert sorted(number for number, _ in chart.tags) == list(range(1, len(ends) + 1))

    @settings(deadline=None)
    @given(st.lists(st.none() | st.floats(-1, 2), min_size=1, max_size=20))
    def test_nothing_is_drawn_outside(self, row: list[float | None]) -> None:
        for line in drawn(row).lines:
            for number in re.findall(r"-?\d+", line.path + line.faint + line.dots):
                assert 0 <= int(number) <= 1000
