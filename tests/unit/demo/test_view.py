import io
import json
from collections import Counter

import pytest
from msgspec.structs import asdict, replace
from rich.console import Console

from consumer.demo.fleet import DECK, Expected, Fleet, FleetMessage, Label
from consumer.demo.view import (
    Acceptance,
    LiveView,
    PlainView,
    Tally,
    Truth,
    bar,
    console_for,
    say,
    show_introduction,
    show_samples,
    show_summary,
    view_for,
)
from schemas import DeadLetter, MalformedReason, PublishedRecord, RequestOutcome


class Terminal(io.StringIO):
    """A terminal as far as rich can tell."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def messages() -> list[FleetMessage]:
    fleet = Fleet(seed=1, rate=40, start=1_767_225_600_000)
    messages = []
    for message in fleet:
        messages.append(message)
        if len(messages) >= 5 * DECK:
            fleet.close()
    return messages


def settled(messages: list[FleetMessage]) -> list[Expected]:
    return [message.settles for message in messages if message.settles is not None]


def published(messages: list[FleetMessage]) -> list[PublishedRecord]:
    return [record_of(expected) for expected in settled(messages) if expected.record is not None]


def record_of(expected: Expected) -> PublishedRecord:
    assert expected.record is not None
    return PublishedRecord(
        **asdict(expected.record),
        fleet="demo",
        request_id=expected.request_id,
        response_id=expected.response_id,
        attempt=0,
        model=expected.model,
        endpoint=None,
        instance=None,
        labels={},
        prompt_tokens=expected.prompt_tokens,
        finish_reason="stop",
        streamed=expected.streamed,
        stream_complete=expected.stream_complete,
        incomplete_reason=None,
        started_at=None,
        completed_at=None,
        source_topic="serving-responses",
        source_partition=0,
        source_first_offset=0,
        source_last_offset=0,
        source_index=0,
        record_id="demo/serving-responses/0/0/0/0",
    )


def letter(reason: str) -> DeadLetter:
    return DeadLetter(
        kind="message",
        outcome="bad_payload",
        reason=reason,
        detail=None,
        fleet="demo",
        source_topic="serving-responses",
        source_partition=0,
        source_first_offset=0,
        source_last_offset=0,
        source_index=None,
        source_timestamp=None,
        request_id=None,
        response_id=None,
        model=None,
        record_id="demo/serving-responses/0/0/-/0",
        size=0,
        digest=None,
        truncated=False,
        key_base64=None,
        value_base64=None,
        headers=None,
        stats=None,
    )


def filled(messages: list[FleetMessage]) -> tuple[Tally, Truth]:
    """What a flawless service leaves behind."""
    tally, truth = Tally(), Truth()
    for message in messages:
        tally.sent(message)
        truth.sent(message)
    for record in published(messages):
        tally.published(record)
        truth.published(record)
    for reason in truth.dead_letters.elements():
        tally.dead_letter(letter(reason))
    return tally, truth


def control_codes(text: str) -> list[str]:
    return [char for char in text if char != "\n" and not char.isprintable()]


# --- Truth


def test_a_flawless_service_is_found_flawless(messages: list[FleetMessage]) -> None:
    _, truth = filled(messages)

    assert truth.matched == truth.to_publish() == len(published(messages))
    assert (truth.wrong, truth.missing(), truth.waiting(), truth.unknown()) == (0, 0, 0, 0)


def test_records_may_come_before_the_fleet_is_known_to_have_finished(
    messages: list[FleetMessage],
) -> None:
    truth = Truth()
    for record in published(messages):
        truth.published(record)
    early = truth.unknown()
    for message in messages:
        truth.sent(message)

    assert early == truth.matched == truth.to_publish()
    assert (truth.wrong, truth.unknown()) == (0, 0)


def test_a_wrong_number_is_found(messages: list[FleetMessage]) -> None:
    truth = Truth()
    for message in messages:
        truth.sent(message)
    record = published(messages)[0]
    steps = record.num_spec_steps
    assert steps is not None
    truth.published(replace(record, num_spec_steps=steps + 1))

    assert (truth.matched, truth.wrong) == (0, 1)
    assert f"num_spec_steps is {steps + 1}, expected {steps}" in truth.complaints[0]


def test_a_mean_that_differs_by_rounding_is_not_wrong(messages: list[FleetMessage]) -> None:
    truth = Truth()
    for message in messages:
        truth.sent(message)
    record = published(messages)[0]
    assert record.mean_acceptance_length is not None
    rounded = record.mean_acceptance_length * (1 + 1e-15)
    truth.published(replace(record, mean_acceptance_length=rounded))

    assert (truth.matched, truth.wrong) == (1, 0)


@pytest.mark.parametrize("early", [False, True])
def test_a_record_that_comes_twice_is_found(messages: list[FleetMessage], *, early: bool) -> None:
    truth = Truth()
    record = published(messages)[0]
    if early:
        truth.published(record)
        truth.published(record)
    for message in messages:
        truth.sent(message)
    if not early:
        truth.published(record)
        truth.published(record)

    assert (truth.matched, truth.wrong) == (1, 1)
    assert "twice" in truth.complaints[0]


@pytest.mark.parametrize("early", [False, True])
def test_a_record_of_a_request_without_numbers_is_found(
    messages: list[FleetMessage], *, early: bool
) -> None:
    truth = Truth()
    failed = next(e for e in settled(messages) if e.outcome is RequestOutcome.FAILED_RESPONSE)
    invented = replace(published(messages)[0], request_id=failed.request_id)
    if early:
        truth.published(invented)
    for message in messages:
        truth.sent(message)
    if not early:
        truth.published(invented)

    assert (truth.matched, truth.wrong) == (0, 1)


def test_missing_records_and_those_that_wait_for_a_timeout_are_told_apart(
    messages: list[FleetMessage],
) -> None:
    truth = Truth()
    for message in messages:
        truth.sent(message)
    late = sum(e.after_timeout for e in settled(messages) if e.record is not None)

    assert late > 0
    assert truth.waiting() == late
    assert truth.missing() == truth.to_publish() == len(published(messages)) - late


def test_contradictions_are_expected_as_dead_letters(messages: list[FleetMessage]) -> None:
    truth = Truth()
    for message in messages:
        truth.sent(message)

    bad = sum(message.label is Label.BAD for message in messages)
    contradictions = truth.dead_letters[MalformedReason.HISTOGRAM_STEPS]
    assert contradictions > 0
    assert truth.dead_letters.total() == bad + contradictions


# --- Tally


def test_ratios_are_ratios_of_sums(messages: list[FleetMessage]) -> None:
    """A mean of the requests' ratios would give a short request the weight of a long one."""
    record = published(messages)[0]
    sums = Acceptance()
    for steps, accepted, drafted in ((1, 3, 3), (99, 99, 297)):
        sums.add(
            replace(
                record,
                num_spec_steps=steps,
                num_accepted_draft_tokens=accepted,
                num_draft_tokens=drafted,
                draft_tokens_measured=True,
                acceptance_histogram={1: steps},
            )
        )

    assert sums.rate == pytest.approx(102 / 300)
    assert sums.mean == pytest.approx(1 + 102 / 100)
    assert sums.histogram == Counter({1: 100})


