import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from consumer.settings.click_options import click_options, settings_from_click_options
from consumer.settings.settings import Settings, SettingsError, effective, fields, load, moment

REQUIRED = {"bootstrap_servers": "kafka:9092", "topics": ("responses",)}


def given(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    return load({**REQUIRED, **(flags or {})}, environ or {}, file)


def refused(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> str:
    with pytest.raises(SettingsError) as caught:
        given(flags, environ, file)
    return str(caught.value)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


class TestWhereSettingsComeFrom:
    def test_defaults_are_those_of_the_struct(self) -> None:
        assert given() == Settings(bootstrap_servers="kafka:9092", topics=("responses",))

    def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(
        self, toml: Path
    ) -> None:
        toml.write_text('group = "file"\nfleet = "file"\ncommit_events = 7')
        environ = {"ACCEPTANCE_GROUP": "environment", "ACCEPTANCE_FLEET": "environment"}
        settings = given({"group": "flag"}, environ, toml)
        assert (settings.group, settings.fleet, settings.commit_events) == (
            "flag",
            "environment",
            7,
        )
        assert settings.commit_interval == 1.0

    def test_a_flag_that_was_not_given_hides_nothing(self) -> None:
        flags = {"group": None, "labels": ()}
        environ = {"ACCEPTANCE_GROUP": "mine", "ACCEPTANCE_LABELS": "a=1"}
        settings = given(flags, environ)
        assert (settings.group, settings.labels) == ("mine", {"a": "1"})

    @pytest.mark.parametrize("name", [name for name in fields() if not name.startswith("kafka")])
    def test_every_setting_has_an_environment_name(self, name: str) -> None:
        field = fields()[name]
        assert field.environment == f"ACCEPTANCE_{name.upper()}"
        examples = {"paths": "body=b", "labels": "a=b", "skip": "responses:0:1"}
        written = field.default_text or examples.get(name, "some-text")
        assert getattr(given({}, {field.environment: written}), name) is not None

    def test_the_usual_name_of_the_brokers_is_honoured_and_ours_wins(self) -> None:
        environ = {"KAFKA_BOOTSTRAP_SERVERS": "theirs:9092"}
        assert load({"topics": "t"}, environ, None).bootstrap_servers == "theirs:9092"
        environ["ACCEPTANCE_BOOTSTRAP_SERVERS"] = "ours:9092"
        assert load({"topics": "t"}, environ, None).bootstrap_servers == "ours:9092"

    def test_a_value_may_lie_in_a_file_whose_last_line_end_does_not_count(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_text("pass\nword\n")
        environ = {
            "ACCEPTANCE_FLEET_FILE": str(tmp_path / "secret"),
            "ACCEPTANCE_KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "secret"),
        }
        settings = given({}, environ)
        assert settings.fleet == "pass\nword"
        assert settings.kafka == {"sasl.password": "pass\nword"}

    def test_a_property_whose_own_name_ends_in_file_is_taken_as_it_is(self) -> None:
        environ = {"ACCEPTANCE_KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE": "/key"}
        assert given({}, environ).kafka == {"sasl.oauthbearer.assertion.private.key.file": "/key"}

    def test_a_file_that_cannot_be_read_is_a_wrong_setting(self, tmp_path: Path) -> None:
        problem = refused({}, {"ACCEPTANCE_FLEET_FILE": str(tmp_path / "none")})
        assert "fleet (environment ACCEPTANCE_FLEET_FILE)" in problem
        assert "No such file" in problem

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("ACCEPTANCE_FLEET", "\udcff"),
            ("ACCEPTANCE_LABELS", "a=1,b=\udcff"),
            ("ACCEPTANCE_LABELS", "\udcff=1"),
            ("ACCEPTANCE_RESPONSE_TYPES", "a,\udcff"),
            ("ACCEPTANCE_TOPICS", "\udcff"),
            ("ACCEPTANCE_KAFKA_CLIENT_ID", "\udcff"),
            ("ACCEPTANCE_BOOTSTRAP_SERVERS", "\udcff"),
        ],
    )
    def test_bytes_that_are_not_utf_8_are_refused(self, variable: str, value: str) -> None:
        with pytest.raises(SettingsError) as caught:
            load({}, {variable: value}, None, require=())
        assert "is not UTF-8 text" in str(caught.value)
        assert str(caught.value).encode()

    def test_a_list_of_flags_may_hold_bytes_that_are_not_utf_8_too(self) -> None:
        assert "is not UTF-8 text" in refused({"response_types": ("a", "\udcff")})

    def test_a_name_that_is_not_utf_8_is_refused_too(self) -> None:
        assert refused({}, {"ACCEPTANCE_\udcff": "1"}).encode()

    def test_a_value_and_a_file_for_it_contradict_each_other(self) -> None:
        environ = {"ACCEPTANCE_FLEET": "a", "ACCEPTANCE_FLEET_FILE": "/b"}
        assert "given twice" in refused({}, environ)

    def test_an_empty_variable_means_unset_except_for_a_list(self) -> None:
        settings = given({}, {"ACCEPTANCE_FLEET": "", "ACCEPTANCE_LABEL_ATTRIBUTES": ""})
        assert (settings.fleet, settings.label_attributes) == (None, ())

    def test_the_environment_names_the_settings_file_if_no_flag_does(self, toml: Path) -> None:
        toml.write_text('group = "file"')
        assert given({}, {"ACCEPTANCE_SETTINGS": str(toml)}).group == "file"
        assert given({}, {"ACCEPTANCE_SETTINGS": "/none"}, toml).group == "file"

    @pytest.mark.parametrize(
        "text",
        [
            None,
            "group = ",
            "\udcff",
            "[kafka]\n" + ".".join(["a"] * 3000) + " = 1",
            "group." + ".".join(["a"] * 3000) + " = 1",
            "topics = " + "[" * 3000 + "]" * 3000,
            "topics = " + "[" * 100 + "]" * 100,
            "commit_events = " + "9" * 4500,
            "commit_events = 0x" + "f" * 4500,
            "[kafka]\na = 0x" + "f" * 4500,
        ],
        ids=range(10),
    )
    def test_a_settings_file_that_cannot_be_read_is_a_wrong_setting(
        self, toml: Path, text: str | None
    ) -> None:
        if text is not None:
            toml.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert f"settings (file {toml}): cannot be read" in refused({}, {}, toml)


class TestKafkaProperties:
    def test_a_variable_names_a_property_with_underscores_for_dots(self) -> None:
        environ = {
            "ACCEPTANCE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "ACCEPTANCE_KAFKA_CONSUMER_FETCH_MIN_BYTES": "1",
            "ACCEPTANCE_KAFKA_PRODUCER_LINGER_MS": "5",
        }
        settings = given({}, environ)
        assert settings.kafka == {"security.protocol": "SASL_SSL"}
        assert settings.kafka_consumer == {"fetch.min.bytes": "1"}
        assert settings.kafka_producer == {"linger.ms": "5"}

    def test_tables_may_be_nested_or_their_keys_quoted(self, toml: Path) -> None:
        toml.write_text(
            """
            [kafka]
            "security.protocol" = "SASL_SSL"
            ssl.ca.location = "/ca.pem"
            log.connection.close = false
            [kafka.consumer]
            fetch.min.bytes = 1
            [kafka.producer]
            "linger.ms" = 0.5
            [labels]
            tier = "gold"
            """
        )
        settings = given({}, {}, toml)
        assert settings.kafka == {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/ca.pem",
            "log.connection.close": "false",
        }
        assert settings.kafka_consumer == {"fetch.min.bytes": "1"}
        assert settings.kafka_producer == {"linger.ms": "0.5"}
        assert settings.labels == {"tier": "gold"}

    def test_maps_of_several_places_are_merged_key_by_key(self, toml: Path) -> None:
        toml.write_text('[kafka]\n"a" = "file"\n"b" = "file"\n"c" = "file"')
        environ = {"ACCEPTANCE_KAFKA": "b=environment,d=x=y", "ACCEPTANCE_KAFKA_C": "one"}
        settings = given({"kafka": ("a=flag", "consumer.e=1,2")}, environ, toml)
        assert settings.kafka == {"a": "flag", "b": "environment", "c": "one", "d": "x=y"}
        assert settings.kafka_consumer == {"e": "1,2"}

    @pytest.mark.parametrize(
        ("key", "value", "reason"),
        [
            ("group.id", "g", "use the setting group"),
            ("bootstrap.servers", "k", "use the setting bootstrap_servers"),
            ("metadata.broker.list", "k", "use the setting bootstrap_servers"),
            ("auto.offset.reset", "latest", "use the setting start"),
            ("enable.auto.commit", "true", "only with the records"),
            ("enable.auto.offset.store", "true", "only with the records"),
            ("enable.partition.eof", "true", "by itself"),
            ("transactional.id", "t", "use the setting transactional_id"),
            ("partitioner", "random", "subscribers"),
            ("isolation.level", "read_uncommitted", "must be read_committed"),
            ("enable.idempotence", "False", "must be true"),
            ("acks", "1", "must be all"),
            ("partition.assignment.strategy", "range", "must be cooperative-sticky"),
            ("request.required.acks", "0", "must be all"),
            ("client.id", 'a"b', "no quote"),
            ("client.id", "a\\b", "backslash"),
            ("client.id", "a\nb", "control character"),
        ],
    )
    @pytest.mark.parametrize("where", ["", "consumer.", "producer."])
    def test_what_the_service_owns_is_refused_with_the_reason(
        self, key: str, value: str, reason: str, where: str
    ) -> None:
        problem = refused({"kafka": (f"{where}{key}={value}",)})
        assert key in problem
        assert reason in problem
        assert "(flag -X)" in problem

    @pytest.mark.parametrize(
        "harmless",
        [
            "isolation.level=read_committed",
            "acks=-1",
            "acks=all",
            "enable.idempotence=TRUE",
            "client.id=pod-7 é",
        ],
    )
    def test_what_the_service_would_set_itself_is_accepted(self, harmless: str) -> None:
        assert len(given({"kafka": (harmless,)}).kafka) == 1

    def test_a_property_without_a_value_is_refused_without_being_shown(self) -> None:
        problem = refused({"kafka": ("hunter2",)})
        assert "kafka (flag -X) is [masked]: must be" in problem
        assert "hunter2" not in problem

    def test_a_property_that_is_no_text_is_refused(self, toml: Path) -> None:
        toml.write_text('[kafka]\ndebug = ["all"]')
        assert "kafka.debug" in refused({}, {}, toml)


class TestHowSettingsAreWritten:
    @pytest.mark.parametrize(
        ("written", "seconds"),
        [
            ("250ms", 0.25),
            ("0.5s", 0.5),
            ("1 s", 1.0),
            ("1m", 60.0),
            ("45", 45.0),
            (2, 2.0),
            (0.01, 0.01),
        ],
    )
    def test_durations(self, written: object, seconds: float) -> None:
        interval = given({"commit_interval": written}).commit_interval
        assert (type(interval), interval) == (float, seconds)

    def test_hours(self) -> None:
        assert given({"idle_timeout": "1h"}).idle_timeout == 3600.0

    @pytest.mark.parametrize(
        ("written", "size"),
        [
            ("64KiB", 65_536),
            ("1MiB", 1 << 20),
            ("1MB", 1_000_000),
            ("1mb", 1_000_000),
            ("2000", 2_000),
            ("2000 B", 2_000),
            (5_000, 5_000),
        ],
    )
    def test_sizes(self, written: object, size: int) -> None:
        assert given({"max_segment_bytes": written}).max_segment_bytes == size

    @pytest.mark.parametrize(
        ("written", "start"),
        [
            ("earliest", "earliest"),
            ("latest", "latest"),
            ("1767225600000", 1_767_225_600_000),
            (1_767_225_600_000, 1_767_225_600_000),
            ("2026-01-01T00:00:00Z", 1_767_225_600_000),
            ("2026-01-01T01:00:00.250+01:00", 1_767_225_600_250),
        ],
    )
    def test_starts(self, written: object, start: object) -> None:
        assert given({"start": written}).start == start

    def test_a_start_may_be_a_date_of_toml(self, toml: Path) -> None:
        toml.write_text("start = 2026-01-01T00:00:00Z")
        assert given({}, {}, toml).start == 1_767_225_600_000

    @pytest.mark.parametrize(
        ("written", "found"),
        [
            ("latest", "latest"),
            ("2026-01-01T00:00:00Z", 1_767_225_600_000),
            ("1767225600000", 1_767_225_600_000),
            ("90s", 1_767_225_510_000),
            ("1.5h", 1_767_220_200_000),
        ],
    )
    def test_a_moment_of_a_command_may_be_so_long_ago(self, written: str, found: object) -> None:
        assert moment(written, now=1_767_225_600_000) == found

    @pytest.mark.parametrize("written", ["", "5", "0.5", "yesterday", "2026-01-01", "2w"])
    def test_what_is_no_moment_is_refused(self, written: str) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - the caller says what it expects.
            moment(written, now=1_767_225_600_000)

    @pytest.mark.parametrize("written", ["a,b", " a , b,", ["a", "b"], ("a", "b"), ("a,b",)])
    def test_lists_are_split_at_commas_wherever_they_come_from(self, written: object) -> None:
        assert given({"topics": written}).topics == ("a", "b")

    @pytest.mark.parametrize("name", fields())
    def test_a_default_as_printed_is_read_as_itself(self, name: str) -> None:
        field = fields()[name]
        if field.default_text:
            assert getattr(given({name: field.default_text}), name) == field.default

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("commit_interval", "5 parsecs"),
            ("commit_interval", "1h"),
            ("commit_interval", "-1s"),
            ("commit_interval", float("nan")),
            ("commit_interval", float("inf")),
            ("commit_interval", True),
            ("commit_events", "many"),
            ("commit_events", 0),
            ("commit_events", True),
            ("commit_events", 1.5),
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
            ("skip", "topic"),
            ("skip", "topic:0"),
            ("skip", "topic:zero:1"),
            ("skip", "topic:0:-1"),
            ("skip", "topic:0:1:2"),
            ("skip", "to/pic:0:1"),
            ("skip", ":0:1"),
            ("skip", "topic:0:1,topic"),
            ("skip", 5),
            ("topics", 5),
            ("topics", [5]),
            ("labels", 5),
        ],
    )
    def test_a_wrong_value_is_refused_with_what_is_allowed(self, name: str, value: object) -> None:
        problem = refused({name: value})
        assert problem.startswith(f"{name} (flag --{name.replace('_', '-')})")
        assert fields()[name].allowed in problem

    def test_messages_to_skip_are_split_at_commas(self) -> None:
        flags = {"skip": "a.b_c-d:0:17, t:12:0", "topics": "a.b_c-d,t"}
        assert given(flags).skip == ("a.b_c-d:0:17", "t:12:0")

    def test_a_message_to_skip_of_a_topic_that_is_not_read_is_refused(self) -> None:
        """Somebody has mistyped it, and the service would go down again."""
        assert "'other:0:17' is in none of the topics" in refused({"skip": "other:0:17"})

    def test_a_message_to_skip_may_be_of_a_topic_that_a_pattern_takes_in(self) -> None:
        assert given({"skip": "chat-1:0:17", "topics": "^chat-.*"}).skip == ("chat-1:0:17",)

    @pytest.mark.parametrize("path", ["", ".", "a..b", ".a", "a."])
    def test_a_path_without_a_name_or_with_an_empty_one_is_refused(self, path: str) -> None:
        problem = refused({"paths": (f"body={path}",)})
        assert problem.startswith("paths.body (flag --paths)")
        assert fields()["paths"].allowed in problem

    @pytest.mark.parametrize(
        ("member", "meant"),
        [("requestid", "; did you mean request_id?"), ("xyzzy", "")],
    )
    def test_of_a_path_for_no_member_the_name_is_refused_and_not_the_path(
        self, member: str, meant: str
    ) -> None:
        problem = refused({}, {"ACCEPTANCE_PATHS": f"body=b,{member}=a.b"})
        assert problem == (
            f"paths.{member} (environment ACCEPTANCE_PATHS): is no member of an event (request_id, "
            "body, body_base64, sequence, final, timestamp, attempt, model, instance, endpoint, "
            f"status){meant}"
        )

    @pytest.mark.parametrize("path", ["a", "a.b", "a b.c-d"])
    def test_a_path_is_names_joined_by_dots(self, path: str) -> None:
        assert given({"paths": (f"body={path}",)}).paths == {"body": path}


