import ast
import io
import json
import logging
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

import confluent_kafka
import pytest
import structlog
from msgspec import Struct

from consumer.core.redaction import MASK
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.logging_setup import (
    _PAYLOAD_FIELDS,
    Format,
    Level,
    configure,
    get_logger,
    librdkafka_logger,
    set_level,
)
from consumer.telemetry.rate_limiter import RateLimiter
from tests.paths import ROOT
from tests.support.manual_clock import ManualClock

CANARY = "canary-7f3a"


class Stream(io.TextIOWrapper):
    """Standard error of a service, or of a person's terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        self.bytes = io.BytesIO()
        self._terminal = terminal
        super().__init__(self.bytes, encoding="utf-8")

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


Configured = Callable[..., Stream]


@pytest.fixture
def configured() -> Iterator[Configured]:
    root = logging.getLogger()
    handlers, level, showwarning = root.handlers[:], root.level, warnings.showwarning
    logging.captureWarnings(capture=False)  # As a command of another test may have left it.

    def configure_for_test(
        log_format: Format = "auto",
        level: Level = "info",
        *,
        preview_bytes: int = 0,
        terminal: bool = False,
    ) -> Stream:
        stream = Stream(terminal=terminal)
        configure(log_format, level, stream=stream, preview_bytes=preview_bytes)
        return stream

    yield configure_for_test
    set_level("info")
    logging.captureWarnings(capture=False)
    warnings.showwarning = showwarning
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class TestForm:
    def test_a_line_is_a_json_object_with_time_level_and_event_first(
        self, configured: Configured
    ) -> None:
        stream = configured()
        get_logger().info(LogEvent.SERVICE_STARTED, version="1.2.3", partitions=[0, 1])
        assert re.fullmatch(
            r'{"timestamp":"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z","level":"info",'
            r'"event":"service_started","version":"1.2.3","partitions":\[0,1\]}\n',
            stream.text,
        )

    def test_a_terminal_gets_lines_for_people(self, configured: Configured) -> None:
        stream = configured(terminal=True)
        get_logger().warning(LogEvent.BAD_PAYLOAD, reason="invalid_json")
        assert "\x1b[" in stream.text
        assert "bad_payload" in stream.text
        with pytest.raises(json.JSONDecodeError):
            json.loads(stream.text)

    def test_the_form_can_be_pinned(self, configured: Configured) -> None:
        stream = configured("json", terminal=True)
        get_logger().info(LogEvent.SERVICE_STARTED)
        assert stream.lines[0]["event"] == "service_started"
        stream = configured("console")
        get_logger().info(LogEvent.SERVICE_STARTED)
        assert not stream.text.startswith("{")
        assert "\x1b[" not in stream.text

    def test_lines_go_to_standard_error_so_that_data_can_go_to_standard_output(self) -> None:
        script = (
            "from consumer.telemetry.logging_setup import *; configure();"
            "get_logger().info(LogEvent.SERVICE_STARTED)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
        )
        assert done.stdout == ""
        assert json.loads(done.stderr)["event"] == "service_started"

    def test_a_logger_with_fields_follows_a_later_configuration(
        self, configured: Configured
    ) -> None:
        logger = get_logger(a=1)
        for _ in range(2):
            stream = configured()
            logger.bind(b=2).info(LogEvent.SERVICE_STARTED, c=3)
            [line] = stream.lines
            assert line == line | {"event": "service_started", "a": 1, "b": 2, "c": 3}

    @pytest.mark.parametrize("terminal", [False, True])
    def test_a_traceback_comes_without_local_variables(
        self, configured: Configured, *, terminal: bool
    ) -> None:
        stream = configured(terminal=terminal)
        try:
            body = CANARY.encode()
            int("x")
        except ValueError:
            get_logger().exception(LogEvent.COMMIT_FAILED)
            del body
        assert "Traceback" in stream.text
        assert "ValueError" in stream.text
        assert CANARY not in stream.text

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (b"key-\xff", "key-\\xff"),
            ("\ud800", "?"),
            (2**70, 2**70),
            (Path("a/b"), "a/b"),
            (ValueError("wrong"), "ValueError: wrong"),
            ({1}, [1]),
            ({5: {"a": None}}, {"5": {"a": None}}),
        ],
    )
    def test_any_value_can_be_logged(
        self, configured: Configured, value: object, written: object
    ) -> None:
        stream = configured()
        get_logger().info(LogEvent.KAFKA_ERROR, it=value)
        assert stream.lines[0]["it"] == written

    def test_a_long_text_keeps_its_start_and_its_end(self, configured: Configured) -> None:
        stream = configured()
        get_logger().info(LogEvent.KAFKA_ERROR, text="start" + "x" * 100_000 + "end")
        assert re.fullmatch(r"startx+ \.\.\. x+end", stream.lines[0]["text"])
        assert len(stream.text) < 16_384


class TestLevel:
    def test_lines_below_the_level_are_not_shown(self, configured: Configured) -> None:
        stream = configured(level="warning")
        logger = get_logger()
        for log in (logger.debug, logger.info, logger.warning, logger.error):
            log(LogEvent.KAFKA_ERROR)
        assert [line["level"] for line in stream.lines] == ["warning", "error"]

    def test_the_level_can_change_at_run_time_under_loggers_in_use(
        self, configured: Configured
    ) -> None:
        stream = configured()
        bound = get_logger().bind(partition=1)
        bound.debug(LogEvent.REREAD_STARTED)
        set_level("debug")
        bound.debug(LogEvent.REREAD_FINISHED)
        logging.getLogger("elsewhere").debug("heard")
        set_level("error")
        bound.warning(LogEvent.REREAD_STARTED)
        assert [line["event"] for line in stream.lines] == ["reread_finished", "library_log"]

    def test_a_signal_switches_debug_lines_on_and_off_in_a_running_process(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", _SWITCHED], capture_output=True, text=True, check=True, cwd=ROOT
        )
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert [(line["event"], line.get("new_level"), line.get("error")) for line in lines] == [
            ("log_level_changed", "debug", None),
            ("kafka_error", None, 1),
            ("log_level_changed", "error", None),
            ("log_level_changed", "debug", None),
            ("kafka_error", None, 3),
        ]


_SWITCHED = """
import os, signal, threading
from consumer.telemetry import logging_setup
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.logging_setup import configure, get_logger, toggle_debug_on_sigusr1