def test_nominal_drafts_are_in_no_rate(messages: list[FleetMessage]) -> None:
    record = replace(
        published(messages)[0],
        num_accepted_draft_tokens=20,
        num_draft_tokens=30,
        draft_tokens_measured=False,
    )
    sums = Acceptance()
    sums.add(record)

    assert sums.rate is None


def test_unknown_numbers_stay_out_of_the_ratio_they_belong_to(
    messages: list[FleetMessage],
) -> None:
    record = replace(
        published(messages)[0],
        num_spec_steps=10,
        num_accepted_draft_tokens=20,
        num_draft_tokens=None,
        acceptance_histogram=None,
    )
    sums = Acceptance()
    sums.add(record)

    assert sums.requests == 1
    assert sums.rate is None
    assert sums.mean == pytest.approx(3.0)


def test_totals_are_the_sums_of_all_models(messages: list[FleetMessage]) -> None:
    tally, _ = filled(messages)
    total = tally.total()

    assert total.requests == len(published(messages))
    assert total.histogram.total() == total.steps
    assert len(tally.records) > len(tally.samples) == 3


def test_bar_shows_the_shape_of_a_histogram() -> None:
    assert bar(Counter({0: 8, 2: 6, 3: 1})) == "█▁▇▂"
    assert bar(Counter()) == ""
    assert bar(Counter({0: 8, 2: 6, 3: 1}), ascii_only=True).isascii()


