"""KServe's agent, which logs requests and responses as binary CloudEvents."""

from pathlib import Path

import pytest

from tests.field.answers import ENGINES
from tests.field.conftest import Start, Topic, free_port, until_open
from tests.field.fake_server import FakeServer, ask

pytestmark = pytest.mark.field("kserve-agent")


def test_logger(topic: Topic, program: Path, start: Start, server: FakeServer, bridge: str) -> None:
    """Requests are skipped; the streams among the responses are labelled as JSON."""
    port = free_port()
    agent = start(
        *(program / "program", "--port", str(port), "--component-port", str(server.port)),
        *("--log-url", bridge, "--log-mode", "all", "--source-uri", "/gateway"),
        *("--inference-service", "llm", "--namespace", "serving"),
        *("--endpoint", "default", "--component", "predictor"),
        SERVING_READINESS_PROBE=f'{{"tcpSocket":{{"host":"127.0.0.1","port":{server.port}}}}}',
    )
    until_open(f"127.0.0.1:{port}", agent)
    for engine in ENGINES:
        for streamed in (False, True):
            ask(f"http://127.0.0.1:{port}", engine, streamed=streamed)
    topic.must_give(server.answers.numbers(), messages=4 * len(ENGINES))
