"""Dapr's sidecar, which publishes what an application gives it as a CloudEvent."""

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.field.answers import Answers
from tests.field.conftest import Start, Topic, free_port, until_open

pytestmark = pytest.mark.field("dapr")


@pytest.mark.parametrize("raw", [False, True], ids=["cloudevent", "raw_payload"])
def test_publish(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, *, raw: bool
) -> None:
    port = free_port()
    metadata = {
        "brokers": topic.bootstrap,
        "authType": "none",
        "version": "2.1.0",
        "initialOffset": "oldest",
    }
    component = {
        "apiVersion": "dapr.io/v1alpha1",
        "kind": "Component",
        "metadata": {"name": "kafka"},
        "spec": {
            "type": "pubsub.kafka",
            "version": "v1",
            "metadata": [{"name": name, "value": value} for name, value in metadata.items()],
        },
    }
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "kafka.yaml").write_text(json.dumps(component))
    dapr = start(
        *(program / "program", "--app-id", "gateway", "--resources-path", tmp_path / "components"),
        *("--dapr-http-port", str(port), "--dapr-grpc-port", str(free_port())),
        *("--dapr-internal-grpc-port", str(free_port()), "--enable-metrics=false"),
        *("--dapr-listen-addresses", "127.0.0.1"),
    )
    until_open(f"127.0.0.1:{port}", dapr)
    given = answers.of_all_engines()
    query = "?metadata.rawPayload=true" if raw else ""
    url = f"http://127.0.0.1:{port}/v1.0/publish/kafka/{topic.name}{query}"
    for one in given:
        request = Request(url, one.body.encode(), {"Content-Type": one.content_type})
        with urlopen(request, timeout=30) as response:  # noqa: S310
            assert response.status == 204
    topic.must_give(answers.numbers(), messages=len(given))
