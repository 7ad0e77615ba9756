"""The LiteLLM proxy, which logs with its callback `generic_api`.

It keeps the numbers of whole answers, and loses the numbers of streams.
"""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.field.answers import ENGINES, in_order
from tests.field.conftest import Start, Topic, free_port, until_open
from tests.field.fake_server import FakeServer, ask

pytestmark = [pytest.mark.field("litellm"), pytest.mark.timeout(300)]

_KEY = f"sk-{uuid4()}"


@pytest.mark.parametrize("form", ["single", "json_array", "ndjson"])
def test_payloads(
    topic: Topic,
    program: Path,
    start: Start,
    tmp_path: Path,
    server: FakeServer,
    bridge: str,
    form: str,
) -> None:
    calls = [(engine, streamed) for engine in ENGINES for streamed in (False, True)]
    parameters = {"api_base": f"{server.url}/v1", "api_key": "none"}
    configuration = {
        "model_list": [
            {"model_name": name, "litellm_params": {"model": f"openai/{name}", **parameters}}
            for name in ENGINES
        ],
        "general_settings": {"master_key": _KEY},
        "litellm_settings": {"callbacks": ["answers"]},
        "callback_settings": {
            "answers": {
                "callback_type": "generic_api",
                "endpoint": bridge,
                "headers": {"Content-Type": "application/json"},
                "log_format": form,
            }
        },
    }
    path = tmp_path / "litellm.yaml"
    path.write_text(json.dumps(configuration))
    address = f"127.0.0.1:{free_port()}"
    proxy = start(
        *(program / "bin" / "litellm", "--config", path, "--telemetry", "False"),
        *("--host", "127.0.0.1", "--port", address.split(":")[1]),
        DEFAULT_BATCH_SIZE=str(len(calls)),
        DEFAULT_FLUSH_INTERVAL_SECONDS="600",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        PATH=f"{program / 'bin'}:/usr/bin:/bin",
    )
    until_open(address, proxy)
    for engine, streamed in calls:
        ask(f"http://{address}", engine, streamed=streamed, Authorization=f"Bearer {_KEY}")
    whole = in_order(one.numbers for one in server.answers.given if not one.streamed)
    messages = len(calls) if form == "single" else 1
    topic.must_give(whole, messages=messages, without_record=len(ENGINES))
