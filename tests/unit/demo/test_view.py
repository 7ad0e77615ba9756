import io
import json
from itertools import takewhile

import pytest
from rich.console import Console

from consumer.demo.totals import DemoTotals
from consumer.demo.view import (
    ProgressView,
    bar,
    console_for,
    print_line,
    show_introduction,
    show_samples,
    show_summary,
)
from schemas import PublishedRecord
from tests.unit.demo.made import MESSAGES, OUTCOMES, RECORDS, expected_totals

VERDICT = "Every expected record and dead letter arrived, and no other.\n"


class Terminal(io.StringIO):
    """A terminal as far as rich can tell."""

    def isatty(self) -> bool:
        return True


def summary_of(totals: DemoTotals) -> str:
    output = io.StringIO()
    show_summary(console_for(output), totals)
    return output.getvalue()


def rows_of(summary: str) -> list[str]:
    return [" ".join(line.split()) for line in summary.splitlines()]


@pytest.mark.parametrize(
    ("steps", "blocks"),
    [([8, 0, 6, 1, 0], "█▁▇▂"), ([0, 0], "")],
)
def test_bar_shows_the_shape_of_a_histogram(steps: list[int], blocks: str) -> None:
    assert bar(steps) == blocks
    assert bar(steps, ascii_only=True).isascii()


@pytest.mark.parametrize(
    ("duration", "runs"),
    [(None, "Runs until Ctrl-C"), (8.0, "Runs for 8 s or until Ctrl-C")],
)
def test_introduction_says_what_runs_and_for_how_long(duration: float | None, runs: str) -> None:
    output = io.StringIO()
    show_introduction(
        console_for(output), topic="responses", outputs=("records", "letters"), duration=duration
    )

    text = " ".join(output.getvalue().split())
    assert "logs to responses on a mock Kafka broker" in text
    assert "publishes to records and letters" in text
    assert runs in text
    assert max(map(len, output.getvalue().splitlines())) <= 80


# --- Plain output


def test_plain_output_has_no_control_codes_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    output = io.StringIO()
    console, totals = console_for(output), expected_totals()
    totals.unreadable = 1

    with ProgressView(console, totals) as view:
        for second in range(10):
            view.update(float(second))
    show_samples(console, totals)
    show_summary(console, totals)

    assert output.getvalue()
    assert [c for c in output.getvalue() if c != "\n" and not c.isprintable()] == []


def test_plain_view_prints_a_line_every_two_seconds() -> None:
    output, totals = io.StringIO(), DemoTotals()
    view = ProgressView(console_for(output), totals)

    view.update(100.0)
    for message in MESSAGES:
        totals.add_message(message)
    for record in RECORDS:
        totals.add_record(record)
    for tenth in range(1, 61):
        view.update(100.0 + tenth / 10)

    lines = output.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["2.0", "4.0", "6.0"]
    assert f"in {len(MESSAGES)} messages ({len(MESSAGES) / 2:.0f}/s)" in lines[0]
    assert f"out {len(RECORDS)} records" in lines[0]
    assert "(0/s)" in lines[2]  # By then the window has left the burst behind.


def test_plain_lines_are_never_folded() -> None:
    output = io.StringIO()
    print_line(console_for(output), "word " * 100)

    assert output.getvalue().count("\n") == 1


def test_a_line_from_elsewhere_cannot_drive_the_terminal() -> None:
    output = io.StringIO()
    print_line(console_for(output), "a \x1b[31mred\x1b[0m [bold]line[/bold]\x07 :smile:")

    assert output.getvalue() == "a ?[31mred?[0m [bold]line[/bold]? :smile:\n"


def test_output_in_an_encoding_without_blocks_is_complete() -> None:
    raw = io.BytesIO()
    console = console_for(io.TextIOWrapper(raw, encoding="ascii"))

    show_samples(console, expected_totals())
    show_summary(console, expected_totals())

    assert VERDICT in raw.getvalue().decode("ascii")


