"""syslog-ng, which follows a log file and sends its lines with kafka-c."""

from pathlib import Path

import pytest

from tests.field.answers import Answers, write_log
from tests.field.conftest import Start, Topic

pytestmark = pytest.mark.field("syslog-ng")

_TEMPLATES = {"line": "$MSG", "json": "$(format-json --scope rfc3164 --key ISODATE)"}
_CONFIGURATION = """
@version: 3.38
source s_log {{ file("{log}" flags(no-parse) follow-freq(1)); }};
destination d_kafka {{
  kafka-c(bootstrap-servers("{bootstrap}") topic("{topic}") message("{template}"));
}};
log {{ source(s_log); destination(d_kafka); }};
"""


@pytest.mark.parametrize("template", _TEMPLATES)
def test_bodies(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, template: str
) -> None:
    given = answers.of_all_engines()
    configuration = tmp_path / "syslog-ng.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            template=_TEMPLATES[template],
            log=write_log(tmp_path / "answers.log", [one.line for one in given]),
            bootstrap=topic.bootstrap,
            topic=topic.name,
        )
    )
    root = program / "root" / "usr"
    libraries = [root / "lib" / "x86_64-linux-gnu", program / "root" / "lib" / "x86_64-linux-gnu"]
    start(
        *(root / "sbin" / "syslog-ng", "--foreground", "--stderr", "--no-caps"),
        *("--cfgfile", configuration, "--module-path", root / "lib" / "syslog-ng" / "3.38"),
        *("--persist-file", tmp_path / "persist", "--pidfile", tmp_path / "pid"),
        *("--control", tmp_path / "control"),
        LD_LIBRARY_PATH=":".join(map(str, [*libraries, root / "lib" / "syslog-ng"])),
    )
    topic.must_give(answers.numbers(), messages=len(given))