class TestRefusals:
    def test_all_wrong_settings_are_reported_together(self, toml: Path) -> None:
        toml.write_text('commit_intervall = "1s"\nidle_timeout = "1 year"')
        environ = {"ACCEPTANCE_LOG_LEVEL": "loud"}
        with pytest.raises(SettingsError) as caught:
            load({"max_reread": "5"}, environ, toml)
        assert str(caught.value) == (
            f"commit_intervall (file {toml}): is no setting; did you mean commit_interval?\n"
            f"idle_timeout (file {toml}, key idle_timeout) is '1 year': must be a duration from 1s "
            "to 24h, such as 1s, 2m, 1h or a number of seconds\n"
            "log_level (environment ACCEPTANCE_LOG_LEVEL) is 'loud': must be one of debug, info, "
            "warning, error\n"
            "max_reread (flag --max-reread) is '5': must be an integer from 10000 to 20000000\n"
            "bootstrap_servers (not given): is required; give host or host:port, separated by "
            "commas\n"
            "topics (not given): is required; give topic names of letters, digits, '.', '_' and "
            "'-', or POSIX regular expressions that start with ^; separated by commas"
        )
        assert [problem.setting for problem in caught.value.problems][1] == "idle_timeout"

    def test_nothing_is_said_to_be_required_that_may_stand_in_an_unreadable_file(
        self, toml: Path
    ) -> None:
        toml.write_text("topics = [")
        with pytest.raises(SettingsError) as caught:
            load({}, {}, toml)
        assert [problem.setting for problem in caught.value.problems] == ["settings"]

    @pytest.mark.parametrize(
        ("flags", "given"),
        [
            ({"skip": ("a:b",)}, "skip (flag --skip) is 'a:b': must be"),
            ({"skip": ("t:0:1", "a:b")}, "skip (flag --skip) is 't:0:1, a:b': must be"),
            ({"labels": ("tier",)}, "labels (flag --labels) is 'tier': must be"),
            ({"labels": ("token",)}, "labels (flag --labels) is [masked]: must be"),
        ],
    )
    def test_what_was_given_is_shown_as_it_was_given(
        self, flags: dict[str, object], given: str
    ) -> None:
        assert given in refused(flags)

    def test_of_several_properties_the_wrong_one_is_named_by_its_number(self) -> None:
        problem = refused({"kafka": ("linger.ms=5", "acks")})
        assert problem.endswith("; entry 2 of 2 is not")

    @pytest.mark.parametrize("name", [name for name in fields() if fields()[name].examples])
    def test_every_example_of_a_refusal_is_allowed(self, name: str) -> None:
        examples = fields()[name].examples.removeprefix(", such as ").split(" or a number of ")[0]
        for example in examples.split(", "):
            given({name: example})

    @pytest.mark.parametrize(
        "servers",
        [
            "kafka",
            "kafka:9092",
            "kafka-0.kafka.svc:9092, kafka_1:65535,",
            "10.0.0.1:9092",
            "[::1]:9092",
            "::1",
            "SASL_SSL://kafka:9093",
            "plaintext://kafka:9092/",
        ],
    )
    def test_servers_are_written_as_librdkafka_reads_them(self, servers: str) -> None:
        assert given({"bootstrap_servers": servers}).bootstrap_servers == servers

    @pytest.mark.parametrize(
        "servers",
        [
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
        ],
    )
    def test_servers_that_librdkafka_would_look_for_in_vain_are_refused(self, servers: str) -> None:
        problem = refused({"bootstrap_servers": servers})
        assert problem.endswith(f"is {servers!r}: must be host or host:port, separated by commas")

    @pytest.mark.parametrize("port", ["65536", "99999", "-1", ""])
    def test_an_address_with_a_port_that_there_is_not_is_refused(self, port: str) -> None:
        assert "must be off, or HOST:PORT" in refused({"http_address": f"0.0.0.0:{port}"})

    @pytest.mark.parametrize("port", ["0", "80", "8080", "59999", "65535"])
    def test_an_address_may_have_any_port(self, port: str) -> None:
        assert given({"http_address": f"[::]:{port}"}).http_address == f"[::]:{port}"

    def test_a_command_may_require_less(self) -> None:
        assert load({}, {}, None, require=()).topics == ()

    @pytest.mark.parametrize(
        ("flags", "environ", "meant"),
        [
            ({}, {"ACCEPTANCE_TOPIC": "secret"}, "ACCEPTANCE_TOPICS"),
            ({}, {"ACCEPTANCE_SETINGS": "secret"}, "ACCEPTANCE_SETTINGS"),
            ({"topic": "secret"}, {}, "--topics"),
        ],
    )
    def test_an_unknown_name_is_refused_with_the_nearest_one_and_its_value_not_shown(
        self, flags: dict[str, object], environ: dict[str, str], meant: str
    ) -> None:
        problem = refused(flags, environ)
        assert f"did you mean {meant}?" in problem
        assert "secret" not in problem

    def test_an_unknown_name_that_resembles_none_is_refused(self) -> None:
        assert refused({}, {"ACCEPTANCE_XYZZY": "1"}).endswith("is no setting")

    @pytest.mark.parametrize(
        ("flags", "environ", "given"),
        [
            ({}, {"ACCEPTANCE_IDLE_TIMOUT": "1s"}, "ACCEPTANCE_IDLE_TIMOUT (environment): is no"),
            ({"idle_timout": "1s"}, {}, "--idle-timout (flag): is no"),
        ],
    )
    def test_an_unknown_name_is_said_once(
        self, flags: dict[str, object], environ: dict[str, str], given: str
    ) -> None:
        assert refused(flags, environ).startswith(given)

    @pytest.mark.parametrize(
        "variable",
        [
            "ACCEPTANCE_CONSUMER_PORT",
            "ACCEPTANCE_CONSUMER_SERVICE_HOST",
            "ACCEPTANCE_CONSUMER_METRICS_PORT_8000_TCP",
            "ACCEPTANCE_PORT",
            "ACCEPTANCE_KAFKA_PORT_9092_TCP_ADDR",
            "ACCEPTANCE_KAFKA_SERVICE_PORT_TCP_CLIENTS",
            "ACCEPTANCE_ACCEPTANCE_CONSUMER_SERVICE_PORT",
        ],
    )
    def test_variables_that_kubernetes_makes_of_services_are_ignored(self, variable: str) -> None:
        assert given({}, {variable: "tcp://10.0.0.1:80"}) == given()

    @pytest.mark.parametrize(
        "topic", ["", ".", "..", "a b", "a/b", "ü", "t\n", "t" * 250, "!responses"]
    )
    def test_a_name_that_kafka_would_not_take_is_refused(self, topic: str) -> None:
        assert refused({"output_topic": topic}).startswith("output_topic (flag --output-topic)")
        if topic.strip() == topic and topic:
            assert "is no topic name" in refused({"topics": topic})

    @pytest.mark.parametrize(
        ("pattern", "why"),
        [
            ("^(", "is no regular expression"),
            ("^[a", "is no regular expression"),
            ("^a[[:blank:]]", "is no regular expression"),
            (r"^a\d", "write [0-9]"),
            ("^a(?=b)", "no POSIX regular expression"),
            ("^a+?", "no POSIX regular expression"),
        ],
    )
    def test_a_pattern_that_the_client_cannot_follow_is_refused(
        self, pattern: str, why: str
    ) -> None:
        assert why in refused({"topics": pattern})

    @pytest.mark.parametrize("pattern", ["^acceptance", "^.*-letters$", "^[[:alpha:]]+-dead"])
    def test_a_pattern_that_takes_in_an_output_topic_is_refused(self, pattern: str) -> None:
        assert "would read what it writes" in refused({"topics": pattern})

    def test_a_pattern_that_takes_in_none_is_accepted(self) -> None:
        pattern = r"^fleet-[[:digit:]]{1}\.responses$"
        assert given({"topics": pattern}).topics == (pattern,)

    @pytest.mark.parametrize(
        "flags",
        [
            {"topics": "acceptance-records"},
            {"topics": "a,acceptance-dead-letters"},
            {"topics": "a,a"},
            {"output_topic": "x", "dead_letter_topic": "x"},
        ],
    )
    def test_topics_must_all_be_different(self, flags: dict[str, object]) -> None:
        assert len(refused(flags).splitlines()) == 1