switched, set_level = threading.Semaphore(0), logging_setup.set_level

def setting(level):
    set_level(level)
    switched.release()

configure("json", "error")
logging_setup.set_level = setting
toggle_debug_on_sigusr1("error")
log = get_logger()
for number in range(4):
    log.debug(LogEvent.KAFKA_ERROR, error=number)
    if number < 3:
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in ("before its line", "behind it"):
            assert switched.acquire(timeout=30)
"""


class TestSecrets:
    @pytest.mark.parametrize("terminal", [False, True])
    def test_a_credential_is_masked_at_any_depth(
        self, configured: Configured, *, terminal: bool
    ) -> None:
        class Inner(Struct):
            api_key: str

        stream = configured(terminal=terminal)
        get_logger().info(
            LogEvent.SERVICE_STARTED,
            password=CANARY,
            settings={"kafka": {"sasl.password": CANARY}},
            headers=[("Authorization", CANARY.encode()), ("content-type", b"json")],
            inner=[Inner(CANARY)],
            text=f"GET https://user:{CANARY}@example.org/",
        )
        assert CANARY not in stream.text
        assert MASK in stream.text
        assert "content-type" in stream.text


class TestPayloads:
    FIELDS = ("payload", "value", "body", "value_base64", "body_base64", "content", "prompt", "raw")

    @pytest.mark.parametrize("terminal", [False, True])
    def test_no_payload_is_ever_logged(self, configured: Configured, *, terminal: bool) -> None:
        stream = configured(terminal=terminal)
        for name in self.FIELDS:
            for payload in (CANARY, CANARY.encode(), {"x": CANARY}, [CANARY]):
                get_logger().warning(LogEvent.BAD_PAYLOAD, **{name: payload})
                get_logger().warning(LogEvent.BAD_PAYLOAD, inside={name.upper(): payload})
        assert stream.text.count("bad_payload") == len(self.FIELDS) * 8
        assert CANARY not in stream.text

    def test_a_preview_shows_the_first_bytes_and_no_more(self, configured: Configured) -> None:
        stream = configured(preview_bytes=5)
        logger = get_logger()
        logger.warning(LogEvent.BAD_PAYLOAD, payload=b"12345" + CANARY.encode())
        logger.warning(LogEvent.BAD_PAYLOAD, payload="1234é" + CANARY)
        logger.warning(LogEvent.BAD_PAYLOAD, payload=[CANARY])
        assert [line.get("payload") for line in stream.lines] == ["12345", "1234�", None]
        assert CANARY not in stream.text


class TestOtherLibraries:
    def test_standard_logging_goes_the_same_way(self, configured: Configured) -> None:
        stream = configured()
        try:
            int("x")
        except ValueError:
            logging.getLogger("some.package").exception("it %s", "failed")
        logging.getLogger("some.package").info("fine")
        failed, fine = stream.lines
        assert failed["event"] == "library_log"
        assert failed["level"] == "error"
        assert failed["library"] == "some.package"
        assert failed["text"] == "it failed"
        assert "ValueError" in failed["exception"]
        assert fine["text"] == "fine"
        assert "exception" not in fine

    def test_warnings_are_log_lines_too_and_are_logged_once(self, configured: Configured) -> None:
        configured()
        stream = configured()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", UserWarning, stacklevel=1)
        [line] = stream.lines
        assert line["level"] == "warning"
        assert "UserWarning: old" in line["text"]

    def test_the_kafka_client_logs_the_same_way(self, configured: Configured) -> None:
        stream = configured(level="debug")
        properties = {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": "g",
            "linger.ms": "5",  # A producer's property, which consumers warn about.
        }
        client = confluent_kafka.Consumer(properties, logger=librdkafka_logger())
        for _ in range(100):
            client.poll(0.05)
            facilities = {line["facility"]: line for line in stream.lines}
            if {"CONFWARN", "FAIL"} <= facilities.keys():
                break
        client.close()
        assert facilities["CONFWARN"]["level"] == "debug"
        assert facilities["FAIL"]["level"] == "error"
        assert facilities["FAIL"]["event"] == "librdkafka_log"
        assert "consumer" in facilities["FAIL"]["client"]
        assert "refused" in facilities["FAIL"]["text"]

    def test_the_kafka_client_has_one_logger(self, configured: Configured) -> None:
        stream = configured()
        assert librdkafka_logger() is librdkafka_logger()
        librdkafka_logger().info("a line of another form")
        assert [line["text"] for line in stream.lines] == ["a line of another form"]

    def test_a_line_that_cannot_be_made_does_not_raise_into_the_library(
        self, configured: Configured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging, "raiseExceptions", False)
        stream = configured()
        logging.getLogger("some.package").error("%d", "not a number")
        librdkafka_logger().error("%d", "not a number")
        assert stream.text == ""

    def test_lines_of_threads_do_not_mix(self, configured: Configured) -> None:
        stream = configured()

        def log() -> None:
            for _ in range(50):
                get_logger().info(LogEvent.KAFKA_ERROR, text="x" * 500)

        threads = [threading.Thread(target=log) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(stream.lines) == 200


class TestRateLimiter:
    def test_the_first_lines_of_a_period_pass_and_the_next_one_tells_how_many_did_not(
        self,
    ) -> None:
        clock = ManualClock()
        limiter = RateLimiter(clock, max_admitted=2, period_s=60)
        assert [limiter.admit("invalid_json") for _ in range(5)] == [0, 0, None, None, None]
        clock.advance(59.9)
        assert limiter.admit("invalid_json") is None
        clock.advance(0.1)
        assert [limiter.admit("invalid_json") for _ in range(3)] == [4, 0, None]
        clock.advance(600)
        assert limiter.admit("invalid_json") == 1

    def test_reasons_do_not_hold_each_other_back(self) -> None:
        limiter = RateLimiter(ManualClock(), max_admitted=1)
        assert [limiter.admit(reason) for reason in ("a", "a", "b", "b")] == [0, None, 0, None]


class TestCatalogue:
    def test_every_event_has_a_sentence(self) -> None:
        for event in LogEvent:
            assert re.fullmatch(r"[a-z]+(_[a-z]+)*", event.value)
            assert re.fullmatch(r"[A-Z].+\.", event.explanation)
            assert event == event.value
            assert not set(event.fields) & (_PAYLOAD_FIELDS - {"payload"})  # The guard removes it.

    def test_every_event_is_logged_with_none_but_the_fields_that_it_declares(self) -> None:
        """What is passed on as a mapping is looked at by the loggers of the tests."""
        logged = set()
        for module in (ROOT / "consumer").rglob("*.py"):
            for call in ast.walk(ast.parse(module.read_text())):
                match call:
                    case ast.Call(
                        args=[ast.Attribute(value=ast.Name(id="LogEvent"), attr=name), *_],
                        keywords=keywords,
                    ):
                        given = {one.arg for one in keywords} - {None, "exc_info"}
                        assert given <= set(LogEvent[name].fields), (module, name)
            logged |= set(re.findall(r"Event\.([A-Z_]+)", module.read_text()))
        assert logged == set(LogEvent.__members__)

    def test_an_event_that_is_not_in_the_catalogue_fails_type_checking(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "snippet.py").write_text(
            "from consumer.telemetry.log_events import LogEvent\n"
            "from consumer.telemetry.logging_setup import get_logger\n"
            "get_logger().info(LogEvent.BAD_PAYLOAD, reason='x')\n"
            "get_logger().info('bad_payload', reason='x')\n"
            "get_logger().info(LogEvent.NO_SUCH_EVENT)\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--no-error-summary", str(tmp_path / "snippet.py")],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert [line.split(":")[1] for line in done.stdout.splitlines()] == ["4", "5"], done.stdout


def test_the_system_clock_tells_seconds_that_grow_and_milliseconds_since_1970() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1_767_225_600_000


class Full(io.BytesIO):
    """A file on a disk that is full, or a pipe whose reader is gone."""

    def write(self, _text: object) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_log_that_cannot_be_written_stops_nothing(log_format: Format) -> None:
    """A full disk would stop the pipeline, and nothing would say why."""
    full = Full()

    class Broken:  # A real one would be flushed when it is collected.
        buffer = full

        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> int:
            return full.write(text)

        def flush(self) -> None:
            full.flush()

    configure(log_format, stream=cast("TextIO", Broken()))
    get_logger().error(LogEvent.KAFKA_ERROR)
