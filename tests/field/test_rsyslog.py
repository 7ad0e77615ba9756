"""rsyslog, which follows a log file and sends its lines with omkafka."""

import json
from pathlib import Path

import pytest

from tests.field.answers import Answers, write_log
from tests.field.conftest import Start, Topic

pytestmark = pytest.mark.field("rsyslog")

_TEMPLATES = {
    "line": 'template(name="out" type="string" string="%msg%")',
    "json": """
template(name="out" type="list" option.jsonf="on") {
  property(outname="@timestamp" name="timereported" dateFormat="rfc3339" format="jsonf")
  property(outname="host" name="hostname" format="jsonf")
  property(outname="severity" name="syslogseverity-text" format="jsonf")
  property(outname="message" name="msg" format="jsonf")
}""",
}
_CONFIGURATION = """
global(workDirectory="{directory}")
module(load="imfile" mode="polling" pollingInterval="1")
module(load="omkafka")
{template}
input(type="imfile" file="{log}" tag="llm")
action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="out")
"""


@pytest.mark.parametrize("template", _TEMPLATES)
def test_bodies(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, template: str
) -> None:
    given = answers.of_all_engines()
    _ship(topic, program, start, tmp_path, template, [one.line for one in given])
    topic.must_give(answers.numbers(), messages=len(given))


@pytest.mark.parametrize("template", _TEMPLATES)
def test_sse_log(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, template: str
) -> None:
    """A log of raw streams; imfile sends no blank lines."""
    streams = [answers.give("vllm", streamed=True), answers.give("sglang", streamed=True)]
    lines = [line for one in streams for line in one.body.split("\n")[:-1]]
    _ship(topic, program, start, tmp_path, template, lines)
    topic.must_give(answers.numbers(), messages=sum(map(bool, lines)))


def test_long_line(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path
) -> None:
    """By default rsyslog cuts a line after 8 kB, so that an event is no longer JSON."""
    long, short = answers.give("vllm", streamed=True), answers.give("vllm")
    events = long.body.removesuffix("data: [DONE]\n\n").rpartition("data: ")[0] * 8 + long.body
    line = json.dumps({"request_id": long.id, "body": events, "final": True})
    _ship(topic, program, start, tmp_path, "line", [line, short.line])
    topic.must_give([short.numbers], messages=2, dead_letters=["invalid_json"])


def _ship(
    topic: Topic, program: Path, start: Start, directory: Path, template: str, lines: list[str]
) -> None:
    configuration = directory / "rsyslog.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            directory=directory,
            template=_TEMPLATES[template],
            log=write_log(directory / "answers.log", lines),
            bootstrap=topic.bootstrap,
            topic=topic.name,
        )
    )
    libraries = program / "root" / "usr" / "lib" / "x86_64-linux-gnu"
    start(
        *(program / "root" / "usr" / "sbin" / "rsyslogd", "-n"),
        *("-f", configuration, "-i", directory / "pid", "-M", libraries / "rsyslog"),
        LD_LIBRARY_PATH=str(libraries),
    )