class TestSecrets:
    KAFKA = (
        "sasl.username=reader",
        "sasl.password=hunter2",
        "ssl.key.password=hunter2",
        "ssl.key.pem=hunter2",
        "ssl.key.location=/etc/key.pem",
        "ssl.keystore.password=hunter2",
        "sasl.oauthbearer.client.id=client",
        "sasl.oauthbearer.client.secret=hunter2",
        "sasl.oauthbearer.config=secret=hunter2",
        "sasl.oauthbearer.assertion.private.key.passphrase=hunter2",
        "sasl.oauthbearer.token.endpoint.url=https://me:hunter2@example.org/token",
        "consumer.sasl.jaas.config=hunter2",
    )

    def test_the_effective_settings_show_no_secret_and_everything_else(self) -> None:
        shown = effective(given({"kafka": self.KAFKA, "fleet": "f"}))
        assert "hunter2" not in repr(shown)
        assert shown.keys() == fields().keys()
        assert shown["fleet"] == "f"
        kafka: Any = shown["kafka"]
        assert kafka["sasl.username"] == "reader"
        assert kafka["sasl.password"] == "[masked]"
        assert kafka["ssl.key.location"] == "/etc/key.pem"
        assert kafka["sasl.oauthbearer.client.id"] == "client"
        assert kafka["sasl.oauthbearer.token.endpoint.url"] == "https://[masked]@example.org/token"

    def test_the_client_gets_the_secrets_themselves(self) -> None:
        assert given({"kafka": self.KAFKA}).kafka["sasl.password"] == "hunter2"

    def test_a_refusal_shows_no_secret(self, toml: Path) -> None:
        toml.write_text('[kafka]\nsasl.password = ["hunter2"]')
        problem = refused({}, {}, toml)
        assert "kafka.sasl.password" in problem
        assert "hunter2" not in problem

    @pytest.mark.parametrize("secret", ["hunter2", "/hunter2", "/hunter2/9f="])
    def test_a_secret_in_place_of_the_name_of_its_file_is_not_shown(self, secret: str) -> None:
        problem = refused({}, {"ACCEPTANCE_KAFKA_SASL_PASSWORD_FILE": secret})
        assert "is [masked]: names a file that cannot be read: No such file" in problem
        assert "hunter2" not in problem

    def test_the_path_of_a_file_that_holds_a_secret_is_shown(self, tmp_path: Path) -> None:
        path = f"{tmp_path}/none"
        problem = refused({}, {"ACCEPTANCE_KAFKA_SASL_PASSWORD_FILE": path})
        assert f"is {path!r}: names a file that cannot be read: No such file" in problem

    def test_a_long_value_is_cut_in_a_refusal(self) -> None:
        assert len(refused({"log_level": "x" * 10_000})) < 400