# --- The beginning


@pytest.mark.parametrize(
    ("duration", "runs"),
    [(None, "Runs until Ctrl-C"), (8.0, "Runs for 8 s or until Ctrl-C")],
)
def test_introduction_says_what_runs_and_for_how_long(duration: float | None, runs: str) -> None:
    output = io.StringIO()
    show_introduction(
        console_for(output), topic="responses", outputs=("records", "letters"), duration=duration
    )

    said = " ".join(output.getvalue().split())
    assert "logs to responses on a mock Kafka broker" in said
    assert "publishes to records and letters" in said
    assert runs in said
    assert max(map(len, output.getvalue().splitlines())) <= 80


# --- Plain output


def test_plain_output_has_no_control_codes_whatever_the_environment_says(
    messages: list[FleetMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    output = io.StringIO()
    console = console_for(output)
    tally, truth = filled(messages)
    tally.unreadable = 1

    with view_for(console, tally, truth) as view:
        for second in range(10):
            view.update(float(second))
    show_samples(console, tally)
    show_summary(console, tally, truth)

    assert output.getvalue()
    assert control_codes(output.getvalue()) == []


def test_plain_view_prints_a_line_every_two_seconds(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    tally, truth = Tally(), Truth()
    view = view_for(console_for(output), tally, truth)
    assert isinstance(view, PlainView)

    view.update(100.0)
    for message in messages:
        tally.sent(message)
    for record in published(messages):
        tally.published(record)
    for tenth in range(1, 61):
        view.update(100.0 + tenth / 10)

    lines = output.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["2.0", "4.0", "6.0"]
    assert f"in {len(messages)} messages ({len(messages) / 2:.0f}/s)" in lines[0]
    assert f"out {len(published(messages))} records" in lines[0]
    assert "(0/s)" in lines[2]  # By then the window has left the burst behind.


def test_plain_lines_are_never_folded() -> None:
    output = io.StringIO()
    say(console_for(output), "word " * 100)

    assert output.getvalue().count("\n") == 1


def test_a_line_from_elsewhere_cannot_drive_the_terminal() -> None:
    output = io.StringIO()
    say(console_for(output), "a \x1b[31mred\x1b[0m [bold]line[/bold]\x07 :smile:")

    assert output.getvalue() == "a ?[31mred?[0m [bold]line[/bold]? :smile:\n"


def test_output_that_cannot_say_everything_says_what_it_can(messages: list[FleetMessage]) -> None:
    raw = io.BytesIO()
    console = console_for(io.TextIOWrapper(raw, encoding="ascii"))
    tally, truth = filled(messages)

    show_samples(console, tally)
    show_summary(console, tally, truth)

    assert "Every record and every dead letter is as expected." in raw.getvalue().decode("ascii")


def test_samples_are_json_one_of_every_engine(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    tally, _ = filled(messages)
    show_samples(console_for(output), tally)

    samples = output.getvalue().split("A record of ")[1:]
    bodies = [json.loads(sample.partition(":\n")[2]) for sample in samples]
    assert [body["engine"] for body in bodies] == ["sglang", "tensorrt_llm", "vllm"]
    assert all(body.keys() == set(PublishedRecord.__struct_fields__) for body in bodies)


def test_summary_says_what_was_expected_and_what_came(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    tally, truth = filled(messages)
    show_summary(console_for(output), tally, truth)

    rows = [line.split() for line in output.getvalue().splitlines()]
    count = str(len(published(messages)))
    letters = str(truth.dead_letters["invalid_json"])
    assert ["records", "out", count, count] in rows
    assert ["dead", "letter:", "invalid_json", letters, letters] in rows
    assert "Every record and every dead letter is as expected." in output.getvalue()


def test_summary_expects_no_record_before_its_idle_timeout(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    tally, truth = Tally(), Truth()
    for message in messages:
        truth.sent(message)
    due = [
        record_of(expected)
        for expected in settled(messages)
        if expected.record is not None and not expected.after_timeout
    ]
    for record in due:
        tally.published(record)
        truth.published(record)
    tally.dead_letters = truth.dead_letters
    show_summary(console_for(output), tally, truth)

    rows = [" ".join(line.split()) for line in output.getvalue().splitlines()]
    later = len(published(messages)) - len(due)
    assert later > 0
    assert f"records out {len(due)} {len(due)}" in rows
    assert f"not due yet: chunk lost, idle timeout 5s {later}" in rows
    assert output.getvalue().endswith("Every record and every dead letter is as expected.\n")


def test_a_table_says_what_its_bars_are_and_whose_drafts_are_not_counted(
    messages: list[FleetMessage],
) -> None:
    output = io.StringIO()
    show_summary(console_for(output), *filled(messages))

    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    bars = lines.index("Bars: verify steps by drafts accepted in them, 0, 1, 2, ... from the left.")
    assert lines[bars + 1 : bars + 3] == [
        "sglang: drafts nominal, not counted (draft_tokens_measured false), so no rate.",
        "",
    ]


def test_a_table_without_nominal_drafts_does_not_speak_of_them(
    messages: list[FleetMessage],
) -> None:
    output = io.StringIO()
    tally = Tally()
    for record in published(messages):
        if record.draft_tokens_measured:
            tally.published(record)
    show_summary(console_for(output), tally, Truth())

    assert "Bars: " in output.getvalue()
    assert "nominal" not in output.getvalue()


def test_summary_is_not_wider_than_80_columns(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    show_summary(console_for(output), *filled(messages))

    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("no_stats (stream_without_usage_chunk)" in line for line in lines), "not folded"


def test_summary_says_what_is_wrong(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    tally, truth = filled(messages)
    truth.published(published(messages)[0])
    show_summary(console_for(output), tally, truth)

    assert "Not as expected: 1\n" in output.getvalue()
    assert truth.complaints[0] in output.getvalue()
    assert "Every record and every dead letter is as expected." not in output.getvalue()


def test_summary_says_what_is_missing() -> None:
    output = io.StringIO()
    fleet = Fleet(seed=1, rate=40, start=0)
    truth = Truth()
    while not truth.missing():
        truth.sent(next(fleet))
    show_summary(console_for(output), Tally(), truth)

    assert "Not published before the demo ended: 1\n" in output.getvalue()


def test_summary_says_that_dead_letters_differ(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    tally, truth = filled(messages)
    tally.dead_letter(letter("too_deep"))
    show_summary(console_for(output), tally, truth)

    assert output.getvalue().endswith("Dead letters are not as expected.\n")


# --- Live output


def test_a_terminal_gets_tables_that_are_drawn_again(
    messages: list[FleetMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    output = Terminal()
    tally, truth = filled(messages)
    view = view_for(console_for(output), tally, truth)
    assert isinstance(view, LiveView)

    with view:
        for tenth in range(20):
            view.update(tenth / 10)

    assert "Llama-3.3-70B-Instruct" in output.getvalue()
    assert output.getvalue().count("\x1b[?25l") == output.getvalue().count("\x1b[?25h") == 1


def test_a_terminal_that_cannot_redraw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    assert isinstance(view_for(console_for(Terminal()), Tally(), Truth()), PlainView)


def test_live_tables_fit_a_small_terminal(messages: list[FleetMessage]) -> None:
    output = io.StringIO()
    tally, truth = filled(messages)
    console = Console(file=output, force_terminal=True, width=80, height=24, color_system=None)
    view = LiveView(console, tally, truth)
    view._pace.update(0.0, tally.messages)
    console.print(view._tables(1.0))

    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "Mistral-Small-24B" in "\n".join(lines[:15])
    assert "█" in "\n".join(lines[:15])
