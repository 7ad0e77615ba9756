"""Sources of settings: flags, environment, file; and what they refuse."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from consumer.settings.click_options import click_options, settings_from_click_options
from consumer.settings.fields import fields
from consumer.settings.settings import Settings
from consumer.settings.sources import SettingsError, load
from tests.unit.settings.loading import given, refused


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


class TestPrecedence:
    def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(
        self, toml: Path
    ) -> None:
        toml.write_text('group = "file"\nfleet = "file"\nmax_commit_outputs = 7')
        environ = {"ACCEPTANCE_GROUP": "environment", "ACCEPTANCE_FLEET": "environment"}
        assert given({"group": "flag"}, environ, toml) == Settings(
            bootstrap_servers="kafka:9092",
            topics=("responses",),
            group="flag",
            fleet="environment",
            max_commit_outputs=7,
        )

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
        environ = {"KAFKA_BOOTSTRAP_SERVERS": "usual:9092"}
        assert load({"topics": "t"}, environ, None).bootstrap_servers == "usual:9092"
        environ["ACCEPTANCE_BOOTSTRAP_SERVERS"] = "own:9092"
        assert load({"topics": "t"}, environ, None).bootstrap_servers == "own:9092"

    def test_a_file_may_hold_a_value_and_its_last_line_end_does_not_count(
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

    def test_an_empty_variable_means_unset_except_for_a_list(self) -> None:
        settings = given({}, {"ACCEPTANCE_FLEET": "", "ACCEPTANCE_LABEL_ATTRIBUTES": ""})
        assert (settings.fleet, settings.label_attributes) == (None, ())

    def test_the_environment_names_the_settings_file_if_no_flag_does(self, toml: Path) -> None:
        toml.write_text('group = "file"')
        assert given({}, {"ACCEPTANCE_SETTINGS": str(toml)}).group == "file"
        assert given({}, {"ACCEPTANCE_SETTINGS": "/none"}, toml).group == "file"

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
    def test_variables_that_kubernetes_sets_for_services_are_ignored(self, variable: str) -> None:
        assert given({}, {variable: "tcp://10.0.0.1:80"}) == given()

    def test_a_command_may_require_less(self) -> None:
        assert load({}, {}, None, require=()).topics == ()


class TestRefusals:
    def test_all_wrong_settings_are_reported_together(self, toml: Path) -> None:
        toml.write_text('commit_intervall = "1s"\nidle_timeout = "1 year"')
        environ = {"ACCEPTANCE_LOG_LEVEL": "loud"}
        with pytest.raises(SettingsError) as caught:
            load({"max_reread": "5"}, environ, toml)
        assert str(caught.value) == (
            f"commit_intervall (file {toml}): is not a setting; did you mean commit_interval?\n"
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
            "max_commit_outputs = " + "9" * 4500,
            "max_commit_outputs = 0x" + "f" * 4500,
            "[kafka]\na = 0x" + "f" * 4500,
        ],
        ids=range(10),
    )
    def test_a_settings_file_that_cannot_be_read_is_the_only_problem(
        self, toml: Path, text: str | None
    ) -> None:
        if text is not None:
            toml.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(SettingsError) as caught:
            load({}, {}, toml)  # The required settings may stand in the file.
        assert str(caught.value).startswith(f"settings (file {toml}): cannot be read")
        assert [problem.setting for problem in caught.value.problems] == ["settings"]

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

    def test_flags_and_names_that_are_not_utf_8_are_refused_too(self) -> None:
        assert "is not UTF-8 text" in refused({"response_types": ("a", "\udcff")})
        assert refused({}, {"ACCEPTANCE_\udcff": "1"}).encode()

    @pytest.mark.parametrize(
        ("flags", "environ", "problem"),
        [
            (
                {},
                {"ACCEPTANCE_TOPIC": "secret"},
                "ACCEPTANCE_TOPIC (environment): is not a setting; did you mean ACCEPTANCE_TOPICS?",
            ),
            (
                {},
                {"ACCEPTANCE_SETINGS": "secret"},
                (
                    "ACCEPTANCE_SETINGS (environment): is not a setting; "
                    "did you mean ACCEPTANCE_SETTINGS?"
                ),
            ),
            (
                {"topic": "secret"},
                {},
                "--topic (flag): is not a setting; did you mean --topics?",
            ),
            ({}, {"ACCEPTANCE_XYZZY": "1"}, "ACCEPTANCE_XYZZY (environment): is not a setting"),
            *(
                (
                    {},
                    {"ACCEPTANCE_PATHS": f"body=b,{member}=a.b"},
                    (
                        f"paths.{member} (environment ACCEPTANCE_PATHS): is not a "
                        "member of an event (request_id, body, body_base64, sequence, final, "
                        "timestamp, attempt, model, instance, endpoint, status, labels, each, "
                        f"base64_if){suggestion}"
                    ),
                )
                for member, suggestion in (
                    ("requestid", "; did you mean request_id?"),
                    ("xyzzy", ""),
                )
            ),
            (
                {},
                {"ACCEPTANCE_FLEET": "a", "ACCEPTANCE_FLEET_FILE": "/b"},
                (
                    "fleet (environment ACCEPTANCE_FLEET_FILE): is given twice: unset it or "
                    "ACCEPTANCE_FLEET"
                ),
            ),
            (
                {},
                {"ACCEPTANCE_FLEET_FILE": "/tmp/none"},  # noqa: S108 - it is not there.
                (
                    "fleet (environment ACCEPTANCE_FLEET_FILE) is '/tmp/none': names a file that "
                    "cannot be read: No such file or directory"
                ),
            ),
        ],
    )
    def test_a_wrong_name_is_refused_with_the_nearest_one_and_its_value_not_shown(
        self, flags: dict[str, object], environ: dict[str, str], problem: str
    ) -> None:
        assert refused(flags, environ) == problem


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

    def test_every_setting_has_an_option_with_its_name_and_default(self) -> None:
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
        assert settings == Settings(
            bootstrap_servers="k:1",
            topics=("a", "b"),
            group="file",
            commit_interval=0.25,
            labels={"tier": "gold"},
            kafka={"security.protocol": "SSL"},
            kafka_producer={"linger.ms": "5"},
        )

    def test_the_loader_and_not_click_reads_the_environment(self) -> None:
        result, settings = self.run(
            environ={"ACCEPTANCE_TOPICS": "a,b", "KAFKA_BOOTSTRAP_SERVERS": "k:1"}
        )
        assert result.exit_code == 0, result.output
        assert settings.topics == ("a", "b")

    def test_a_wrong_option_is_a_settings_error_that_names_the_flag(self) -> None:
        result, _ = self.run("--commit-interval", "soon")
        assert isinstance(result.exception, SettingsError)
        assert "commit_interval (flag --commit-interval) is 'soon'" in str(result.exception)
