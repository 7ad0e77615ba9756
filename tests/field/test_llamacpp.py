"""llama.cpp's server with a tiny random model, and a draft model that it agrees with at times."""

import json
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.field.answers import Json, Numbers, in_order
from tests.field.conftest import Start, Topic, free_port, until_open
from tests.kafka.harness import eventually

pytestmark = pytest.mark.field("llama.cpp")

_SERVER = Path(__file__).with_name("senders") / "llamacpp_server.py"
_PROMPTS: dict[str, Json] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello"},
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", _PROMPTS, ids=["chat", "completions"])
def test_answers(
    topic: Topic, program: Path, start: Start, tmp_path: Path, route: str, *, streamed: bool
) -> None:
    """The records have the counts that the server states in `timings`."""
    port = _serve(program, start, tmp_path)
    expected = []
    for tokens in (10, 21, 40):
        request = _PROMPTS[route] | {"max_tokens": tokens, "stream": streamed}
        if streamed:
            request["stream_options"] = {"include_usage": True}
        body = _ask(f"http://127.0.0.1:{port}{route}", request)
        topic.send(body)
        expected.append(_stated(body, streamed=streamed))
    topic.must_give(in_order(expected), messages=len(expected))


def test_responses_stream(topic: Topic, program: Path, start: Start, tmp_path: Path) -> None:
    """The Responses API states the counts beside the last event's response, without a reason."""
    port = _serve(program, start, tmp_path)
    request = {"input": "hello", "max_output_tokens": 20, "stream": True}
    body = _ask(f"http://127.0.0.1:{port}/v1/responses", request)
    topic.send(body)
    last = json.loads(body.rstrip("\n").rpartition("data: ")[2])
    counts, tokens = last["timings"], last["response"]["usage"]["output_tokens"]
    drafts = counts["draft_n_accepted"], counts["draft_n"]
    topic.must_give([Numbers("llamacpp", None, *drafts, tokens, None)], messages=1)


def _is_loaded(port: int) -> bool:
    with suppress(HTTPError), urlopen(f"http://127.0.0.1:{port}/health", timeout=10):
        return True
    return False


def _serve(program: Path, start: Start, directory: Path) -> int:
    """Start the server, and return its port when the model is loaded."""
    port = free_port()
    server = start(program / "bin" / "python", _SERVER, directory, str(port))
    until_open(f"127.0.0.1:{port}", server)
    eventually(lambda: _is_loaded(port), "the model")
    return port


def _ask(url: str, request: Json) -> str:
    with urlopen(Request(url, json.dumps(request).encode()), timeout=60) as response:  # noqa: S310
        return str(response.read(), "utf-8")


def _stated(body: str, *, streamed: bool) -> Numbers:
    """Return what the server states at the end."""
    texts = [line.removeprefix("data: ") for line in body.split("\n") if line != "data: [DONE]"]
    chunks = [json.loads(text) for text in texts if text] if streamed else [json.loads(body)]
    last = next(chunk for chunk in reversed(chunks) if "timings" in chunk)
    counts, tokens = last["timings"], last["usage"]["completion_tokens"]
    return Numbers("llamacpp", None, counts["draft_n_accepted"], counts["draft_n"], tokens)
