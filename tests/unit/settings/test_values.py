"""How values are written, and which values are refused."""

from pathlib import Path

import pytest

from consumer.settings.fields import fields
from consumer.settings.values import parse_moment
from tests.unit.settings.loading import given, refused

NOW = 1_767_225_600_000


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        *(
            ("commit_interval", written, seconds)
            for written, seconds in (
                ("250ms", 0.25),
                ("0.5s", 0.5),
                ("1 s", 1.0),
                ("1m", 60.0),
                ("45", 45.0),
                (2, 2.0),
                (0.01, 0.01),
            )
        ),
        ("idle_timeout", "1h", 3600.0),
        *(
            ("max_segment_bytes", written, size)
            for written, size in (
                ("64KiB", 65_536),
                ("1MiB", 1 << 20),
                ("1MB", 1_000_000),
                ("1mb", 1_000_000),
                ("2000", 2_000),
                ("2000 B", 2_000),
                (5_000, 5_000),
            )
        ),
        *(
            ("start", written, start)
            for written, start in (
                ("earliest", "earliest"),
                ("latest", "latest"),
                (str(NOW), NOW),
                (NOW, NOW),
                ("2026-01-01T00:00:00Z", NOW),
                ("2026-01-01T01:00:00.250+01:00", NOW + 250),
            )
        ),
        *(
            ("topics", written, ("a", "b"))
            for written in ("a,b", " a , b,", ["a", "b"], ("a", "b"), ("a,b",))
        ),
        *(("paths", (f"body={path}",), {"body": path}) for path in ("a", "a.b", "a b.c-d")),
        # As librdkafka reads them.
        *(
            ("bootstrap_servers", servers, servers)
            for servers in (
                "kafka",
                "kafka:9092",
                "kafka-0.kafka.svc:9092, kafka_1:65535,",
                "10.0.0.1:9092",
                "[::1]:9092",
                "::1",
                "SASL_SSL://kafka:9093",
                "plaintext://kafka:9092/",
            )
        ),
        *(
            ("http_address", address, address)
            for address in ("off", *(f"[::]:{port}" for port in (0, 80, 8080, 59_999, 65_535)))
        ),
        ("topics", r"^fleet-[[:digit:]]{1}\.responses$", (r"^fleet-[[:digit:]]{1}\.responses$",)),
    ],
)
def test_a_value_may_be_written_like_this(name: str, written: object, value: object) -> None:
    found = getattr(given({name: written}), name)
    assert (type(found), found) == (type(value), value)


def test_a_start_may_be_a_date_of_toml(tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text("start = 2026-01-01T00:00:00Z")
    assert given({}, {}, toml).start == NOW


@pytest.mark.parametrize(
    ("skip", "topics", "places"),
    [
        ("a.b_c-d:0:17, t:12:0", "a.b_c-d,t", ("a.b_c-d:0:17", "t:12:0")),
        ("chat-1:0:17", "^chat-.*", ("chat-1:0:17",)),
    ],
)
def test_messages_to_skip_are_of_topics_that_are_read(
    skip: str, topics: str, places: tuple[str, ...]
) -> None:
    assert given({"skip": skip, "topics": topics}).skip == places


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("latest", "latest"),
        ("2026-01-01T00:00:00Z", NOW),
        (str(NOW), NOW),
        ("90s", 1_767_225_510_000),
        ("1.5h", 1_767_220_200_000),
    ],
)
def test_a_moment_of_a_command_may_be_an_age(written: str, found: object) -> None:
    assert parse_moment(written, NOW) == found


