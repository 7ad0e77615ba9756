"""Envoy in front of the server: its access log with the body by Lua, and its tap filter.

Envoy writes files; the test sends what is in them, as a shipper would.
"""

import json
from pathlib import Path

import pytest

from tests.field.answers import ENGINES, Json
from tests.field.conftest import Start, Topic, free_port, until_open
from tests.field.fake_server import FakeServer, ask
from tests.kafka.harness import eventually

pytestmark = pytest.mark.field("envoy")

_TYPE = "type.googleapis.com/envoy.extensions"
_CALLS = [(engine, streamed) for engine in ENGINES for streamed in (False, True)]
_LUA = """
function envoy_on_response(handle)
  local body = handle:body()
  local text = body:getBytes(0, body:length())
  handle:streamInfo():dynamicMetadata():set("llm", "body", text)
end
"""
_ACCESS_LOG = {
    "request_id": "%REQ(X-REQUEST-ID)%",
    "endpoint": "%REQ(:PATH)%",
    "status": "%RESPONSE_CODE%",
    "timestamp": "%START_TIME%",
    "body": "%DYNAMIC_METADATA(llm:body)%",
}


def test_access_log(
    topic: Topic, program: Path, start: Start, tmp_path: Path, server: FakeServer
) -> None:
    filter_ = _filter("lua", "lua.v3.Lua", {"default_source_code": {"inline_string": _LUA}})
    _proxy(program, start, tmp_path, server, filter_)
    log = tmp_path / "access.log"
    lines = eventually(lambda: _complete_lines(log, len(_CALLS)), "the access log")
    for line in lines:
        topic.send(line)
    topic.must_give(server.answers.numbers(), messages=len(_CALLS))


@pytest.mark.parametrize("form", ["JSON_BODY_AS_BYTES", "JSON_BODY_AS_STRING"])
@pytest.mark.parametrize("kind", ["buffered", "streaming"])
def test_tap(
    topic: Topic,
    program: Path,
    start: Start,
    tmp_path: Path,
    server: FakeServer,
    kind: str,
    form: str,
) -> None:
    """A buffered tap is a document for each call; a streaming one several segments."""
    output: Json = {
        "streaming": kind == "streaming",
        "max_buffered_tx_bytes": 1 << 20,
        "sinks": [{"format": form, "file_per_tap": {"path_prefix": str(tmp_path / "tap")}}],
    }
    static = {"match": {"any_match": True}, "output_config": output}
    filter_ = _filter("tap", "tap.v3.Tap", {"common_config": {"static_config": static}})
    _proxy(program, start, tmp_path, server, filter_)
    eventually(lambda: len(list(tmp_path.glob("tap*"))) >= len(_CALLS), "the taps")
    documents = [one for file in sorted(tmp_path.glob("tap*")) for one in _documents(file)]
    for document in documents:
        topic.send(document)
    topic.must_give(server.answers.numbers(), messages=len(documents))


def _proxy(program: Path, start: Start, directory: Path, server: FakeServer, filter_: Json) -> None:
    """Run Envoy with a filter, and send every call through it."""
    port = free_port()
    manager = {
        "stat_prefix": "llm",
        "http_filters": [filter_, _filter("router", "router.v3.Router", {})],
        "access_log": [
            _typed(
                "envoy.access_loggers.file",
                "access_loggers.file.v3.FileAccessLog",
                {
                    "path": str(directory / "access.log"),
                    "log_format": {"json_format": _ACCESS_LOG},
                },
            )
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "llm",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "llm"}}],
                }
            ]
        },
    }
    name = "filters.network.http_connection_manager.v3.HttpConnectionManager"
    listener = {
        "address": _address(port),
        "filter_chains": [{"filters": [_typed("llm", name, manager)]}],
    }
    endpoint = {"endpoint": {"address": _address(server.port)}}
    cluster = {
        "name": "llm",
        "load_assignment": {
            "cluster_name": "llm",
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }
    configuration = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    path = directory / "envoy.json"
    path.write_text(json.dumps(configuration))
    envoy = start(program / "bin" / "envoy", "-c", path, "--concurrency", "1")
    until_open(f"127.0.0.1:{port}", envoy)
    for engine, streamed in _CALLS:
        ask(f"http://127.0.0.1:{port}", engine, streamed=streamed)


def _typed(name: str, kind: str, members: Json) -> Json:
    return {"name": name, "typed_config": {"@type": f"{_TYPE}.{kind}", **members}}


def _filter(name: str, kind: str, members: Json) -> Json:
    return _typed(f"envoy.filters.http.{name}", f"filters.http.{kind}", members)


def _address(port: int) -> Json:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _complete_lines(log: Path, count: int) -> list[str] | None:
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return lines if len(lines) >= count else None


def _documents(file: Path) -> list[str]:
    """Return the JSON documents that stand one after another in a file."""
    text, decoder, documents = file.read_text(encoding="utf-8").strip(), json.JSONDecoder(), []
    while text:
        _, end = decoder.raw_decode(text)
        documents.append(text[:end])
        text = text[end:].lstrip()
    return documents