class TestOptions:
    @staticmethod
    def run(*arguments: str, environ: Mapping[str, str] | None = None) -> tuple[Result, Any]:
        seen: list[Settings] = []

        @click.command()
        @click.option("--speed", default=1)
        @click_options
        def command(speed: int, **options: object) -> None:
            seen.append(settings_from_click_options({"speed": speed, **options}, environ or {}))

        result = CliRunner().invoke(command, arguments)
        return result, seen[0] if seen else None

    def test_every_setting_has_an_option_that_tells_its_name_and_default(self) -> None:
        result, _ = self.run("--help")
        help_text = re.sub(r"\s+", " ", result.output)
        for field in fields().values():
            if field.name in ("kafka_consumer", "kafka_producer"):
                continue  # Reached through -X.
            assert field.flag in help_text
            assert f"env: {field.environment}" in help_text
            assert field.description.split()[0] in help_text
        assert "[env: ACCEPTANCE_COMMIT_INTERVAL; default: 1s]" in help_text

    def test_options_become_settings(self, toml: Path) -> None:
        toml.write_text('group = "file"')
        result, settings = self.run(
            *("--settings", str(toml), "--bootstrap-servers", "k:1"),
            *("--topics", "a", "--topics", "b", "--commit-interval", "250ms"),
            *("-X", "security.protocol=SSL", "--kafka", "producer.linger.ms=5"),
            *("--labels", "tier=gold", "--speed", "2"),
        )
        assert result.exit_code == 0, result.output
        assert msgspec.structs.replace(settings) == Settings(
            bootstrap_servers="k:1",
            topics=("a", "b"),
            group="file",
            commit_interval=0.25,
            labels={"tier": "gold"},
            kafka={"security.protocol": "SSL"},
            kafka_producer={"linger.ms": "5"},
        )

    def test_the_environment_is_read_by_the_loader_and_not_by_click(self) -> None:
        result, settings = self.run(
            environ={"ACCEPTANCE_TOPICS": "a,b", "KAFKA_BOOTSTRAP_SERVERS": "k:1"}
        )
        assert result.exit_code == 0, result.output
        assert settings.topics == ("a", "b")

    def test_a_wrong_option_is_a_settings_error_that_names_the_flag(self) -> None:
        result, _ = self.run("--commit-interval", "soon")
        assert isinstance(result.exception, SettingsError)
        assert "commit_interval (flag --commit-interval) is 'soon'" in str(result.exception)