@pytest.mark.parametrize("written", ["", "5", "0.5", "yesterday", "2026-01-01", "2w"])
def test_a_moment_of_another_form_is_refused(written: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller names the expected form.
        parse_moment(written, NOW)


@pytest.mark.parametrize("name", fields())
def test_defaults_and_examples_are_read_as_they_are_printed(name: str) -> None:
    field = fields()[name]
    if field.default_text:
        assert getattr(given({name: field.default_text}), name) == field.default
    if field.examples:
        examples = field.examples.removeprefix(", such as ").split(" or a number of ")[0]
        for example in examples.split(", "):
            given({name: example})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit_interval", "5 parsecs"),
        ("commit_interval", "1h"),
        ("commit_interval", "-1s"),
        ("commit_interval", float("nan")),
        ("commit_interval", float("inf")),
        ("commit_interval", True),
        ("max_commit_outputs", "many"),
        ("max_commit_outputs", 0),
        ("max_commit_outputs", True),
        ("max_commit_outputs", 1.5),
        ("max_reread", 9_999),
        ("max_segment_bytes", "1 furlong"),
        ("max_segment_bytes", "1.5MiB"),
        ("max_segment_bytes", "1GiB"),
        ("log_level", "loud"),
        ("dead_letters", ""),
        ("envelope", 5),
        ("group", ""),
        ("fleet", "f" * 250),
        ("start", "yesterday"),
        ("start", "2026-01-01T00:00:00"),
        ("start", 1_767_225_600),
        ("start", 253_402_300_800_000),
        ("label_attributes", "Upper"),
        ("delivery", "at_most_once"),
        ("transactional_id", ""),
        ("transactional_id", "t" * 250),
        ("newer_checkpoints", "delete"),
        *(
            ("skip", place)
            for place in (
                "topic",
                "topic:0",
                "topic:zero:1",
                "topic:0:-1",
                "topic:0:1:2",
                "to/pic:0:1",
                ":0:1",
                "topic:0:1,topic",
                5,
            )
        ),
        ("topics", 5),
        ("topics", [5]),
        ("labels", 5),
        *(("paths", (f"body={path}",)) for path in ("", ".", "a..b", ".a", "a.")),
        # librdkafka would look for these in vain.
        *(
            ("bootstrap_servers", servers)
            for servers in (
                "a:9092;b:9092",
                "a:9092 b:9092",
                "kafka:0",
                "kafka:65536",
                "kafka:",
                "kafka:http",
                "http://kafka:9092",
                "://kafka:9092",
                ",",
                "a:9092,b:x",
            )
        ),
        *(("http_address", f"0.0.0.0:{port}") for port in ("65536", "99999", "-1", "")),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, value: object) -> None:
    problem = refused({name: value})
    entry = ".body" if name == "paths" else ""
    assert problem.startswith(f"{name}{entry} (flag --{name.replace('_', '-')})")
    assert fields()[name].allowed in problem


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ({"skip": ("a:b",)}, "skip (flag --skip) is 'a:b': must be"),
        ({"skip": ("t:0:1", "a:b")}, "skip (flag --skip) is 't:0:1, a:b': must be"),
        ({"labels": ("tier",)}, "labels (flag --labels) is 'tier': must be"),
        ({"labels": ("token",)}, "labels (flag --labels) is [masked]: must be"),
        ({"kafka": ("hunter2",)}, "kafka (flag -X) is [masked]: must be"),
        ({"kafka": ("linger.ms=5", "acks")}, "; entry 2 of 2 is not"),
        ({"bootstrap_servers": "a b"}, "is 'a b': must be host or host:port, separated by commas"),
        # A mistyped topic would let the service crash again.
        ({"skip": "other:0:17"}, "'other:0:17' is not a message of any of the topics"),
    ],
)
def test_a_refusal_shows_what_was_given(flags: dict[str, object], shown: str) -> None:
    problem = refused(flags)
    assert shown in problem
    assert "hunter2" not in problem


def test_a_long_value_is_cut_in_a_refusal() -> None:
    assert len(refused({"log_level": "x" * 10_000})) < 400


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a b", "a/b", "ü", "t\n", "t" * 250, "!responses"]
)
def test_a_name_that_kafka_does_not_accept_is_refused(topic: str) -> None:
    assert refused({"output_topic": topic}).startswith("output_topic (flag --output-topic)")
    if topic.strip() == topic and topic:
        assert "is not a valid topic name" in refused({"topics": topic})


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("^(", "is not a regular expression"),
        ("^[a", "is not a regular expression"),
        ("^a[[:blank:]]", "is not a regular expression"),
        (r"^a\d", "write [0-9]"),
        ("^a(?=b)", "is not a POSIX regular expression"),
        ("^a+?", "is not a POSIX regular expression"),
        ("^acceptance", "would read its own output"),
        ("^.*-letters$", "would read its own output"),
        ("^[[:alpha:]]+-dead", "would read its own output"),
    ],
)
def test_a_pattern_that_librdkafka_rejects_or_that_includes_an_output_is_refused(
    pattern: str, reason: str
) -> None:
    assert reason in refused({"topics": pattern})


@pytest.mark.parametrize(
    "flags",
    [
        {"topics": "acceptance-records"},
        {"topics": "a,acceptance-dead-letters"},
        {"topics": "a,a"},
        {"output_topic": "x", "dead_letter_topic": "x"},
    ],
)
def test_topics_must_all_be_different(flags: dict[str, object]) -> None:
    assert len(refused(flags).splitlines()) == 1