def test_samples_are_json_one_of_every_engine() -> None:
    output = io.StringIO()
    show_samples(console_for(output), expected_totals())

    samples = output.getvalue().split("A record of ")[1:]
    bodies = [json.loads(sample.partition(":\n")[2]) for sample in samples]
    assert [body["engine"] for body in bodies] == ["llamacpp", "sglang", "tensorrt_llm", "vllm"]
    assert all(body.keys() == set(PublishedRecord.__struct_fields__) for body in bodies)


# --- The summary


def test_summary_names_expected_and_arrived_records_and_letters() -> None:
    totals = expected_totals()
    summary = summary_of(totals)

    letters = totals.expected_dead_letters["invalid_json"]
    assert f"records {len(RECORDS)} {len(RECORDS)}" in rows_of(summary)
    assert f"dead letter: invalid_json {letters} {letters}" in rows_of(summary)
    assert summary.endswith(VERDICT)


def test_summary_expects_no_record_before_its_idle_timeout() -> None:
    totals = DemoTotals()
    for message in MESSAGES:
        totals.add_message(message)
    late = {expected.request_id for expected in OUTCOMES if expected.after_timeout}
    due = [record for record in RECORDS if record.request_id not in late]
    for record in due:
        totals.add_record(record)
    totals.dead_letters = totals.expected_dead_letters
    summary = summary_of(totals)

    assert len(due) < len(RECORDS)
    assert f"records {len(due)} {len(due)}" in rows_of(summary)
    not_due = f"not due yet: chunk lost, idle timeout 5s {len(RECORDS) - len(due)}"
    assert not_due in rows_of(summary)
    assert summary.endswith(VERDICT)


def test_a_table_explains_its_bars_and_nominal_draft_counts() -> None:
    lines = [line.rstrip() for line in summary_of(expected_totals()).splitlines()]
    bars = lines.index("Bars: verify steps by accepted draft tokens: 0, 1, 2, ... from the left.")
    assert lines[bars + 1 : bars + 3] == [
        "sglang: its draft count is nominal (draft_tokens_measured false), so no rate.",
        "",
    ]


def test_a_table_without_nominal_drafts_does_not_mention_them() -> None:
    totals = DemoTotals()
    for record in RECORDS:
        if record.draft_tokens_measured:
            totals.add_record(record)
    summary = summary_of(totals)

    assert "Bars: " in summary
    assert "nominal" not in summary


def test_summary_is_not_wider_than_80_columns_and_complete() -> None:
    lines = summary_of(expected_totals()).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert any("no_stats (stream_without_usage_chunk)" in line for line in lines), "not folded"


def test_summary_says_what_is_wrong() -> None:
    totals = expected_totals()
    totals.add_record(RECORDS[0])
    assert summary_of(totals).endswith("Unexpected or unreadable outputs: 1\n")

    totals = expected_totals()
    totals.dead_letters["too_deep"] += 1
    assert summary_of(totals).endswith("The dead letters are not the expected ones.\n")

    totals = DemoTotals()
    for message in takewhile(lambda _: not totals.missing, MESSAGES):
        totals.add_message(message)
    assert "Missing records: 1\n" in summary_of(totals)


# --- Live output


def test_a_terminal_gets_tables_that_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    output = Terminal()

    with ProgressView(console_for(output), expected_totals()) as view:
        for tenth in range(20):
            view.update(tenth / 10)

    assert "Llama-3.3-70B-Instruct" in output.getvalue()
    assert output.getvalue().count("\x1b[?25l") == output.getvalue().count("\x1b[?25h") == 1


def test_a_terminal_that_cannot_redraw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    output = Terminal()

    with ProgressView(console_for(output), expected_totals()) as view:
        for second in range(3):
            view.update(float(second))

    assert "2.0 s  in " in output.getvalue()
    assert "\x1b" not in output.getvalue()


def test_live_tables_fit_a_small_terminal() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80, height=24, color_system=None)
    view = ProgressView(console, expected_totals())
    view.update(0.0)
    console.print(view.tables(1.0))

    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert f"{len(RECORDS)} expected, {len(RECORDS)} arrived" in lines[0]
    assert "Mistral-Small-24B" in "\n".join(lines[:15])
    assert "█" in "\n".join(lines[:15])
