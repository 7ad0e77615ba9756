"""nginx in front of the server, with an access log in JSON whose body a Lua filter collects.

nginx writes a file; the test sends its lines, as a shipper would.
"""

from pathlib import Path

import pytest

from tests.field.answers import ENGINES
from tests.field.conftest import Start, Topic, free_port, until_open
from tests.field.fake_server import FakeServer, ask
from tests.kafka.harness import eventually

pytestmark = pytest.mark.field("nginx")

_CALLS = [(engine, streamed) for engine in ENGINES for streamed in (False, True)]
_CONFIGURATION = """
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
daemon off; master_process off; pid {directory}/pid; error_log stderr;
events {{ }}
http {{
  lua_package_path "{lua}/?.lua;;";
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  log_format answers escape=json '{{"request_id":"$request_id","status":"$status",'
    '"timestamp":"$msec","endpoint":"$uri","body":"$answer"}}';
  server {{
    listen 127.0.0.1:{port};
    set $answer "";
    access_log {directory}/access.log answers;
    location / {{
      proxy_pass http://{server};
      proxy_http_version 1.1;
      proxy_buffering off;
      body_filter_by_lua_block {{
        local chunks = ngx.ctx.chunks or {{}}
        chunks[#chunks + 1] = ngx.arg[1]
        ngx.ctx.chunks = chunks
        if ngx.arg[2] then ngx.var.answer = table.concat(chunks) end
      }}
    }}
  }}
}}
"""


def test_access_log(
    topic: Topic, program: Path, start: Start, tmp_path: Path, server: FakeServer
) -> None:
    root, port = program / "root" / "usr", free_port()
    path = tmp_path / "nginx.conf"
    path.write_text(
        _CONFIGURATION.format(
            modules=root / "lib" / "nginx" / "modules",
            lua=root / "share" / "lua" / "5.1",
            directory=tmp_path,
            port=port,
            server=server.address,
        )
    )
    libraries = root / "lib" / "x86_64-linux-gnu"
    nginx = start(
        *(root / "sbin" / "nginx", "-c", path, "-p", tmp_path, "-e", "stderr"),
        LD_LIBRARY_PATH=f"{libraries}:{program / 'root' / 'lib' / 'x86_64-linux-gnu'}",
    )
    until_open(f"127.0.0.1:{port}", nginx)
    for engine, streamed in _CALLS:
        ask(f"http://127.0.0.1:{port}", engine, streamed=streamed)
    log = tmp_path / "access.log"
    eventually(lambda: log.exists() and log.read_text().count("\n") >= len(_CALLS), "the log")
    for line in log.read_text(encoding="utf-8").split("\n")[:-1]:
        topic.send(line)
    topic.must_give(server.answers.numbers(), messages=len(_CALLS))
